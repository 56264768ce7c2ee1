"""What the chosen engines need besides the base: packages, torch, CUDA, memory, weights.

``script/setup.py`` asks for it in JSON, before anything large is fetched::

    python -m app.needs [--config PROFILE|FILE] [--set KEY=VALUE]... [--torch auto|cpu|cuda]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from app.catalogue import Catalogue, Entry
from app.gpu import Gpus, dotted, find_gpus, find_nvcc, nvcc_version
from app.settings import Settings
from app.settings_load import load_settings
from app.weights import WeightsCache
from pipeline.engines import EngineOptions, EngineSpec, Kind, engine_spec
from pipeline.errors import ReachyVoiceError

Stack = Literal["", "workstation", "workstation-fast"]
"""Which ``requirements-STACK.lock`` is installed besides the base; empty: none."""
Build = Literal["", "cpu", "cuda"]
TorchChoice = Literal["auto", "cpu", "cuda"]

STACK_EXTRAS = frozenset({"nemo", "qwen"})
"""Extras of engines that come with torch."""
GPU_FOR_REAL_TIME = frozenset({"qwen3-tts"})
"""Engines too slow for any CPU (0.6B in bf16, two server cores: 245 ms for each 80 ms frame)."""
SERVER_MB = 200
"""What the server takes besides its models: the interpreter, numpy and onnxruntime."""
TORCH_WORKER_MB = 800
"""Of the machine's memory, in a process that imports NeMo or qwen-tts (735, 590 MB measured)."""
CONTEXT_MB = 400
"""Of the GPU's memory, for each process that uses CUDA. An estimate, not measured here."""


