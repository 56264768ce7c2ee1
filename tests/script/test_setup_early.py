"""script/setup.py before anything is fetched."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import setup as setup_program

from app.setup import failures, flow, plan
from app.setup.options import require_config
from app.setup.place import Place
from app.setup.plan import Fetch
from tests.support.checkout import copied, program
from tests.support.places import ROOT

pytestmark = pytest.mark.machine


class TestProfiles:
    def test_an_unknown_config_name_is_refused(self) -> None:
        with pytest.raises(failures.SetupError) as caught:
            require_config(ROOT, "reachi")
        assert caught.value.exit_code == failures.SETTINGS == 3
        assert "Did you mean reachy?" in caught.value.fix
        assert "cpu-plus" in caught.value.why

    @pytest.mark.parametrize("written", ["no/such.yaml", "no-such.yml", "./reachy"])
    def test_a_file_that_does_not_exist(self, written: str) -> None:
        with pytest.raises(failures.SetupError, match="no settings to read"):
            require_config(ROOT, written)

    def test_those_that_do(self, tmp_path: Path) -> None:
        mine = tmp_path / "mine.yaml"
        mine.write_text("extends: reachy\n")
        for config in ("", "default", "reachy", str(mine)):
            require_config(ROOT, config)


class Bare:
    """A checkout where nothing is set up, on a machine without compiler and driver."""

    def __init__(self, directory: Path) -> None:
        self.root = copied(directory, "config", "app")
        programs = directory / "programs"
        programs.mkdir()
        for name in ("bash", "cat", "dirname", "readlink"):
            (programs / name).symlink_to(shutil.which(name) or "")
        self.python = programs / "python3"
        program(self.python, f'exec {sys.executable} "$@"')
        self.env = {"PATH": str(programs), "HOME": str(directory)}

    def start(self, command: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.root / "script" / command), *arguments],
            env=self.env,
            cwd=self.root.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, command: str, *arguments: str) -> tuple[int, str]:
        """Exit code, and both streams."""
        with self.start(command, *arguments) as child:
            printed = "".join(child.communicate(timeout=60))
        assert not (self.root / ".venv").is_dir()
        return child.returncode, printed


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(tmp_path)


class TestRealRuns:
    @pytest.mark.parametrize(
        ("arguments", "code", "told"),
        [
            (["--profile", "nonsense"], failures.SETTINGS, ["no profile called 'nonsense'"]),
            (["--profile", "nonsense", "--plan"], failures.SETTINGS, ["called 'nonsense'"]),
            (
                ["--profile", "reachy", "--plan"],
                0,
                ["known only after that", "packages of requirements.lock", "to compile"],
            ),
            (["--help"], 0, ["--setup-only", "the server's"]),
        ],
    )
    def test_nothing_is_set_up_for_it(
        self, bare: Bare, arguments: list[str], code: int, told: list[str]
    ) -> None:
        exit_code, printed = bare.run("serve", *arguments)
        assert exit_code == code, printed
        assert all(words in printed for words in told)
        assert not (bare.root / "build").exists()

    def test_a_link_to_it_starts_it(self, bare: Bare, tmp_path: Path) -> None:
        link = tmp_path / "reachy"
        link.symlink_to(bare.root / "script" / "serve")
        told = subprocess.check_output([link, "--help"], env=bare.env, text=True)
        assert "--setup-only" in told

    def test_no_compiler_stops_before_anything_is_made(self, bare: Bare) -> None:
        exit_code, printed = bare.run("serve", "--setup-only")
        assert exit_code == failures.NO_COMPILER, printed
        assert "apt-get install gcc g++" in printed

    def test_a_file_in_the_way_is_named(self, bare: Bare) -> None:
        (bare.root / ".venv").touch()
        exit_code, printed = bare.run("serve", "--setup-only")
        assert exit_code == 1, printed
        assert "Setup stopped: a file cannot be used" in printed
        assert f"Not a directory: '{bare.root}/.venv/" in printed

    @pytest.mark.parametrize("command", ["serve", "test"])
    def test_no_python(self, bare: Bare, command: str) -> None:
        bare.python.unlink()
        exit_code, printed = bare.run(command, "--setup-only")
        assert exit_code == failures.NO_PYTHON, printed
        assert "apt-get install python3" in printed

    def test_a_second_setup_waits_for_the_first(self, bare: Bare) -> None:
        (bare.root / "build").mkdir()
        with (bare.root / "build" / "setup.lock").open("w") as first:
            fcntl.flock(first, fcntl.LOCK_EX)
            second = bare.start("serve", "--setup-only")
            assert second.stderr is not None
            assert "Waiting for another setup" in second.stderr.readline()
            assert second.poll() is None
        with second:
            second.communicate(timeout=60)
        assert second.returncode == failures.NO_COMPILER


def test_declining_the_download_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from app.setup.steps import Step

    place = Place(tmp_path, tmp_path / "cache", sys.executable)
    large = Fetch("much", "an index", 2000, 2000)
    step = Step("much", "Much", lambda: "", lambda log: pytest.fail("done"), fetches=(large,))
    monkeypatch.setattr(plan, "confirm", lambda fetches: False)
    monkeypatch.setattr(flow, "serve", lambda place, _: flow.set_up(place, [step]))
    monkeypatch.setattr(flow.signal, "signal", lambda *_: None)
    monkeypatch.setattr(setup_program.Place, "of", lambda environ: place)
    assert setup_program.main(["serve"]) == failures.DECLINED == 17
    printed = capsys.readouterr().err
    assert "you answered no" in printed
    assert "Interrupted" not in printed
