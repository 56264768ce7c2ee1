"""Needs of the chosen engines: the stack, builds of torch and llama.cpp, memory, weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.doctor import for_setup
from app.doctor import machine as doctor_machine
from app.doctor.engine_needs import EngineNeeds, needs_of
from app.doctor.for_setup import answer
from app.doctor.machine import check_machine
from app.models.catalogue import Catalogue
from app.models.engine_memory import (
    BYTES_FOR_VALUE,
    CONTEXT_MB,
    CUDA_WORKER_MB,
    MOST_VALUES,
    SERVER_MB,
    demand,
)
from app.models.gpu import Gpu, Gpus
from app.settings.load import load_settings
from app.setup import steps
from app.setup.finding import Check
from app.setup.needs import Needs, unfit
from app.setup.stack import locked_versions
from pipeline.engines.registry import Kind, engine_spec
from tests.support.checkout import CUDA, called, do, place_in
from tests.support.places import ROOT

pytestmark = pytest.mark.machine

HERE = Gpus((Gpu("A GPU", 24_000, "580.65.06", (8, 9)),))
SMALL = ("silero-vad", "smart-turn-v3.2")
EMBEDDED = ("moonshine-tiny-en", "smollm2-135m-instruct", "piper-joe")
QWEN = "qwen3-tts-1.7b-customvoice"
ALL = ("stt.engine=parakeet", "tts.engine=qwen3-tts", "llm.gpu_layers=-1")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path)}


def memory_mb(*names: str) -> int:
    return sum(Catalogue.load()[name].memory_mb for name in names)


def size_mb(name: str) -> int:
    return Catalogue.load()[name].size // 10**6


def needs(
    environ: dict[str, str], *overrides: str, gpus: Gpus = HERE, torch: str = "auto"
) -> EngineNeeds:
    settings = load_settings(None, overrides, environ).settings
    assert torch in ("auto", "cpu", "cuda")
    return needs_of(settings, gpus, torch, environ)  # type: ignore[arg-type]


def gpu_mb(found: EngineNeeds) -> int:
    (load,) = found.gpu_loads
    return load.needed_mb


def test_the_default_needs_the_base_alone(environ: dict[str, str]) -> None:
    found = needs(environ)
    assert (found.stack, found.torch, found.llama) == ("", "", "cpu")
    assert found.gpu_engines == ()
    assert found.gpu_loads == ()
    assert found.temporary_mb == 0
    assert found.memory_mb == SERVER_MB + memory_mb(*SMALL, *EMBEDDED)
    assert "moonshine-tiny-en" in [weights.name for weights in found.missing]


def test_everything_on_a_gpu(environ: dict[str, str]) -> None:
    found = needs(environ, *ALL)
    assert (found.stack, found.torch, found.llama) == ("workstation", "cuda", "cuda")
    assert found.gpu_engines == ("parakeet", "llama-cpp", "qwen3-tts")
    engines = memory_mb("smollm2-135m-instruct", QWEN)
    engines += Catalogue.load()["parakeet-tdt-0.6b-v3"].gpu_memory_mb
    assert gpu_mb(found) == engines + 3 * CONTEXT_MB
    assert found.temporary_mb == size_mb("parakeet-tdt-0.6b-v3")
    assert found.missing_bytes > 7e9
    # Two workers, and torch's largest weights on their way to the GPU.
    workers = 2 * CUDA_WORKER_MB + size_mb(QWEN)
    assert found.memory_mb == SERVER_MB + memory_mb(*SMALL) + workers


def test_without_a_gpu_the_cpu_builds_are_chosen(environ: dict[str, str]) -> None:
    found = needs(environ, *ALL, gpus=Gpus())
    assert (found.stack, found.torch, found.llama) == ("workstation", "cpu", "cpu")
    assert found.gpu_engines, "they want one all the same: a finding says so"


def test_a_driver_that_is_broken_still_means_cuda(environ: dict[str, str]) -> None:
    found = needs(environ, *ALL, gpus=Gpus(problem="no communication"))
    assert (found.torch, found.llama) == ("cuda", "cuda")


def test_an_explicit_torch_wins(environ: dict[str, str]) -> None:
    found = needs(environ, *ALL, torch="cpu")
    assert (found.torch, found.llama, found.gpu_engines) == ("cpu", "cpu", ())
    assert needs(environ, *ALL, gpus=Gpus(), torch="cuda").torch == "cuda"


def test_engines_that_are_kept_on_the_cpu(environ: dict[str, str]) -> None:
    found = needs(environ, "stt.engine=parakeet", "stt.device=cpu")
    assert (found.stack, found.torch, found.gpu_engines) == ("workstation", "cpu", ())


def test_custom_files_count_by_their_size(environ: dict[str, str], tmp_path: Path) -> None:
    model = tmp_path / "own.gguf"
    model.write_bytes(bytes(3_000_000))
    own = ("llm.weights=null", f"llm.model_file={model}", "llm.gpu_layers=-1")
    assert gpu_mb(needs(environ, *own)) == pytest.approx(3 + CONTEXT_MB, abs=1)


def test_a_custom_gguf_has_companions_and_a_context(
    environ: dict[str, str], tmp_path: Path
) -> None:
    for name in ("own", "eyes"):
        with (tmp_path / f"{name}.gguf").open("wb") as file:
            file.truncate(2_000_000_000)
    own = [
        "llm.weights=null",
        f"llm.model_file={tmp_path}/own.gguf",
        f"llm.mmproj={tmp_path}/eyes.gguf",
        "llm.gpu_layers=-1",
        "llm.context_tokens=65536",
    ]
    context = round(MOST_VALUES * 65536 * 34 / 32 / 1e6)
    assert gpu_mb(needs(environ, *own)) == 4_000 + context + CONTEXT_MB
    # A custom file wins over catalogue weights: it is what is loaded.
    assert gpu_mb(needs(environ, *own[1:])) == 4_000 + context + CONTEXT_MB


@pytest.mark.parametrize("name", ["qwen3-1.7b", "qwen3-4b-instruct-2507"])
def test_the_guess_of_a_context_is_of_the_right_size(name: str) -> None:
    entry = Catalogue.load()[name]
    guess = min(MOST_VALUES, entry.size // BYTES_FOR_VALUE)
    assert 0.5 < guess / entry.context_values < 2


def test_layers_without_a_gpu_are_in_main_memory(environ: dict[str, str]) -> None:
    settings = load_settings("reachy", environ=environ).settings
    found = needs_of(settings, Gpus(), "auto", environ, "linux")
    assert found.gpu_loads == ()
    assert found.memory_mb > 15_000, "65,536 tokens of context and all weights"


def test_memory_that_a_gpu_shares_is_counted_as_the_machines(environ: dict[str, str]) -> None:
    orin = Gpus((Gpu("Orin", 0, "580", (8, 7)),))
    settings = load_settings("reachy", environ=environ).settings
    found = needs_of(settings, orin, "auto", environ, "linux")
    assert found.memory_mb == demand(settings, Catalogue.load()).memory_mb + gpu_mb(found)
    on_mac = load_settings("apple", environ=environ).settings
    assert needs_of(on_mac, Gpus(), "auto", environ, "darwin").memory_mb > 4_800


def test_each_gpu_is_charged_with_its_engines(environ: dict[str, str]) -> None:
    card = Gpu("RTX 3060", 12_884, "580.65.06", (8, 6))
    split = ["stt.device=cuda:1", "tts.device=cuda:1"]
    settings = load_settings("reachy", split, environ=environ).settings
    found = needs_of(settings, Gpus((card, card)), "auto", environ, "linux")
    assert [load.needed_mb for load in found.gpu_loads] == [8_096, 5_600]
    alone = [*split, "llm.split_mode=none", "llm.main_gpu=1"]
    settings = load_settings("reachy", alone, environ=environ).settings
    (load,) = needs_of(settings, Gpus((card, card)), "auto", environ, "linux").gpu_loads
    assert (load.number, load.needed_mb, load.spread) == (1, 13_696, False)


def test_a_model_too_large_for_one_gpu_is_spread_by_llama_cpp(environ: dict[str, str]) -> None:
    card = Gpu("RTX 3060", 12_884, "580.65.06", (8, 6))
    settings = load_settings("reachy", environ=environ).settings
    both, first = needs_of(settings, Gpus((card, card)), "auto", environ, "linux").gpu_loads
    assert (both.needed_mb, both.memory_mb, both.spread) == (13_696, 2 * 12_884, True)
    assert (first.number, first.needed_mb) == (0, 5_600)


def test_an_engine_that_needs_a_gpu_is_reported(environ: dict[str, str]) -> None:
    def device(*overrides: str, gpus: Gpus = HERE) -> list[Check]:
        settings = load_settings("reachy", overrides, environ).settings
        found = needs_of(settings, gpus, "cpu", environ, "linux")
        return [c for c in check_machine(found, gpus) if c.name == "device"]

    (check,) = device()
    assert check.state == "fail"
    assert "--set stt.device=auto --set tts.device=auto" in check.fix
    assert device("stt.device=auto", "tts.device=auto") == []


def test_remote_servers_need_nothing_here(environ: dict[str, str]) -> None:
    far = "tts={engine: openai-speech, url: 'http://127.0.0.1:9/v1', voices: [x]}"
    assert needs(environ, far).memory_mb == SERVER_MB + memory_mb(*SMALL, *EMBEDDED[:2])


def test_whisper_and_mcp_have_separate_packages(environ: dict[str, str]) -> None:
    def extras(config: str, *overrides: str) -> tuple[str, ...]:
        settings = load_settings(config, overrides, environ).settings
        return needs_of(settings, HERE, "auto", environ, "linux").extras

    assert extras("languages") == extras("reachy", "stt.engine=whisper") == ("languages",)
    assert extras("default") == ()
    assert extras("default", "tools.client_urls=[http://x/mcp]") == ("mcp",)
    lock = ROOT / "requirements-languages.lock"
    modules = engine_spec(Kind.STT, "whisper").modules
    assert set(modules) <= set(locked_versions(lock))


def test_setup_reads_the_answer() -> None:
    found = answer(["--set", ALL[0], "--set", ALL[1], "--torch", "auto"], Gpus(problem="broken"))
    read = Needs.read(json.loads(json.dumps(found)))
    assert Needs.read(answer(["--config", "languages"], HERE)).extras == ("languages",)
    assert read.torch == "cuda"
    assert any(weights.name == "parakeet-tdt-0.6b-v3" for weights in read.missing)
    error = unfit(read)
    assert error is not None
    assert "broken" in error.why
    assert unfit(Needs.read(answer([], HERE))) is None


@pytest.mark.parametrize("nvcc", [None, "/bin/false"], ids=["gone", "broken"])
def test_a_cuda_llama_is_kept_without_an_nvcc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nvcc: str | None
) -> None:
    place = place_in(tmp_path)
    monkeypatch.setattr(doctor_machine, "llama_has_cuda", lambda: True)
    monkeypatch.setattr(for_setup, "llama_has_cuda", lambda: True)
    monkeypatch.setattr(doctor_machine, "find_nvcc", lambda: nvcc)
    monkeypatch.setattr(for_setup, "find_nvcc", lambda: nvcc)
    found = answer(["--set", "llm.gpu_layers=-1"], HERE)
    states = {finding["name"]: finding["state"] for finding in found["findings"]}
    assert states["CUDA compiler"] == "ok"
    place.stamps.write("llama", steps.llama(place, CUDA).inputs())
    next_start = steps.llama(place, Needs.read(found).cuda)
    assert next_start.is_done(place), "it will be built for the CPU and installed over it"
    place.stamps.remove("llama")
    do(place, steps.llama(place, Needs.read(found).cuda))
    (call,) = called(place)
    assert "llama_supports_gpu_offload" in call, "it is only looked at"


def test_wrong_settings_are_reported_with_their_exit_code() -> None:
    command = [sys.executable, "-m", "app.doctor.for_setup", "--set", "stt.engin=x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "stt.engin" in done.stderr
    assert done.stdout == ""
