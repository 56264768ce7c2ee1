"""script/setup.py: stamps, keys, the checks, Debian packages, and runs of the real program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from test_steps import checks, debian

from app.setup import computer, flow, llama, steps
from app.setup.place import Place, digest
from tests.support.checkout import program
from tests.support.places import ROOT

pytestmark = pytest.mark.machine

X86 = """processor : 0
model name : Some CPU
flags\t\t: fpu sse4_2 avx2 md_clear fma avx512f ibpb
processor : 1
flags\t\t: fpu
"""
ARM = "processor : 0\nFeatures\t: fp asimd asimddp sve\n"


class TestStamps:
    def test_digest_changes_with_every_part_and_with_their_borders(self, tmp_path: Path) -> None:
        file = tmp_path / "lock"
        absent = digest(file)
        file.write_text("")
        empty = digest(file)
        file.write_text("a==1")
        assert len({absent, empty, digest(file), digest("a==1"), digest("a==", "1")}) == 5

    def test_a_changed_lock_file_makes_its_step_due(self, place: Place) -> None:
        step = steps.packages(place, "requirements.lock")
        assert not step.is_done(place)
        place.stamps.write(step.name, step.inputs())
        assert step.is_done(place)
        with (place.root / "requirements.lock").open("a") as lock:
            lock.write("extra==1 --hash=sha256:00\n")
        assert not step.is_done(place)

    def test_deleted_weights_make_their_step_due(self, place: Place) -> None:
        (place.cache / "weights" / "silero-vad").mkdir(parents=True)
        step = steps.weights(place, "weights-of-tests", [])
        place.stamps.write(step.name, step.inputs())
        assert step.is_done(place)
        (place.cache / "weights" / "silero-vad").rmdir()
        assert not step.is_done(place)

    def test_nothing_is_run_when_every_stamp_is_current(self, place: Place) -> None:
        todo = [*steps.base_steps(place, with_tests=True), steps.llama(place)]
        for step in todo:
            place.stamps.write(step.name, step.inputs())
        flow.set_up(place, todo)
        assert not (place.build / "setup.lock").exists()


class TestWheelKey:
    LOCK = "llama-cpp-python==0.3.36 \\\n    --hash=sha256:aa\n"

    def test_changes_with_all_that_changes_the_binary(self) -> None:
        keys = {
            llama.wheel_key(self.LOCK, "cp311", "-DA=ON", "avx2"),
            llama.wheel_key(self.LOCK, "cp312", "-DA=ON", "avx2"),
            llama.wheel_key(self.LOCK, "cp311", "-DA=OFF", "avx2"),
            llama.wheel_key(self.LOCK, "cp311", "-DA=ON", "avx2 avx512f"),
            llama.wheel_key(self.LOCK.replace("aa", "bb"), "cp311", "-DA=ON", "avx2"),
        }
        assert len(keys) == 5

    def test_only_instruction_sets_count_in_any_order(self) -> None:
        assert computer.instructions(X86) == "avx2 avx512f fma sse4_2"
        assert computer.instructions(X86.replace("sse4_2 avx2", "avx2 sse4_2 retbleed")) == (
            "avx2 avx512f fma sse4_2"
        )
        assert computer.instructions(ARM) == "asimd asimddp fp sve"
        assert computer.instructions("nothing known") == ""

    def test_lock_and_pyproject_pin_the_same_version(self) -> None:
        version = llama.pinned_version(llama.lock_file(ROOT).read_text())
        assert f'"llama-cpp-python=={version}"' in (ROOT / "pyproject.toml").read_text()


class TestDebianPackages:
    def test_only_absent_packages_are_missing(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        here = debian.DebianPackage("shell", "/bin/sh", "shells")
        absent = debian.DebianPackage("no-such", "no-such-program", "the voice")
        assert debian.provide({}, [here, absent]) == ["no-such"]
        told = capsys.readouterr().err
        assert "the voice (no-such)" in told
        assert "apt-get install no-such" in told
        assert debian.provide({}, [here]) == []


class TestInstallingDebianPackages:
    def test_root_installs_without_questions(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        voice = tmp_path / "voice"
        program(
            tmp_path / "apt-get",
            f'echo "$DEBIAN_FRONTEND $*" >> {tmp_path}/calls; case "$1" in\n'
            f"install) : > {voice};; esac",
        )
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        package = debian.DebianPackage("a-voice", str(voice), "the voice")
        assert debian.provide(os.environ, [package]) == []
        update, install = (tmp_path / "calls").read_text().splitlines()
        assert update.startswith("noninteractive update")
        assert install.startswith("noninteractive install -y")
        assert install.endswith(" a-voice")


class TestChecks:
    @pytest.fixture
    def tools(self, place: Place) -> Path:
        tools = place.venv / "bin"
        for name in ("ruff", "mypy", "lint-imports", "reachy-voice", "pytest"):
            program(tools / name, f'echo "$0 $*" >> {place.root}/calls')
        program(tools / "python", "")  # every module is here
        return tools

    def calls(self, place: Place) -> list[str]:
        lines = (place.root / "calls").read_text().splitlines()
        return [line.removeprefix(f"{place.venv}/bin/") for line in lines]

    def test_all_run_beside_the_tests(self, place: Place, tools: Path) -> None:
        assert checks.run(place, [], []) == 0
        called = self.calls(place)
        assert {"ruff check", "ruff format --check", "mypy "} <= set(called)
        assert "reachy-voice config schema --check" in called
        assert " ".join(["pytest", *checks.TIMED_TESTS]) in called
        assert " ".join(checks.UNTIMED_TESTS.command) in called
        assert all(Path(folder).is_dir() for folder in checks.UNTIMED)

    def test_every_failure_is_reported(
        self, place: Place, tools: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        program(tools / "mypy", "echo 'app.py:1: error: no'; exit 1")
        program(tools / "lint-imports", "exit 1")
        assert checks.run(place, [], []) == 1
        printed = capfd.readouterr().out
        assert "app.py:1: error: no" in printed
        last = printed.splitlines()[-1]
        assert last == "Failed beside the tests: mypy, mypy script, lint-imports"
        assert any(call.startswith("pytest -n") for call in self.calls(place))

    def test_arguments_are_for_pytest_alone(self, place: Place, tools: Path) -> None:
        assert checks.run(place, ["-k", "a or b", "tests"], []) == 0
        assert self.calls(place) == ["pytest -k a or b tests"]

    @pytest.mark.parametrize(("failing", "exit_code"), [("", 0), ("mypy", 1), ("pytest", 3)])
    def test_quick_tests_run_beside_all_checks(
        self,
        place: Place,
        tools: Path,
        capfd: pytest.CaptureFixture[str],
        failing: str,
        exit_code: int,
    ) -> None:
        if failing:
            program(tools / failing, f"echo {failing} is not content; exit 3")
        assert checks.run_quick(place, [], cores=4) == exit_code
        called = self.calls(place)
        tests = " ".join(["pytest", *checks.QUICK, "-n 4 --dist loadfile"])
        assert failing == "pytest" or tests in called
        assert "reachy-voice config schema --check" in called
        assert (f"{failing} is not content" in capfd.readouterr().out) == bool(failing)

    def test_arguments_are_for_quick_pytest_alone(self, place: Place, tools: Path) -> None:
        assert checks.run_quick(place, ["tests/speaking"], cores=2) == 0
        assert self.calls(place) == [" ".join(["pytest", *checks.QUICK, "tests/speaking"])]

    @pytest.mark.parametrize(("ci", "exit_code"), [("true", 1), ("", 0)])
    @pytest.mark.parametrize(
        ("package", "modules", "told"),
        [
            (["espeak-ng"], "", "Debian packages espeak-ng"),
            ([], "nemo", "tests that need nemo"),
        ],
    )
    def test_tests_are_skipped_on_a_laptop_and_never_in_ci(
        self,
        place: Place,
        tools: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
        ci: str,
        exit_code: int,
        package: list[str],
        modules: str,
        told: str,
    ) -> None:
        program(tools / "python", f"echo {modules}")
        monkeypatch.setenv("CI", ci)
        assert checks.run(place, [], package) == exit_code
        printed = capfd.readouterr().out
        assert (f"Failed beside the tests: {told}" in printed) == bool(ci)
        assert ("--workstation" in printed) == bool(modules and not ci)

    def test_modules_that_are_missing_are_found_without_importing_any(self, place: Place) -> None:
        program(place.python, f'exec {sys.executable} "$@"')
        assert checks.missing_modules(place, ["json", "no_such_module"]) == ["no_such_module"]
