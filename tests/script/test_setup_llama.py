"""script/setup.py builds llama.cpp for a GPU: its flags, its cache key, its trial run."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

import pytest
import setup as setup_program
from test_steps.llama_server import llama_server

from app.setup import computer, llama, steps
from app.setup.needs import Cuda
from app.setup.place import Place
from tests.support.checkout import CUDA, answer_pip, called, do, program

pytestmark = pytest.mark.machine

BUILT = "llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl"
BUILD = f'while [ "$1" != -w ]; do shift; done; echo good > "$2"/{BUILT}'
"""What ``pip wheel`` leaves."""


class TestLlamaForCuda:
    def test_each_compiler_and_gpu_has_its_own_wheel(self, place: Place) -> None:
        keys = {
            llama.LlamaWheel(place, "cp311", cuda).key
            for cuda in (None, CUDA, Cuda("/nvcc", "12.8", "8.9"), Cuda("/nvcc", "13.0.88", "9.0"))
        }
        assert len(keys) == 4

    def test_flags_and_compiler(self) -> None:
        added = llama.build_environment(Path("/tools"), {}, CUDA)
        assert "-DGGML_CUDA=ON" in added["CMAKE_ARGS"]
        assert "-DCMAKE_CUDA_ARCHITECTURES=native" in added["CMAKE_ARGS"]
        assert llama.CMAKE_FLAGS in added["CMAKE_ARGS"]
        assert added["CUDACXX"] == CUDA.nvcc
        assert "CUDA" not in str(llama.build_environment(Path("/tools"), {}))

    @pytest.mark.parametrize("folder", ["lib64", "lib"])
    def test_the_library_finds_the_toolkit_that_it_was_built_with(
        self, tmp_path: Path, folder: str
    ) -> None:
        toolkit = tmp_path / "the toolkit"
        library = toolkit / folder / "libcudart.so.13"
        for file in (toolkit / "bin" / "nvcc", library):
            file.parent.mkdir(parents=True)
            file.touch()
        (tmp_path / "nvcc").symlink_to(toolkit / "bin" / "nvcc")
        for nvcc in (toolkit / "bin" / "nvcc", tmp_path / "nvcc"):
            flags = shlex.split(llama.cmake_flags(Cuda(str(nvcc), "13.0.88", "8.9")))
            wanted = f"-DCMAKE_SHARED_LINKER_FLAGS_INIT=-Wl,-rpath,{library.parent}"
            assert wanted in flags
        assert "rpath" not in llama.cmake_flags(Cuda("/nvcc", "13.0.88", "8.9"))

    def test_its_compilers_take_more_memory(self) -> None:
        meminfo = "MemAvailable:   8000000 kB\n"
        assert computer.compile_jobs(16, meminfo) == 8
        assert computer.compile_jobs(16, meminfo, 2) == 4

    def test_the_plan_says_how_long_it_compiles(self, place: Place) -> None:
        (for_cpu,), (for_gpu,) = (steps.llama(place, cuda).fetches for cuda in (None, CUDA))
        assert for_gpu.compile_s > 3 * for_cpu.compile_s > 0
        assert "GPU" in for_gpu.what

    def test_it_must_load_with_its_gpu_library_as_in_a_service(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LD_LIBRARY_PATH", "/a/toolkit")
        answer_pip(place, 'case "$*" in *"import llama_cpp"*) exit ${LD_LIBRARY_PATH:+1};; esac')
        wheel = llama.LlamaWheel(place, "cp311", CUDA)
        wheel.home.mkdir(parents=True)
        built = wheel.home / BUILT
        built.write_bytes(b"wheel")
        (wheel.home / "sha256").write_text(hashlib.sha256(b"wheel").hexdigest())
        step = steps.llama(place, CUDA)
        assert step.fetches == (), "it is in the cache"
        do(place, step)
        assert "llama_supports_gpu_offload" in called(place)[-1]

    def test_a_damaged_wheel_in_the_cache_is_built_again(self, place: Place) -> None:
        answer_pip(place, f'case "$*" in *" wheel "*) {BUILD};; esac')
        wheel = llama.LlamaWheel(place, "cp311")
        for _ in range(2):  # the second run finds it in the cache
            do(place, steps.llama(place, pictures=True))
        assert wheel.cached() == wheel.home / BUILT
        assert " wheel " in str(called(place))
        (wheel.home / BUILT).write_text("cut sho")
        assert wheel.cached() is None
        do(place, steps.llama(place))
        assert not wheel.cached(), "one without pictures will do"
        do(place, steps.llama(place, pictures=True))
        assert (wheel.home / BUILT).read_text() == "good\n"
        assert str(called(place)).count(" wheel ") == 3


class TestPortableLlama:
    def test_it_is_the_same_on_every_x86_64_processor(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def keys() -> set[str]:
            found = set()
            for instructions in ("avx2", "avx2 avx512f"):
                monkeypatch.setattr(computer, "own_instructions", instructions.lower)
                found.add(llama.LlamaWheel(place, "cp311").key)
            return found

        monkeypatch.setattr("platform.machine", lambda: "x86_64")
        monkeypatch.delenv(llama.PORTABLE, raising=False)
        own = keys()
        assert len(own) == 2
        monkeypatch.setenv(llama.PORTABLE, "1")
        assert len(keys()) == 1
        assert not keys() & own
        monkeypatch.setattr("platform.machine", lambda: "aarch64")
        assert keys() == own

    def test_its_flags(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
        monkeypatch.setenv(llama.PORTABLE, "1")
        for pictures in (True, False):
            flags = llama.cmake_flags(None, pictures=pictures)
            assert "-DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON" in flags
            assert "-DGGML_NATIVE=ON" not in flags
        assert "-DGGML_NATIVE=ON" in llama.cmake_flags(CUDA), "a GPU's build is for this machine"

    @pytest.mark.parametrize(("value", "needed"), [("1", ""), ("", "avx2")])
    def test_it_needs_no_instructions(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, value: str, needed: str
    ) -> None:
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
        monkeypatch.setenv(llama.PORTABLE, value)
        monkeypatch.setattr(llama, "own_instructions", lambda: "avx2")
        answer_pip(place, f'case "$*" in *" wheel "*) {BUILD};; esac')
        do(place, steps.llama(place))
        assert place.stamps.read(llama.PROCESSOR_STAMP) == needed


class TestLlamaServer:
    def test_it_is_built_once_for_a_wheel(self, place: Place) -> None:
        step = llama_server(place)
        assert step.due
        assert step.fetches[0].compile_s > 0
        program(Path(step.inputs()) / "llama-server", "")
        answer_pip(place, f'case "$*" in *" wheel "*) {BUILD};; *" download "*) exit 1;; esac')
        do(place, llama_server(place))
        assert llama_server(place).is_done(place)
        (place.root / "script" / "llama_server" / "CMakeLists.txt").write_text("")
        assert llama_server(place).due

    def test_owners_do_not_build_it(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.delenv("CI", raising=False)
        for options, is_built in ([], False), (["--real-servers"], True):
            assert setup_program._test(place, [*options, "--plan"]) == 0
            assert ("llama-server" in capsys.readouterr().err) == is_built


class TestShippedLlama:
    """A portable build that the program's own wheel brought."""

    def ship(self, place: Place, version: str) -> Path:
        folder = place.root / llama.SHIPPED
        folder.mkdir(exist_ok=True)
        wheel = folder / f"llama_cpp_python-{version}-py3-none-linux_x86_64.whl"
        wheel.write_bytes(b"compiled")
        return wheel

    @pytest.fixture
    def version(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setattr(llama.platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(llama.sys, "platform", "linux")
        return llama.pinned_version(llama.lock_file(place.root).read_text())

    def test_nothing_is_compiled(self, place: Place, version: str) -> None:
        compiles = steps.llama(place)
        wheel = self.ship(place, version)
        step = steps.llama(place)
        assert compiles.prepare
        assert (step.title, step.prepare) == ("llama.cpp as shipped", None)
        assert not any(fetch.compile_s for fetch in step.fetches)
        assert step.inputs() != compiles.inputs()
        before = step.inputs()
        wheel.write_bytes(b"compiled anew")
        assert steps.llama(place).inputs() != before

    def test_it_is_installed_for_every_processor(self, place: Place, version: str) -> None:
        answer_pip(place, "exit 0")
        wheel = self.ship(place, version)
        do(place, steps.llama(place))
        assert str(wheel) in " ".join(called(place))
        assert place.stamps.read(llama.PROCESSOR_STAMP) == ""

    @pytest.mark.parametrize("other", ["version", "machine", "gpu"])
    def test_another_build_is_compiled(
        self, place: Place, version: str, monkeypatch: pytest.MonkeyPatch, other: str
    ) -> None:
        self.ship(place, "0.0.1" if other == "version" else version)
        if other == "machine":
            monkeypatch.setattr(llama.platform, "machine", lambda: "aarch64")
        assert steps.llama(place, CUDA if other == "gpu" else None).prepare
