"""script/setup_steps: progress, causes of failures, commands, and what a computer offers."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import pytest
from setup_steps import computer, failures, llama, progress, steps
from setup_steps.commands import Log

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
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "step.log", os.environ)


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

    def test_a_silent_command_is_shown_by_its_typical_duration(self) -> None:
        now = 0.0
        bar = progress.Bar("Environment", 8, io.StringIO(), lambda: now)
        fractions = []
        for now in (2.0, 4.0, 20.0):  # noqa: B007
            bar.show(None)
            fractions.append(bar.fraction)
        bar.show(0.1)
        assert fractions == [0.25, 0.5, 0.95]
        assert bar.fraction == 0.95

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
        assert "-DCMAKE_CXX_FLAGS_INIT=-U__AMX_INT8__" in added["CMAKE_ARGS"]


def test_where_pip_keeps_what_it_fetched(tmp_path: Path) -> None:
    assert computer.pip_cache({"PIP_CACHE_DIR": "/pips"}) == Path("/pips")
    assert computer.pip_cache({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "pip"
    assert computer.pip_cache({}, "linux") == Path.home() / ".cache" / "pip"
    assert computer.pip_cache({}, "darwin") == Path.home() / "Library" / "Caches" / "pip"
    assert computer.pip_cache({"PIP_NO_CACHE_DIR": "1", "PIP_CACHE_DIR": "/pips"}) is None
    assert computer.same_disk(tmp_path, tmp_path / "not" / "made" / "yet")
