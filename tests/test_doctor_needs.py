"""What the chosen engines need: the stack, how torch and llama.cpp are built, memory, weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.catalogue import Catalogue
from app.gpu import Gpu, Gpus
from app.needs import CONTEXT_MB, SERVER_MB, TORCH_WORKER_MB, Needs, answer, needs_of
from app.settings_load import load_settings
from pipeline.engines import EngineSpec, Kind, engine_spec

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
) -> Needs:
    settings = load_settings(None, overrides, environ).settings
    assert torch in ("auto", "cpu", "cuda")
    return needs_of(settings, gpus, torch, environ)  # type: ignore[arg-type]


def test_the_default_needs_the_base_alone(environ: dict[str, str]) -> None:
    found = needs(environ)
    assert (found.stack, found.torch, found.llama) == ("", "", "cpu")
    assert found.gpu_engines == ()
    assert found.gpu_memory_mb == found.temporary_mb == 0
    assert found.memory_mb == SERVER_MB + memory_mb(*SMALL, *EMBEDDED)
    assert "moonshine-tiny-en" in [weights.name for weights in found.missing]


def test_everything_on_a_gpu(environ: dict[str, str]) -> None:
    found = needs(environ, *ALL)
    assert (found.stack, found.torch, found.llama) == ("workstation", "cuda", "cuda")
    assert found.gpu_engines == ("parakeet", "llama-cpp", "qwen3-tts")
    engines = memory_mb("parakeet-tdt-0.6b-v3", "smollm2-135m-instruct", QWEN)
    assert found.gpu_memory_mb == engines + 3 * CONTEXT_MB
    assert found.temporary_mb == size_mb("parakeet-tdt-0.6b-v3")
    assert found.missing_bytes > 7e9
    # Two workers, and the largest weights on their way to the GPU.
    workers = 2 * TORCH_WORKER_MB + size_mb(QWEN)
    assert found.memory_mb == SERVER_MB + memory_mb(*SMALL) + workers


def test_a_machine_without_one(environ: dict[str, str]) -> None:
    found = needs(environ, *ALL, gpus=Gpus())
    assert (found.stack, found.torch, found.llama) == ("workstation", "cpu", "cpu")
    assert found.gpu_engines, "they want one all the same: a finding says so"


def test_a_driver_that_is_broken_still_means_cuda(environ: dict[str, str]) -> None:
    found = needs(environ, *ALL, gpus=Gpus(problem="no communication"))
    assert (found.torch, found.llama) == ("cuda", "cuda")


def test_the_owner_decides(environ: dict[str, str]) -> None:
    found = needs(environ, *ALL, torch="cpu")
    assert (found.torch, found.llama, found.gpu_engines) == ("cpu", "cpu", ())
    assert needs(environ, *ALL, gpus=Gpus(), torch="cuda").torch == "cuda"


def test_engines_that_are_kept_on_the_cpu(environ: dict[str, str]) -> None:
    found = needs(environ, "stt.engine=parakeet", "stt.device=cpu")
    assert (found.stack, found.torch, found.gpu_engines) == ("workstation", "cpu", ())


def test_cuda_graphs_are_another_stack(environ: dict[str, str]) -> None:
    found = needs(environ, "tts.engine=qwen3-tts", "tts.backend=fast")
    assert found.stack == "workstation-fast"


def test_files_of_ones_own_count_by_their_size(environ: dict[str, str], tmp_path: Path) -> None:
    model = tmp_path / "own.gguf"
    model.write_bytes(bytes(3_000_000))
    own = ("llm.weights=null", f"llm.model_file={model}", "llm.gpu_layers=-1")
    assert needs(environ, *own).gpu_memory_mb == 3 + CONTEXT_MB


def test_servers_elsewhere_need_nothing_here(environ: dict[str, str]) -> None:
    far = "tts={engine: openai-speech, url: 'http://127.0.0.1:9/v1', voices: [x]}"
    assert needs(environ, far).memory_mb == SERVER_MB + memory_mb(*SMALL, *EMBEDDED[:2])


def test_every_heavy_engine_names_an_extra_that_setup_knows() -> None:
    """Else setup would not install what it needs."""
    for kind, name in ((Kind.STT, "parakeet"), (Kind.TTS, "qwen3-tts")):
        spec = engine_spec(kind, name)
        assert isinstance(spec, EngineSpec)
        assert spec.extra in ("nemo", "qwen")


def test_setup_reads_the_answer() -> None:
    from setup_steps.needs import Needs as Read
    from setup_steps.needs import unfit

    found = answer(["--set", ALL[0], "--set", ALL[1], "--torch", "auto"], Gpus(problem="broken"))
    read = Read.read(json.loads(json.dumps(found)))
    assert read.lock == "requirements-workstation.lock"
    assert read.torch == "cuda"
    assert any(weights.name == "parakeet-tdt-0.6b-v3" for weights in read.missing)
    error = unfit(read.findings)
    assert error is not None
    assert "broken" in error.why
    assert unfit(Read.read(answer([], HERE)).findings) is None


def test_wrong_settings_are_told_with_their_exit_code() -> None:
    command = [sys.executable, "-m", "app.needs", "--set", "stt.engin=x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "stt.engin" in done.stderr
    assert done.stdout == ""
