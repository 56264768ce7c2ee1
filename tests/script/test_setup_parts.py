"""script/app.setup: causes of failures, commands, and what a computer offers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.setup import commands, computer, failures, flow, llama, own_wheel
from app.setup.commands import Log
from app.setup.place import Place

pytestmark = pytest.mark.machine

# Messages as pip 23 and 26 print them.
REFUSED = """Looking in indexes: http://127.0.0.1:9/simple
WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after \
connection broken by 'NewConnectionError('<HTTPConnection object at 0x7f94>: Failed to establish \
a new connection: [Errno 111] Connection refused')': /simple/h11/
ERROR: Could not find a version that satisfies the requirement h11==0.16.0 (from versions: none)
ERROR: No matching distribution found for h11==0.16.0
"""
NO_NAME = REFUSED.replace(
    "[Errno 111] Connection refused", "[Errno -3] Temporary failure in name resolution"
)
WRONG_HASH = """Collecting pip==26.3
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated \
the package versions, please update the hashes. Otherwise, examine the package contents carefully
        Expected sha256 0000
             Got        f3b6
"""
NO_SPACE = (
    "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
)
NO_VERSION = """ERROR: Could not find a version that satisfies the requirement h11==99 (from \
versions: 0.15.0, 0.16.0)
ERROR: No matching distribution found for h11==99
"""
COMPILE_ERROR = """llama.cpp:12:3: error: expected ';'
  ninja: build stopped: subcommand failed.
  ERROR: Failed building wheel for llama-cpp-python
"""
OUT_OF_MEMORY = """g++: fatal error: Killed signal terminated program cc1plus
  ninja: build stopped: subcommand failed.
