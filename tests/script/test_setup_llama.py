"""script/setup.py builds llama.cpp for a GPU: its flags, its key in the cache, how it is tried."""

from __future__ import annotations

from pathlib import Path

from setup_steps import computer, llama, steps
from setup_steps.needs import Cuda
from setup_steps.place import Place

from tests.script.test_setup_stack import CUDA, called, do
from tests.script.test_setup_stack import place as place


class TestLlamaForCuda:
    def test_the_wheel_is_another_for_each_compiler_and_gpu(self, place: Place) -> None:
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

    def test_its_compilers_take_more_memory(self) -> None:
        meminfo = "MemAvailable:   8000000 kB\n"
        assert computer.compile_jobs(16, meminfo) == 8
        assert computer.compile_jobs(16, meminfo, 2) == 4

    def test_the_plan_says_how_long_it_compiles(self, place: Place) -> None:
        (for_cpu,), (for_gpu,) = (steps.llama(place, cuda).fetches for cuda in (None, CUDA))
        assert for_gpu.compile_s > 3 * for_cpu.compile_s > 0
        assert "GPU" in for_gpu.what

    def test_it_must_load_with_its_gpu_part(self, place: Place) -> None:
        wheel = llama.LlamaWheel(place, "cp311", CUDA)
        wheel.home.mkdir(parents=True)
        built = wheel.home / "llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl"
        built.write_bytes(b"wheel")
        step = steps.llama(place, CUDA)
        assert step.fetches == (), "it is in the cache"
        do(place, step)
        assert "llama_supports_gpu_offload" in called(place)[-1]
