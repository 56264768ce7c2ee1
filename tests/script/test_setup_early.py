"""script/setup.py before anything is fetched."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import setup as setup_program
from setup_steps import failures, plan
from setup_steps.options import require_config
from setup_steps.place import Place
from setup_steps.plan import Fetch

from tests.support.places import ROOT


class TestProfiles:
    def test_one_that_does_not_exist(self) -> None:
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


def bare(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The real program in a checkout where nothing is set up, on a machine without a driver."""
    root = directory / "checkout"
    for folder in ("script", "config", "app"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
    for lock in (*ROOT.glob("requirements*.lock"), ROOT / "pyproject.toml"):
        shutil.copy(lock, root)
    programs = directory / "programs"
    programs.mkdir()
    for name in ("bash", "dirname"):
        (programs / name).symlink_to(shutil.which(name) or "")
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python3").chmod(0o755)
    done = subprocess.run(
        [str(root / "script" / "serve"), *arguments],
        env={"PATH": str(programs), "HOME": str(directory)},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not (root / ".venv").exists()
    assert not (root / "build").exists()
    return done


class TestRealRuns:
    @pytest.mark.parametrize("arguments", [(), ("--plan",)])
    def test_no_such_profile(self, tmp_path: Path, arguments: tuple[str, ...]) -> None:
        done = bare(tmp_path, "--profile", "nonsense", *arguments)
        assert done.returncode == failures.SETTINGS, done.stderr
        assert "no profile called 'nonsense'" in done.stderr

    def test_the_plan_before_anything_is_there(self, tmp_path: Path) -> None:
        done = bare(tmp_path, "--profile", "reachy", "--plan")
        assert done.returncode == 0, done.stderr
        assert "only known when that is here" in done.stdout
        assert "packages of requirements.lock" in done.stderr
        assert "to compile" in done.stderr

    def test_help_sets_nothing_up(self, tmp_path: Path) -> None:
        done = bare(tmp_path, "--help")
        assert done.returncode == 0, done.stderr
        assert "--setup-only" in done.stdout
        assert "the server's" in done.stdout


def test_who_answers_no_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from setup_steps.steps import Step

    place = Place(tmp_path, tmp_path / "cache", sys.executable)
    large = Fetch("much", "an index", 2000, 2000)
    step = Step("much", "Much", lambda: "", lambda log: pytest.fail("done"), fetches=(large,))
    monkeypatch.setattr(plan, "agreed", lambda fetches: False)
    monkeypatch.setattr(
        setup_program, "_serve", lambda place, _: setup_program.set_up(place, [step])
    )
    monkeypatch.setattr(setup_program.signal, "signal", lambda *_: None)
    monkeypatch.setattr(setup_program.Place, "of", lambda root, environ: place)
    assert setup_program.main(["serve"]) == failures.DECLINED == 17
    printed = capsys.readouterr().err
    assert "you answered no" in printed
    assert "Interrupted" not in printed