CONTEXT_BYTES = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""Of a number in llama.cpp: the smaller ones are blocks of 32 with a scale of two bytes."""


@dataclass(frozen=True, slots=True)
class MissingWeights:
    """An entry of the catalogue that is still to be fetched."""

    name: str
    size: int
    """Bytes."""
    source: str
    licence: str


@dataclass(frozen=True, slots=True)
class Needs:
    """MB are 10^6 bytes. ``llama`` is how llama.cpp is to be compiled."""

    stack: Stack
    torch: Build
    llama: Build
    gpu_engines: tuple[str, ...]
    """Names of the engines that would run on a GPU."""
    gpu_memory_mb: int
    memory_mb: int
    temporary_mb: int
    """In TMPDIR, at each start: NeMo unpacks its archive there."""
    missing: tuple[MissingWeights, ...]
    weights_dir: str

    @property
    def missing_bytes(self) -> int:
        return sum(weights.size for weights in self.missing)


def needs_of(
    settings: Settings,
    gpus: Gpus,
    torch: TorchChoice = "auto",
    environ: Mapping[str, str] = os.environ,
) -> Needs:
    """Raises ``ConfigError`` and ``WeightsError`` where the catalogue does not know the weights."""
    cache = WeightsCache(settings.paths.cache(environ), Catalogue.load(settings.paths.catalogue))
    engines = [
        EngineNeeds(spec, settings.engine(kind), cache)
        for kind in Kind
        if isinstance(spec := engine_spec(kind, settings.engine(kind).engine), EngineSpec)
    ]
    on_gpu = [engine for engine in engines if torch != "cpu" and engine.wants_gpu]
    others = [engine for engine in engines if engine not in on_gpu]
    cuda = torch == "cuda" or bool(gpus.found or gpus.problem)
    stack = _stack(engines)
    in_torch = [engine for engine in on_gpu if engine.in_torch]
    return Needs(
        stack=stack,
        torch="" if not stack else "cuda" if torch == "cuda" or (cuda and in_torch) else "cpu",
        llama="cuda" if cuda and any(e.spec.name == "llama-cpp" for e in on_gpu) else "cpu",
        gpu_engines=tuple(engine.spec.name for engine in on_gpu),
        gpu_memory_mb=sum(engine.memory_mb + CONTEXT_MB for engine in on_gpu),
        # What goes to the GPU passes through the machine's memory, one engine's at its worst.
        memory_mb=SERVER_MB
        + sum(engine.memory_mb for engine in others)
        + TORCH_WORKER_MB * len(in_torch)
        + max((engine.weights_mb for engine in on_gpu), default=0),
        temporary_mb=sum(engine.unpacked_mb for engine in engines),
        missing=tuple(_missing(cache, settings.weights())),
        weights_dir=str(cache.directory / "weights"),
    )


def _stack(engines: Sequence[EngineNeeds]) -> Stack:
    ours = [engine for engine in engines if engine.in_torch]
    if any(getattr(engine.options, "backend", "") == "fast" for engine in ours):
        return "workstation-fast"
    return "workstation" if ours else ""


def _missing(cache: WeightsCache, names: Sequence[str]) -> list[MissingWeights]:
    entries = ((name, cache.catalogue[name]) for name in cache.missing(names))
    return [MissingWeights(name, e.size, e.source, e.licence) for name, e in entries]


class EngineNeeds:
    """One engine that runs here, and what it takes."""

    def __init__(self, spec: EngineSpec, options: EngineOptions, cache: WeightsCache) -> None:
        self.spec = spec
        self.options = options
        name = getattr(options, "weights", None)
        self.entry = cache.catalogue[name] if name else None

    @property
    def wants_gpu(self) -> bool:
        """Engines of others say it the same way, or are taken to run on the CPU."""
        device = str(getattr(self.options, "device", ""))
        return device == "auto" or device.startswith("cuda") or self._layers != 0

    @property
    def in_torch(self) -> bool:
        return self.spec.extra in STACK_EXTRAS

    @property
    def _layers(self) -> int:
        return int(getattr(self.options, "gpu_layers", 0))

    @property
    def weights_mb(self) -> int:
        """Size of the files."""
        if self.entry is not None:
            return self.entry.size // 10**6
        own = getattr(self.options, "model_file", None) or getattr(self.options, "model_dir", None)
        return _bytes_of(Path(own)) // 10**6 if own else 0

    @property
    def memory_mb(self) -> int:
        """By the catalogue; of files that it does not know, their size."""
        if self.entry is None:
            return self.weights_mb
        if not self.entry.context_values:
            return self.entry.memory_mb
        return self.entry.memory_mb + context_mb(self.options, self.entry, self._layers != 0)

    @property
    def unpacked_mb(self) -> int:
        return self.weights_mb if self.spec.extra == "nemo" else 0


def context_mb(options: Any, entry: Entry, on_gpu: bool) -> int:
    """What a language model keeps of its context, on top of ``entry.memory_mb``; 0: that has it.

    Half of the numbers are keys; the other half stays f16 without flash attention.
    """
    kept_as = options.kv_type or "q8_0"
    flash = on_gpu if options.flash_attention is None else options.flash_attention
    key, value = CONTEXT_BYTES[kept_as], CONTEXT_BYTES[kept_as if flash else "f16"]
    tokens: int = options.context_tokens
    return round(tokens * entry.context_values / 2 * (key + value) / 1e6)


def _bytes_of(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def answer(arguments: Sequence[str], gpus: Gpus | None = None) -> dict[str, Any]:
    """The needs, and the doctor's findings about this machine."""
    from app.doctor_stack import check_machine

    parser = argparse.ArgumentParser(prog="python -m app.needs")
    parser.add_argument("--config")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--torch", choices=("auto", "cpu", "cuda"), default="auto")
    given = parser.parse_args(arguments)
    gpus = gpus or find_gpus()
    settings = load_settings(given.config, given.set).settings
    needs = needs_of(settings, gpus, given.torch)
    findings = [asdict(check) for check in check_machine(needs, gpus)]
    return {**asdict(needs), "cuda": _cuda(needs, gpus), "findings": findings}


def _cuda(needs: Needs, gpus: Gpus) -> dict[str, str] | None:
    """What compiles llama.cpp for the GPU. No nvcc: a finding says so, and nothing is compiled."""
    nvcc = find_nvcc() if needs.llama == "cuda" else None
    if nvcc is None:
        return None
    capability = dotted(gpus.first.capability) if gpus.first else ""
    return {"nvcc": nvcc, "version": dotted(nvcc_version(nvcc)), "capability": capability}


def main() -> int:
    try:
        found = answer(sys.argv[1:])
    except ReachyVoiceError as error:
        fix = f"\n  do:  {error.fix}" if error.fix else ""
        sys.stderr.write(f"{error.what}\n  why: {error.why}{fix}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
