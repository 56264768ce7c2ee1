"""What nvidia-smi says, and what the doctor makes of it before and after the stack is installed."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app import doctor, doctor_stack
from app.doctor_check import Check
from app.gpu import Gpu, Gpus, find_gpus, find_nvcc, nvcc_version, parse_gpus, run_command
from app.needs import Needs

# What the driver's program prints for app.gpu.QUERY on several machines.
RTX_4090 = "NVIDIA GeForce RTX 4090, 24564, 580.65.06, 8.9\n"
TWO = "NVIDIA H200, 143771, 580.95.05, 9.0\nNVIDIA H200, 143771, 580.95.05, 9.0\n"
OLD_DRIVER = "NVIDIA GeForce RTX 3060, 12288, 535.183.01, 8.6\n"
OLD_GPU = "Tesla V100-SXM2-16GB, 16384, 580.65.06, 7.0\n"
SHARED_MEMORY = "NVIDIA GB10, [N/A], 580.95.05, 12.1\n"
WARNED = "WARNING: infoROM is corrupted at gpu 0000:01:00.0\n" + RTX_4090
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
    "the latest NVIDIA driver is installed and running.\n\n"
)
MISMATCH = (
    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"
)
NO_FIELD = 'Field "compute_cap" is not a valid field to query.\n'
NVCC = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release 13.0, V13.0.88
Build cuda_13.0.r13.0/compiler.36424714_0
"""
NEEDS = Needs(
    stack="workstation",
    torch="cuda",
    llama="cuda",
    gpu_engines=("parakeet", "llama-cpp", "qwen3-tts"),
    gpu_memory_mb=15_000,
    memory_mb=6_000,
    temporary_mb=2_500,
    missing=(),
    weights_dir="/cache/weights",
)


def on_cpu(*engines: str) -> Needs:
    return Needs("workstation", "cpu", "cpu", engines, 15_000, 6_000, 0, (), "/cache/weights")


def machine(output: str, status: int = 0) -> Gpus:
    return find_gpus(lambda command: (status, output), lambda name: f"/usr/bin/{name}")


def only(checks: list[Check], name: str) -> Check:
    (check,) = [check for check in checks if check.name == name]
    return check