"""
NO_CMAKE_COMPILER = "CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage\n"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "step.log", os.environ)


class TestCauses:
    @pytest.mark.parametrize(
        ("output", "exit_code", "why"),
        [
            (REFUSED, failures.NO_NETWORK, "cannot be reached"),
            (NO_NAME, failures.NO_NETWORK, "cannot be resolved"),
            (NO_VERSION, failures.NO_NETWORK, "does not have a pinned package"),
            (WRONG_HASH, failures.WRONG_HASH, "does not match the lock file"),
            (
                REFUSED.splitlines()[1] + "\n" + WRONG_HASH,
                failures.WRONG_HASH,
                "not match the lock file",
            ),
            (NO_SPACE, failures.NO_SPACE, "disk is full"),
            (COMPILE_ERROR, failures.BUILD_FAILED, "compiler or CMake"),
            (REFUSED.splitlines()[1] + COMPILE_ERROR, failures.BUILD_FAILED, "compiler or CMake"),
            (OUT_OF_MEMORY, failures.BUILD_FAILED, "memory"),
            (NO_CMAKE_COMPILER, failures.NO_COMPILER, "no C++ compiler"),
            ("Segmentation fault", failures.BUILD_FAILED, "unknown reason"),
        ],
    )
    def test_failures_are_classified(self, output: str, exit_code: int, why: str) -> None:
        error = failures.classify("it could not be installed", output)
        assert error.exit_code == exit_code
        assert why in error.why
        assert error.fix

    def test_a_failing_command_shows_the_end_of_its_log(self, log: Log) -> None:
        script = "seq 100; echo '[Errno 28] No space left on device'; exit 1"
        with pytest.raises(failures.SetupError) as caught:
            log.run(["sh", "-c", script], "the packages could not be installed")
        report = caught.value.report()
        assert caught.value.exit_code == failures.NO_SPACE
        assert "the packages could not be installed" in report
        assert str(log.path) in report
        assert "    100\n" in report
        assert "    50\n" not in report

    def test_an_earlier_commands_error_is_not_reported_again(self, log: Log) -> None:
        log.run(["echo", "Retrying: Connection refused"], "first")
        with pytest.raises(failures.SetupError) as caught:
            log.run(["false"], "second")
        assert caught.value.exit_code == failures.BUILD_FAILED

    def test_interruption_ends_the_command_and_all_it_started(
        self, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read_end, write_end = os.pipe()
        os.set_inheritable(write_end, True)

        def interrupt(self: Log) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Log, "show", interrupt)
        log.lock_fd = write_end
        with pytest.raises(KeyboardInterrupt):
            log.run(["sh", "-c", "sleep 600 & wait"], "sleep")
        os.close(write_end)
        assert os.read(read_end, 1) == b""  # end of file: the other end is closed everywhere
        os.close(read_end)


def test_a_terminal_shows_how_long_a_command_has_taken(
    log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "POLL_S", 0.01)
    monkeypatch.setattr(commands.sys.stderr, "isatty", lambda: True)
    log.run(["sleep", "0.1"], "sleep")
    log.done()
    printed = capsys.readouterr().err
    assert printed.startswith("\r      0:00\r")
    assert printed.endswith("\r      done in 0:00\n")


def test_without_a_terminal_a_line_shows_the_time_now_and_then(
    log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "POLL_S", 0.01)
    log.run(["sleep", "0.1"], "sleep")
    assert not capsys.readouterr().err
    monkeypatch.setattr(commands, "PLAIN_S", 0.0)
    log.run(["sleep", "0.1"], "sleep")
    assert capsys.readouterr().err.startswith("      0:00\n")


class TestComputer:
    @pytest.mark.parametrize(
        ("environ", "here", "found"),
        [
            ({}, ("cc", "clang++"), ("/bin/cc", "/bin/clang++")),
            (
                {"CC": "ccache gcc", "CXX": "g++-13 -m64"},
                ("cc", "c++", "ccache", "g++-13"),
                ("/bin/ccache", "/bin/g++-13"),
            ),
            ({}, ("cc",), None),
            ({}, (), None),
        ],
    )
    def test_the_compilers(
        self, environ: dict[str, str], here: tuple[str, ...], found: tuple[str, str] | None
    ) -> None:
        which = {name: f"/bin/{name}" for name in here}.get
        assert computer.find_compiler(environ, which) == found

    @pytest.mark.parametrize("present", [set(), {"venv"}, {"ensurepip"}])
    def test_venv_missing_names_the_debian_package(self, present: set[str]) -> None:
        error = computer.venv_error(present.__contains__, (3, 11))
        assert error is not None
        assert error.exit_code == failures.NO_PYTHON
        assert "apt-get install python3-venv" in error.fix
        assert "python3.11-venv" in error.fix
        assert computer.venv_error({"venv", "ensurepip"}.__contains__, (3, 11)) is None

    def test_space_is_summed_for_each_file_system(self, tmp_path: Path) -> None:
        free_mb = shutil.disk_usage(tmp_path).free // 1_000_000
        needs = {tmp_path / "not" / "yet": free_mb // 2, tmp_path / "cache": free_mb}
        (error,) = computer.space_errors(needs)
        assert error.exit_code == failures.NO_SPACE
        assert str(tmp_path) in error.why
        assert computer.space_errors({tmp_path: 0}) == []

    @pytest.mark.parametrize(
        ("cores", "meminfo", "jobs"),
        [
            (8, "MemAvailable:   3900000 kB\n", 3),
            (2, "MemAvailable:  23000000 kB\n", 2),
            (8, "MemAvailable:    300000 kB\n", 1),
            (4, "", 4),
        ],
    )
    def test_compilers_at_once_fit_into_memory(self, cores: int, meminfo: str, jobs: int) -> None:
        assert computer.compile_jobs(cores, meminfo) == jobs

    def test_build_finds_its_own_tools_first_and_keeps_a_chosen_parallelism(self) -> None:
        environ = {"PATH": "/usr/bin", "CMAKE_BUILD_PARALLEL_LEVEL": "1"}
        added = llama.build_environment(Path("/tools"), environ)
        assert added["PATH"].split(os.pathsep) == ["/tools/bin", "/usr/bin"]
        assert added["CMAKE_BUILD_PARALLEL_LEVEL"] == "1"
        assert "-DGGML_NATIVE=ON" in added["CMAKE_ARGS"]
        assert "-DCMAKE_CXX_FLAGS_INIT=-U__AMX_INT8__" in added["CMAKE_ARGS"]


def test_pip_installs_what_is_locked_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """NVIDIA's containers set ``PIP_CONSTRAINT``, companies write files for pip."""
    place = Place(tmp_path, tmp_path, "python")
    constraints, config = tmp_path / "constraints.txt", tmp_path / "pip.conf"
    constraints.write_text("small==2\n")
    elsewhere = f"target = {tmp_path}/a\nprefix = {tmp_path}/b\nroot = {tmp_path}/c\n"
    config.write_text(f"[global]\nconstraint = {constraints}\nonly-binary = :all:\n{elsewhere}")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_CONSTRAINT", str(constraints))
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    (tmp_path / "small").mkdir()
    project = '[project]\nname = "small"\nversion = "1"\n[tool.setuptools]\npy-modules = []\n'
    (tmp_path / "small" / "pyproject.toml").write_text(project)
    shutil.make_archive(str(tmp_path / "small-1"), "gztar", tmp_path, "small")
    place.scratch.mkdir(parents=True)
    options = ["--no-build-isolation", "--no-deps", "--no-index"]
    command = place.pip("install", *options, "--find-links", str(tmp_path), "small==1")
    environ = flow.step_environment(place)
    subprocess.run([sys.executable, *command[1:]], env=environ, check=True)
    assert list(place.venv.rglob("small-1.dist-info"))


def test_an_installed_program_of_1970_is_packed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Files of reproducible images are that old."""
    about = tmp_path / "reachy_voice-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: reachy-voice\nVersion: 1\n")
    (about / "RECORD").write_text("app.py,,\n")
    (tmp_path / "app.py").touch()
    os.utime(tmp_path / "app.py", (0, 0))
    monkeypatch.setattr(own_wheel, "distribution", lambda _: PathDistribution(about))
    with zipfile.ZipFile(own_wheel.pack(tmp_path)) as wheel:
        assert wheel.namelist()[0] == "app.py"


def test_a_program_whose_python_was_removed_is_not_continued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Homebrew and uv remove it when they upgrade."""
    place = Place(tmp_path, tmp_path, "python", data=tmp_path)
    place.python.parent.mkdir(parents=True)
    place.python.symlink_to(tmp_path / "python3.12")
    place.stamps.write("project", "this version")
    monkeypatch.setattr(own_wheel, "IS_INSTALLED", True)
    monkeypatch.setattr(own_wheel, "identity", lambda: "this version")
    monkeypatch.setattr(own_wheel, "Place", SimpleNamespace(of=lambda _: place))
    assert own_wheel.program_of_setup() is None
    (tmp_path / "python3.12").touch()
    assert own_wheel.program_of_setup() == place.program
