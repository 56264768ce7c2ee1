"""script/setup.py: stamps, keys, progress, causes of failures, and runs of the real program."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import setup as setup_program
from setup_steps import computer, debian, failures, llama, progress, steps
from setup_steps.commands import Log
from setup_steps.place import Place
from setup_steps.stamps import Stamps, digest

ROOT = Path(__file__).resolve().parent.parent

X86 = """processor : 0
model name : Some CPU
flags\t\t: fpu sse4_2 avx2 md_clear fma avx512f ibpb
processor : 1
flags\t\t: fpu
"""
ARM = "processor : 0\nFeatures\t: fp asimd asimddp sve\n"

# As pip 23 and 26 print them.
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
def place(tmp_path: Path) -> Place:
    """A checkout with the lock files alone."""
    root = tmp_path / "checkout"
    (root / "script").mkdir(parents=True)
    for name in ("llama-cpp.lock", "llama-cpp-build.lock", "bootstrap.lock"):
        shutil.copy(ROOT / "script" / name, root / "script")
    for name in ("requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    return Place(root, tmp_path / "cache", sys.executable)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "step.log", os.environ)


class TestStamps:
    def test_digest_changes_with_every_part_and_with_their_borders(self, tmp_path: Path) -> None:
        file = tmp_path / "lock"
        absent = digest(file)
        file.write_text("")
        empty = digest(file)
        file.write_text("a==1")
        assert len({absent, empty, digest(file), digest("a==1"), digest("a==", "1")}) == 5

    def test_stamp_is_read_back_and_leaves_nothing_else(self, tmp_path: Path) -> None:
        stamps = Stamps(tmp_path / "stamps")
        assert stamps.read("packages") is None
        stamps.write("packages", "one")
        stamps.write("packages", "two")
        assert stamps.read("packages") == "two"
        assert os.listdir(tmp_path / "stamps") == ["packages"]

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
        step = steps.weights(place, "weights", [])
        place.stamps.write(step.name, step.inputs())
        assert step.is_done(place)
        (place.cache / "weights" / "silero-vad").rmdir()
        assert not step.is_done(place)

    def test_nothing_is_run_when_every_stamp_is_current(self, place: Place) -> None:
        todo = steps.steps_for(place, with_tests=True)
        for step in todo:
            place.stamps.write(step.name, step.inputs())
        setup_program.set_up(place, todo)
        assert not place.build.exists()

    def test_a_step_that_fails_gets_no_stamp(self, place: Place) -> None:
        def fail(bar: progress.Bar, log: Log) -> None:
            log.run(["false"], "it could not be done")

        step = steps.Step("broken", "Broken", lambda: "inputs", fail)
        with pytest.raises(failures.SetupError):
            setup_program.set_up(place, [step])
        assert not step.is_done(place)


class TestWheelKey:
    LOCK = "llama-cpp-python==0.3.36 \\\n    --hash=sha256:aa\n"

    def test_names_version_and_python(self) -> None:
        assert llama.wheel_key(self.LOCK, "cp311", "", "").startswith("0.3.36-cp311-")

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

    def test_a_damaged_cached_wheel_is_not_used(self, place: Place) -> None:
        wheel = llama.LlamaWheel(place, "cp311")
        wheel.home.mkdir(parents=True)
        (wheel.home / "llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl").write_bytes(b"cut sho")
        (wheel.home / "sha256").write_text("00")
        assert wheel.cached() is not None
        assert wheel._usable() is None
        assert not wheel.home.exists()

    def test_lock_and_pyproject_pin_the_same_version(self) -> None:
        version = llama.pinned_version(llama.lock_file(ROOT).read_text())
        assert f'"llama-cpp-python=={version}"' in (ROOT / "pyproject.toml").read_text()

    def test_the_tests_run_what_is_served(self) -> None:
        served, tested = (
            {line for line in (ROOT / name).read_text().splitlines() if "==" in line}
            for name in ("requirements.lock", "requirements-dev.lock")
        )
        assert served <= tested


class TestProgress:
    def test_ninja_counts_from_the_first_to_the_last_file(self) -> None:
        reader = progress.NinjaProgress()
        assert reader("Collecting llama-cpp-python==0.3.36") == 0
        assert reader("  [1/2] Building C object testCCompiler.c.o") == 0
        half = reader("  [70/140] /usr/bin/c++ -O3 -c llama-model.cpp")
        assert 0.5 < half < 0.55
        assert reader("llama-model.cpp:1: warning: unused [3/140]") == half
        assert reader("[140/140] Linking CXX shared library bin/libllama.so") == 1

    def test_pip_counts_requirements_and_never_falls(self) -> None:
        reader = progress.PipProgress(4)
        lines = [
            "Looking in indexes: https://pypi.org/simple",
            "Collecting anyio==4.16.0 (from -r requirements.lock (line 7))",
            "  Downloading anyio-4.16.0-py3-none-any.whl (113 kB)",
            "Ignoring colorama: markers 'sys_platform == \"win32\"' don't match your environment",
            "Requirement already satisfied: idna==3.20 in ./.venv/lib/python3.11/site-packages",
            "Installing collected packages: anyio",
            "Successfully installed anyio-4.16.0",
        ]
        seen = [round(reader(line) / reader.LOOKUP, 2) for line in lines]
        assert seen == [0, 0.25, 0.25, 0.5, 0.75, 1, 1]

    def test_requirements_are_counted_in_the_lock(self) -> None:
        lock = "a==1 \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\nb-c==2 ; python == '3'\n"
        assert steps.requirement_count(lock) == 2

    @pytest.mark.parametrize(
        ("elapsed_s", "fraction", "expected_s"),
        [(0, 0, 60), (10, 0.01, 50), (90, 0, 0), (30, 0.25, 90), (100, 1, 0)],
    )
    def test_estimate(self, elapsed_s: float, fraction: float, expected_s: float) -> None:
        assert progress.remaining_s(elapsed_s, fraction, 60) == pytest.approx(expected_s)

    @pytest.mark.parametrize("width", [30, 79, 200])
    def test_line_fits_the_terminal(self, width: int) -> None:
        line = progress.bar_line("[4/6] llama.cpp, compiled for this CPU", 65, 0.5, 60, width)
        assert len(line) <= width
        assert width == 30 or line.endswith(" 50%  1:05, about 1:05 left")

    def test_without_a_terminal_lines_are_plain_and_rare(self) -> None:
        out, now = io.StringIO(), 0.0
        bar = progress.Bar("Packages", 60, out, lambda: now)
        for second in range(61):
            now = float(second)
            bar.show(second / 100)
        bar.done()
        lines = out.getvalue().splitlines()
        assert lines[0] == "Packages (about 1:00)"
        assert lines[-1] == "Packages: done in 1:00"
        assert len(lines) == 4
        assert "\r" not in out.getvalue()

    def test_a_terminal_gets_one_line_rewritten(self) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        out = Terminal()
        bar = progress.Bar("Packages", 60, out)
        bar.show(0.5)
        bar.done()
        assert out.getvalue().count("\n") == 1
        assert out.getvalue().count("\r") == 2


class TestCauses:
    @pytest.mark.parametrize(
        ("output", "exit_code", "why"),
        [
            (REFUSED, failures.NO_NETWORK, "cannot be reached"),
            (NO_NAME, failures.NO_NETWORK, "cannot be resolved"),
            (NO_VERSION, failures.NO_NETWORK, "does not have a pinned package"),
            (WRONG_HASH, failures.WRONG_HASH, "not the one that the lock file pins"),
            (REFUSED.splitlines()[1] + "\n" + WRONG_HASH, failures.WRONG_HASH, "lock file pins"),
            (NO_SPACE, failures.NO_SPACE, "disk is full"),
            (COMPILE_ERROR, failures.BUILD_FAILED, "compiler or CMake"),
            (REFUSED.splitlines()[1] + COMPILE_ERROR, failures.BUILD_FAILED, "compiler or CMake"),
            (OUT_OF_MEMORY, failures.BUILD_FAILED, "memory"),
            (NO_CMAKE_COMPILER, failures.NO_COMPILER, "no C++ compiler"),
            ("Segmentation fault", failures.BUILD_FAILED, "not recognised"),
        ],
    )
    def test_told_apart(self, output: str, exit_code: int, why: str) -> None:
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

    def test_an_earlier_commands_trouble_is_not_this_ones(self, log: Log) -> None:
        log.run(["echo", "Retrying: Connection refused"], "first")
        with pytest.raises(failures.SetupError) as caught:
            log.run(["false"], "second")
        assert caught.value.exit_code == failures.BUILD_FAILED

    def test_progress_is_read_from_the_output(self, log: Log) -> None:
        seen: list[str] = []

        def reader(line: str) -> float:
            seen.append(line)
            return 0.0

        log.run(["printf", "one\\ntwo\\n"], "printf", None, reader)
        assert seen == ["one", "two"]

    def test_interruption_ends_the_command_and_all_it_started(self, log: Log) -> None:
        read_end, write_end = os.pipe()
        os.set_inheritable(write_end, True)

        def reader(line: str) -> float:
            raise KeyboardInterrupt

        log.lock_fd = write_end
        with pytest.raises(KeyboardInterrupt):
            log.run(["sh", "-c", "echo started; sleep 600 & wait"], "sleep", None, reader)
        os.close(write_end)
        assert os.read(read_end, 1) == b""  # end of file: nobody holds the other end any more
        os.close(read_end)


class TestComputer:
    def test_compilers_on_the_path(self) -> None:
        here = {"cc": "/usr/bin/cc", "clang++": "/usr/bin/clang++"}
        assert computer.find_compiler({}, here.get) == ("/usr/bin/cc", "/usr/bin/clang++")

    def test_variables_come_first_and_may_have_options(self) -> None:
        here = {name: f"/bin/{name}" for name in ("cc", "c++", "ccache", "g++-13")}
        environ = {"CC": "ccache gcc", "CXX": "g++-13 -m64"}
        assert computer.find_compiler(environ, here.get) == ("/bin/ccache", "/bin/g++-13")

    def test_c_alone_is_not_enough(self) -> None:
        assert computer.find_compiler({}, {"cc": "/usr/bin/cc"}.get) is None

    def test_empty_path(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert computer.find_compiler({}) is None

    @pytest.mark.parametrize("present", [set(), {"venv"}, {"ensurepip"}])
    def test_venv_missing_names_the_debian_package(self, present: set[str]) -> None:
        error = computer.venv_error(present.__contains__, (3, 11))
        assert error is not None
        assert error.exit_code == failures.NO_PYTHON
        assert "apt-get install python3-venv" in error.fix
        assert "python3.11-venv" in error.fix

    def test_venv_present(self) -> None:
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


class TestDebianPackages:
    def test_what_is_missing_is_named_with_its_command(self) -> None:
        package = debian.DebianPackage("no-such", "no-such-program", "the voice")
        text = "\n".join(debian.advice([package]))
        assert "the voice (no-such)" in text
        assert "apt-get install no-such" in text

    def test_only_what_is_not_here_is_missing(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        here = debian.DebianPackage("shell", "/bin/sh", "shells")
        absent = debian.DebianPackage("no-such", "no-such-program", "the voice")
        assert debian.provide({}, [here, absent]) == ["no-such"]
        assert "apt-get install no-such" in capsys.readouterr().err
        assert debian.provide({}, [here]) == []


class Fresh:
    """A copy of the checkout without .venv, an empty cache, and no programs but these."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "checkout"
        ignored = shutil.ignore_patterns(
            ".venv", ".git", "build", "*cache*", "*.egg-info", "tests", "benchmarks"
        )
        shutil.copytree(ROOT, self.root, ignore=ignored)
        self.programs = directory / "programs"
        self.programs.mkdir()
        self.env = {"PATH": str(self.programs), "HOME": str(directory)}

    def start(self, command: str, *programs: str) -> subprocess.Popen[str]:
        for name in ("bash", "cat", "dirname", *programs):
            real = sys.executable if name == "python3" else shutil.which(name)
            (self.programs / name).write_text(f'#!/bin/sh\nexec "{real}" "$@"\n')
            (self.programs / name).chmod(0o755)
        return subprocess.Popen(
            [str(self.root / "script" / command), "--setup-only"],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, command: str, *programs: str) -> tuple[int, str]:
        with self.start(command, *programs) as child:
            _, printed = child.communicate(timeout=60)
            return child.returncode, printed


@pytest.fixture
def fresh(tmp_path: Path) -> Fresh:
    return Fresh(tmp_path)


class TestRealRuns:
    def test_no_compiler_stops_before_anything_is_made(self, fresh: Fresh) -> None:
        exit_code, printed = fresh.run("serve", "python3")
        assert exit_code == failures.NO_COMPILER, printed
        assert "apt-get install gcc g++" in printed
        assert not (fresh.root / ".venv").exists()

    @pytest.mark.parametrize("command", ["serve", "test"])
    def test_no_python(self, fresh: Fresh, command: str) -> None:
        exit_code, printed = fresh.run(command)
        assert exit_code == failures.NO_PYTHON, printed
        assert "apt-get install python3" in printed

    def test_a_second_setup_waits_for_the_first(self, fresh: Fresh) -> None:
        (fresh.root / "build").mkdir()
        with (fresh.root / "build" / "setup.lock").open("w") as first:
            fcntl.flock(first, fcntl.LOCK_EX)
            second = fresh.start("serve", "python3")
            assert second.stderr is not None
            assert "Waiting for another setup" in second.stderr.readline()
            assert second.poll() is None
        with second:
            second.communicate(timeout=60)
        assert second.returncode == failures.NO_COMPILER