class TestNvidiaSmi:
    def test_one_gpu(self) -> None:
        (gpu,) = parse_gpus(RTX_4090)
        assert gpu == Gpu("NVIDIA GeForce RTX 4090", 25_757, "580.65.06", (8, 9))

    def test_the_first_of_two_is_the_one_that_engines_take(self) -> None:
        gpus = machine(TWO)
        assert len(gpus.found) == 2
        assert gpus.first == gpus.found[0]

    def test_shared_memory_is_not_told(self) -> None:
        (gpu,) = parse_gpus(SHARED_MEMORY)
        assert gpu.memory_mb == 0
        assert gpu.capability == (12, 1)

    def test_warnings_around_are_passed_over(self) -> None:
        assert parse_gpus(WARNED) == parse_gpus(RTX_4090)

    def test_a_comma_in_a_name(self) -> None:
        (gpu,) = parse_gpus("Some GPU, made up, 8192, 580.65.06, 8.6\n")
        assert gpu.name == "Some GPU, made up"

    @pytest.mark.parametrize("output", ["", "No devices were found\n", NO_DRIVER, NO_FIELD])
    def test_what_is_no_list_is_none(self, output: str) -> None:
        assert parse_gpus(output) == ()

    @pytest.mark.parametrize(
        ("status", "output", "problem"),
        [
            (9, NO_DRIVER, "couldn't communicate"),
            (18, MISMATCH, "version mismatch"),
            (2, NO_FIELD, "not a valid field"),
            (0, "No devices were found\n", "No devices"),
            (6, "", "ended with 6"),
        ],
    )
    def test_a_driver_that_does_not_work(self, status: int, output: str, problem: str) -> None:
        gpus = machine(output, status)
        assert gpus.found == ()
        assert problem in gpus.problem

    def test_no_driver_is_no_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("app.gpu.SMI_PLACES", ())
        assert find_gpus(run_command, lambda name: None) == Gpus()

    def test_a_program_that_hangs_or_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def hangs(command: list[str], **options: object) -> None:
            raise subprocess.TimeoutExpired(command, 30)

        assert run_command(["/no/such/program"])[0] == 127
        assert run_command([sys.executable, "-c", "print('yes')"]) == (0, "yes\n")
        monkeypatch.setattr(subprocess, "run", hangs)
        assert run_command(["nvidia-smi"]) == (124, "nvidia-smi did not answer within 30 s")

    def test_nvcc(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert nvcc_version("nvcc", lambda command: (0, NVCC)) == (13, 0, 88)
        assert nvcc_version("nvcc", lambda command: (127, "no such file")) == ()
        here = {"nvcc": "/usr/bin/nvcc", "/cuda/nvcc": "/cuda/nvcc"}
        assert find_nvcc({}, here.get) == "/usr/bin/nvcc"
        assert find_nvcc({"CUDACXX": "/cuda/nvcc"}, here.get) == "/cuda/nvcc"
        monkeypatch.setattr("app.gpu.NVCC_PLACES", ())
        assert find_nvcc({}, {}.get) is None


class TestGpu:
    def test_fit(self) -> None:
        checks = list(doctor_stack.check_gpu(NEEDS, machine(RTX_4090)))
        assert [check.state for check in checks] == ["ok", "ok"]
        assert "driver 580.65.06" in checks[0].detail
        assert "compute capability 8.9" in checks[0].detail

    @pytest.mark.parametrize(
        ("gpus", "detail", "fix"),
        [
            (machine(OLD_DRIVER), "needs driver 580", "newer driver"),
            (machine(OLD_GPU), "7.5 (Turing)", "CPU"),
            (machine(NO_DRIVER, 9), "couldn't communicate", "Restart"),
            (Gpus(), "qwen3-tts takes three times", "--torch cpu"),
        ],
    )
    def test_unfit(self, gpus: Gpus, detail: str, fix: str) -> None:
        check = only(list(doctor_stack.check_gpu(NEEDS, gpus)), "GPU")
        assert check.state == "fail"
        assert detail in check.detail
        assert fix in check.fix

    def test_an_old_driver_does_for_llama_alone(self) -> None:
        needs = Needs("", "", "cuda", ("llama-cpp",), 3000, 900, 0, (), "")
        (check, _) = doctor_stack.check_gpu(needs, machine(OLD_DRIVER))
        assert check.state == "ok"

    def test_engines_that_can_do_without_are_only_slow(self) -> None:
        (check,) = doctor_stack.check_gpu(on_cpu("parakeet"), Gpus())
        assert check.state == "warn"
        assert "parakeet" in check.detail

    @pytest.mark.parametrize(
        ("needed_mb", "states"), [(20_000, ["ok"]), (25_000, ["warn"]), (26_000, ["fail"])]
    )
    def test_memory(self, needed_mb: int, states: list[str]) -> None:
        (gpu,) = parse_gpus(RTX_4090)
        checks = list(doctor_stack.check_gpu_memory(needed_mb, gpu))
        assert [check.state for check in checks] == states
        assert all(check.fix for check in checks if check.state != "ok")

    def test_shared_memory_is_checked_as_the_machines(self) -> None:
        (gpu,) = parse_gpus(SHARED_MEMORY)
        assert list(doctor_stack.check_gpu_memory(99_000, gpu)) == []


class TestCompiler:
    GPU, BLACKWELL = parse_gpus(RTX_4090)[0], parse_gpus(SHARED_MEMORY)[0]

    def check(self, gpu: Gpu, nvcc: str | None, built: bool, found: tuple[int, ...]) -> Check:
        (check,) = doctor_stack.check_nvcc(gpu, nvcc, built, lambda path: found)
        return check

    def test_none(self) -> None:
        check = self.check(self.GPU, None, False, ())
        assert check.state == "fail"
        assert "cuda-toolkit-13-0" in check.fix
        assert "llm.gpu_layers=0" in check.fix

    def test_none_is_needed_once_it_is_built(self) -> None:
        assert self.check(self.GPU, None, True, ()).state == "ok"

    def test_blackwell_needs_a_newer_one(self) -> None:
        assert self.check(self.GPU, "/nvcc", False, (12, 4)).state == "ok"
        assert self.check(self.BLACKWELL, "/nvcc", False, (12, 4)).state == "fail"
        assert self.check(self.BLACKWELL, "/nvcc", False, (13, 0)).state == "ok"
        assert self.check(self.BLACKWELL, "/nvcc", False, ()).state == "ok"


class TestMachine:
    def test_the_base_needs_none_of_it(self) -> None:
        base = Needs("", "", "cpu", (), 0, 800, 0, (), "")
        assert doctor_stack.check_machine(base, machine(OLD_DRIVER)) == []

    def test_everything_is_looked_at(self) -> None:
        names = [check.name for check in doctor_stack.check_machine(NEEDS, machine(RTX_4090))]
        assert names[:3] == ["GPU", "GPU memory", "CUDA compiler"]
        assert "Python for torch" in names

    @pytest.mark.parametrize(
        ("version", "state"),
        [((3, 10), "fail"), ((3, 11), "ok"), ((3, 13), "ok"), ((3, 14), "fail")],
    )
    def test_python(self, version: tuple[int, int], state: str) -> None:
        check = doctor_stack.check_python(version)
        assert check.state == state
        assert ("python3.13 -m venv" in check.fix) == (state == "fail")

    @pytest.mark.parametrize(
        ("version", "state"), [("2.36", "ok"), ("2.34", "ok"), ("2.31", "fail"), ("2.4", "fail")]
    )
    def test_glibc(self, version: str, state: str) -> None:
        (check,) = doctor_stack.check_glibc("glibc", version, "linux")
        assert check.state == state

    def test_musl_and_mac(self) -> None:
        (check,) = doctor_stack.check_glibc("", "", "linux")
        assert check.state == "fail"
        assert list(doctor_stack.check_glibc("", "", "darwin")) == []


class TestInstalled:
    @pytest.mark.parametrize(
        ("torch", "cuda", "torchaudio", "needed", "state"),
        [
            ("2.13.0", "13.0", "2.11.0", "cuda", "ok"),
            ("2.13.0+cpu", "", "0+stub.of.reachy.voice", "cpu", "ok"),
            ("2.13.0+cpu", "", "2.11.0+cpu", "cpu", "ok"),
            ("2.13.0", "13.0", "2.11.0", "cpu", "ok"),
            ("2.13.0", "13.0", "0+stub.of.reachy.voice", "cuda", "fail"),
            ("2.13.0+cpu", "", "2.11.0", "cpu", "fail"),
            ("2.13.0+cpu", "", None, "cpu", "fail"),
            ("2.13.0+cu128", "12.8", "2.11.0", "cuda", "fail"),
            ("2.13.0+cpu", "", "0+stub.of.reachy.voice", "cuda", "fail"),
        ],
    )
    def test_torch_and_torchaudio(
        self, torch: str, cuda: str, torchaudio: str | None, needed: str, state: str
    ) -> None:
        needs = NEEDS if needed == "cuda" else on_cpu()
        (check,) = doctor_stack.check_torch(needs, cuda, torch, torchaudio, "script/serve")
        assert check.state == state
        assert (f"script/serve --torch {needed}" in check.fix) == (state == "fail")

    def test_a_torch_that_cannot_be_read_is_passed_over(self) -> None:
        assert list(doctor_stack.check_torch(NEEDS, None, "2.13.0", "2.11.0", "")) == []

    @pytest.mark.parametrize(
        ("official", "fast", "transformers", "told"),
        [
            ("0.1.1", None, "4.57.3", ""),
            (None, "0.5.4", "5.15.1", ""),
            (None, None, "5.23.0", ""),
            ("0.1.1", "0.5.4", "4.57.3", "exclude each other"),
            ("0.1.1", None, "5.15.1", "needs transformers 4.57.3"),
            (None, "0.5.4", "5.23.0", "needs transformers 5.15"),
        ],
    )
    def test_the_voices_transformers(
        self, official: str | None, fast: str | None, transformers: str, told: str
    ) -> None:
        checks = list(doctor_stack.check_voices(official, fast, transformers))
        assert bool(checks) == bool(told)
        assert all(check.state == "fail" and told in check.detail for check in checks)

    def test_other_versions_than_the_locked_ones(self, tmp_path: Path) -> None:
        (tmp_path / "requirements-workstation.lock").write_text(
            "a==1 \\\n    --hash=sha256:00\nb==1 ; python_full_version < '3.12' \\\nb==2\nc==3\n"
        )
        here = {"a": "1", "b": "2", "c": "4"}
        (check,) = doctor_stack.check_locked("workstation", tmp_path, here.get)
        assert check.state == "warn"
        assert check.detail == "not as locked: c 4 for 3"
        assert "requirements-workstation.lock" in check.fix
        assert list(doctor_stack.check_locked("workstation", tmp_path, {"a": "1"}.get)) == []
        assert list(doctor_stack.check_locked("workstation", tmp_path / "none")) == []

    def test_what_torch_says_of_itself(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(doctor_stack, "_directory_of", lambda name: tmp_path)
        assert doctor_stack.torch_cuda() is None
        (tmp_path / "version.py").write_text("__version__ = '2'\ncuda: Optional[str] = '13.0'\n")
        assert doctor_stack.torch_cuda() == "13.0"
        (tmp_path / "version.py").write_text("cuda: Optional[str] = None\nhip = '6'\n")
        assert doctor_stack.torch_cuda() == ""

    def test_llamas_libraries_tell_what_it_is_built_for(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "libggml-cpu.so").touch()
        monkeypatch.setattr(doctor_stack, "_directory_of", lambda name: tmp_path)
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.3.36")
        (check,) = doctor_stack.check_llama(NEEDS, "script/serve")
        assert check.state == "fail"
        assert "script/serve" in check.fix
        (tmp_path / "lib" / "libggml-cuda.so").touch()
        assert list(doctor_stack.check_llama(NEEDS, "script/serve")) == []


def test_the_doctor_works_before_anything_of_the_stack_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "find_gpus", lambda: machine(OLD_DRIVER))
    monkeypatch.setattr(doctor_stack, "find_nvcc", lambda: None)
    monkeypatch.setattr(doctor_stack, "llama_has_cuda", lambda: False)
    own = tmp_path / "mine.yaml"
    own.write_text("stt: {engine: parakeet}\ntts: {engine: qwen3-tts}\nllm: {gpu_layers: -1}\n")
    environ = {"XDG_CACHE_HOME": str(tmp_path), "REACHY_VOICE__SERVER__PORT": "0"}
    checks = doctor.examine(str(own), (), environ)
    assert "needs driver 580" in only(checks, "GPU").detail
    assert only(checks, "CUDA compiler").state == "fail"
    assert "parakeet-tdt-0.6b-v3 (absent)" in only(checks, "weights").detail
    assert only(checks, "GPU memory").state == "ok"


def test_room_is_asked_for_once_on_each_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(tmp_path).free
    wanted = {tmp_path / "weights": free // 2, tmp_path: free // 2}
    (check,) = doctor.check_room(wanted)
    assert check.state == "fail"
    assert "TMPDIR" in check.fix


def test_a_missing_package_of_the_stack_is_not_left_to_pip() -> None:
    from pipeline.engines import EngineOptions, EngineSpec, Kind

    def build(options: object, weights: object) -> None: ...

    spec = EngineSpec("x", Kind.STT, EngineOptions, build, extra="nemo", modules=("no_such_thing",))
    check = doctor.check_engine(spec, "script/serve --setup-only --config mine.yaml")
    assert check.fix == "Run: script/serve --setup-only --config mine.yaml"
