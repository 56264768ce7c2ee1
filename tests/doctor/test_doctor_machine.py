"""The doctor's checks of the GPU and CUDA, before and after the stack is installed."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from pathlib import Path

import pytest

from app.doctor import checks as doctor
from app.doctor import installed
from app.doctor import machine as doctor_machine
from app.doctor.engine_needs import EngineNeeds, needs_of
from app.doctor.machine import check_gpu_memory
from app.models.engine_memory import GpuLoad
from app.models.gpu import Gpu, Gpus, parse_gpus
from app.settings.load import load_settings
from app.setup.finding import Check
from tests.models.test_gpu import NO_DRIVER, OLD_DRIVER, OLD_GPU, RTX_4090, SHARED_MEMORY, machine

pytestmark = pytest.mark.engines

HERE = Gpu("NVIDIA GeForce RTX 4090", 25_757, "580.65.06", (8, 9))
NEEDS = EngineNeeds(
    stack="workstation",
    torch="cuda",
    llama="cuda",
    gpu_engines=("parakeet", "llama-cpp", "qwen3-tts"),
    kept_on_cpu=(),
    gpu_loads=(GpuLoad(0, HERE, 15_000),),
    memory_mb=60,
    temporary_mb=2_500,
    missing=(),
    weights_dir="/cache/weights",
)


def on_cpu(*engines: str) -> EngineNeeds:
    return EngineNeeds(stack="workstation", torch="cpu", gpu_engines=engines, memory_mb=60)


def only(checks: list[Check], name: str) -> Check:
    (check,) = [check for check in checks if check.name == name]
    return check


class TestGpu:
    def test_fit(self) -> None:
        checks = list(doctor_machine.check_gpu(NEEDS, machine(RTX_4090)))
        assert [check.state for check in checks] == ["ok", "ok"]
        assert "driver 580.65.06" in checks[0].detail
        assert "compute capability 8.9" in checks[0].detail

    @pytest.mark.parametrize(
        ("gpus", "detail", "fix"),
        [
            (machine(OLD_DRIVER), "needs driver 580", "newer driver"),
            (machine(OLD_GPU), "7.5 (Turing)", "CPU"),
            (machine(NO_DRIVER, 9), "couldn't communicate", "Restart"),
        ],
    )
    def test_unfit(self, gpus: Gpus, detail: str, fix: str) -> None:
        check = only(list(doctor_machine.check_gpu(NEEDS, gpus)), "GPU")
        assert check.state == "fail"
        assert detail in check.detail
        assert fix in check.fix

    def test_an_old_driver_suffices_for_llama_alone(self) -> None:
        (old,) = parse_gpus(OLD_DRIVER)
        loads = (GpuLoad(0, old, 3_000),)
        needs = EngineNeeds(llama="cuda", gpu_engines=("llama-cpp",), gpu_loads=loads, memory_mb=60)
        (check, _) = doctor_machine.check_gpu(needs, Gpus((old,)))
        assert check.state == "ok"

    def test_engines_that_need_no_gpu_are_only_slow(self) -> None:
        (check,) = doctor_machine.check_gpu(on_cpu("parakeet"), Gpus())
        assert check.state == "warn"
        assert "parakeet" in check.detail

    def test_an_engine_too_slow_on_the_cpu_fails(self) -> None:
        (check,) = doctor_machine.check_gpu(on_cpu("qwen3-tts"), Gpus(), "script/serve --config x")
        assert check.state == "fail"
        assert "slower than speech" in check.detail
        assert "script/serve --config x --torch cpu" in check.fix

    def test_choosing_the_cpu_for_a_slow_engine_warns(self) -> None:
        needs = EngineNeeds(
            stack="workstation", torch="cpu", kept_on_cpu=("qwen3-tts",), memory_mb=60
        )
        check = only(doctor_machine.check_machine(needs, machine(RTX_4090)), "GPU")
        assert check.state == "warn"
        assert "slower than speech" in check.detail

    def test_cuda_without_a_driver_is_refused(self) -> None:
        """CMAKE_CUDA_ARCHITECTURES=native needs a GPU; torch for CUDA is 2.7 GB."""
        needs = replace(NEEDS, gpu_engines=("parakeet", "llama-cpp"))
        check = only(doctor_machine.check_machine(needs, Gpus()), "GPU")
        assert check.state == "fail"
        assert "omit --torch cuda" in check.fix

    def test_a_mac_gets_no_advice_to_install_nvidias_driver(self, tmp_path: Path) -> None:
        environ = {"XDG_CACHE_HOME": str(tmp_path)}

        def on_a_mac(*overrides: str) -> list[Check]:
            settings = load_settings("apple", overrides, environ).settings
            found = needs_of(settings, Gpus(), "auto", environ, "darwin")
            return [c for c in doctor_machine.check_machine(found, Gpus()) if c.name == "GPU"]

        assert on_a_mac() == [], "llama.cpp takes Apple's by itself"
        (late,) = on_a_mac("stt.engine=parakeet", "stt.weights=parakeet-tdt-0.6b-v3")
        assert late.state == "warn"
        assert "Mac" in late.detail
        (slow,) = on_a_mac("tts={engine: qwen3-tts}")
        assert slow.state == "fail"
        assert "NVIDIA" not in late.detail + late.fix + slow.detail + slow.fix

    def test_each_gpu_in_use_is_checked(self) -> None:
        old, new = Gpu("V100", 17_000, "580", (7, 0)), Gpu("RTX 4090", 25_757, "580", (8, 9))
        loads = (GpuLoad(0, new, 8_000), GpuLoad(1, old, 7_000))
        gpus = Gpus((new, old))
        checks = doctor_machine.check_gpu(replace(NEEDS, gpu_loads=loads), gpus)
        assert [(check.name, check.state) for check in checks] == [
            ("GPU", "ok"),
            ("GPU", "fail"),
            ("GPU memory", "ok"),
            ("GPU memory", "ok"),
        ]
        only_new = replace(NEEDS, gpu_loads=loads[:1])
        assert {check.state for check in doctor_machine.check_gpu(only_new, gpus)} == {"ok"}

    def test_memory_of_several(self) -> None:
        card = Gpu("RTX 3060", 12_884, "580.65.06", (8, 6))
        (own, absent) = check_gpu_memory([GpuLoad(0, card, 8_000), GpuLoad(2, None, 7_000)], 2)
        assert own.state == "ok"
        assert absent.state == "fail"
        assert "cuda:2" in absent.detail
        both = replace(card, memory_mb=25_768)
        (spread,) = check_gpu_memory([GpuLoad(0, both, 15_396, spread=True)], 2)
        assert spread.state == "warn"
        assert "llama.cpp spreads" in spread.detail

    @pytest.mark.parametrize(
        ("needed_mb", "states"), [(20_000, ["ok"]), (25_000, ["warn"]), (26_000, ["fail"])]
    )
    def test_memory(self, needed_mb: int, states: list[str]) -> None:
        (gpu,) = parse_gpus(RTX_4090)
        checks = list(check_gpu_memory([GpuLoad(0, gpu, needed_mb)], 1))
        assert [check.state for check in checks] == states
        assert all(check.fix for check in checks if check.state != "ok")

    def test_shared_memory_is_checked_as_the_machines(self) -> None:
        (gpu,) = parse_gpus(SHARED_MEMORY)
        assert list(check_gpu_memory([GpuLoad(0, gpu, 99_000)], 1)) == []


class TestCompiler:
    GPU, BLACKWELL = parse_gpus(RTX_4090)[0], parse_gpus(SHARED_MEMORY)[0]
    OLD, BEHIND = parse_gpus(OLD_GPU)[0], parse_gpus(OLD_DRIVER)[0]

    @pytest.mark.parametrize(
        ("gpu", "nvcc", "found", "told"),
        [
            (GPU, "/nvcc", (12, 4), ""),
            (GPU, None, (), "no nvcc"),
            (GPU, "/nvcc", (), "does not report its version"),
            (BLACKWELL, "/nvcc", (12, 4), "needs 12.9 or newer"),
            (BLACKWELL, "/nvcc", (13, 0), ""),
            # Ubuntu 22.04's, for the RTX 4090 and the H100 (sm_89, sm_90: CUDA 11.8)
            (GPU, "/nvcc", (11, 5), "needs 11.8"),
            (replace(GPU, capability=(9, 0)), "/nvcc", (11, 5), "needs 11.8"),
            (replace(GPU, capability=(12, 1)), "/nvcc", (12, 8), "needs 12.9"),
            (replace(GPU, capability=(13, 9)), "/nvcc", (12, 9), "needs 13.0"),  # a future one
            (OLD, "/nvcc", (12, 8), ""),
            (OLD, "/nvcc", (13, 0), "CUDA_VISIBLE_DEVICES"),
            (BEHIND, "/nvcc", (13, 0), "driver 580"),
            (BEHIND, "/nvcc", (12, 4), ""),
        ],
    )
    def test_nvcc_must_support_the_gpu(
        self, gpu: Gpu, nvcc: str | None, found: tuple[int, ...], told: str
    ) -> None:
        (check,) = doctor_machine.check_nvcc([gpu], nvcc, False, lambda path: found)
        assert check.state == ("fail" if told else "ok")
        assert told in check.detail
        assert ("cuda-toolkit-13-0" in check.fix) == bool(told)

    def test_nvcc_is_not_needed_after_the_build(self) -> None:
        (check,) = doctor_machine.check_nvcc([self.GPU], None, True)
        assert check.state == "ok"


class TestMachine:
    def test_the_base_needs_no_stack(self) -> None:
        base = EngineNeeds(memory_mb=60)
        (check,) = doctor_machine.check_machine(base, machine(OLD_DRIVER))
        assert check.name == "memory"

    def test_everything_is_checked(self) -> None:
        names = [check.name for check in doctor_machine.check_machine(NEEDS, machine(RTX_4090))]
        assert names[:3] == ["GPU", "GPU memory", "CUDA compiler"]
        assert "Python for torch" in names

    def test_main_memory_is_checked(self) -> None:
        needs = replace(NEEDS, memory_mb=10**9)
        check = only(doctor_machine.check_machine(needs, machine(RTX_4090)), "memory")
        assert check.state == "fail"

    @pytest.mark.parametrize(
        ("version", "state"),
        [((3, 10), "fail"), ((3, 11), "ok"), ((3, 13), "ok"), ((3, 14), "fail")],
    )
    def test_python(self, version: tuple[int, int], state: str) -> None:
        check = doctor_machine.check_python(version)
        assert check.state == state
        assert ("python3.13 -m venv" in check.fix) == (state == "fail")

    @pytest.mark.parametrize(
        ("version", "state"), [("2.36", "ok"), ("2.34", "ok"), ("2.31", "fail"), ("2.4", "fail")]
    )
    def test_glibc(self, version: str, state: str) -> None:
        (check,) = doctor_machine.check_glibc("glibc", version, "linux")
        assert check.state == state

    def test_musl_and_mac(self) -> None:
        (check,) = doctor_machine.check_glibc("", "", "linux")
        assert check.state == "fail"
        assert list(doctor_machine.check_glibc("", "", "darwin")) == []


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
        (check,) = installed.check_torch(needs, cuda, torch, torchaudio, "script/serve")
        assert check.state == state
        assert (f"script/serve --torch {needed}" in check.fix) == (state == "fail")

    def test_an_unreadable_torch_is_ignored(self) -> None:
        assert list(installed.check_torch(NEEDS, None, "2.13.0", "2.11.0", "")) == []

    def test_other_versions_than_the_locked_ones(self, tmp_path: Path) -> None:
        (tmp_path / "requirements-workstation.lock").write_text(
            "a==1 \\\n    --hash=sha256:00\nb==1 ; python_full_version < '3.12' \\\nb==2\nc==3\n"
        )
        here = {"a": "1", "b": "2", "c": "4"}
        (check,) = installed.check_locked("workstation", tmp_path, here.get)
        assert check.state == "warn"
        assert check.detail == "not as locked: c 4 for 3"
        assert "requirements-workstation.lock" in check.fix
        assert list(installed.check_locked("workstation", tmp_path, {"a": "1"}.get)) == []
        assert list(installed.check_locked("workstation", tmp_path / "none")) == []

    def test_the_cuda_version_is_read_from_torchs_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(installed, "_directory_of", lambda name: tmp_path)
        assert installed.torch_cuda() is None
        (tmp_path / "version.py").write_text("__version__ = '2'\ncuda: Optional[str] = '13.0'\n")
        assert installed.torch_cuda() == "13.0"
        (tmp_path / "version.py").write_text("cuda: Optional[str] = None\nhip = '6'\n")
        assert installed.torch_cuda() == ""

    def test_llamas_libraries_show_its_build(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "libggml-cpu.so").touch()
        monkeypatch.setattr(installed, "_directory_of", lambda name: tmp_path)
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.3.36")
        (check,) = installed.check_llama(NEEDS, "script/serve")
        assert check.state == "fail"
        assert "script/serve" in check.fix
        (tmp_path / "lib" / "libggml-cuda.so").touch()
        assert list(installed.check_llama(NEEDS, "script/serve")) == []


def test_the_doctor_works_without_the_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "find_gpus", lambda: machine(OLD_DRIVER))
    monkeypatch.setattr(doctor_machine, "find_nvcc", lambda: None)
    monkeypatch.setattr(doctor_machine, "llama_has_cuda", lambda: False)
    own = tmp_path / "mine.yaml"
    own.write_text("stt: {engine: parakeet}\ntts: {engine: qwen3-tts}\nllm: {gpu_layers: -1}\n")
    environ = {"XDG_CACHE_HOME": str(tmp_path), "REACHY_VOICE__SERVER__PORT": "0"}
    checks = doctor.examine(str(own), (), environ)
    assert "needs driver 580" in only(checks, "GPU").detail
    assert only(checks, "CUDA compiler").state == "fail"
    assert "parakeet-tdt-0.6b-v3 (absent)" in only(checks, "weights").detail
    assert only(checks, "GPU memory").state == "ok"


def test_the_suggested_command_installs_the_chosen_engines() -> None:
    setup = installed.setup_command("my own.yaml", ["a=b c"])
    assert setup == "reachy-voice setup --config 'my own.yaml' --set 'a=b c'"
