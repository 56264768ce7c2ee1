"""What the chosen engines need beyond the base: packages, torch, CUDA, memory, weights."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.models.engine_memory import EngineMemory, GpuKind, GpuLoad, demand
from app.models.gpu import Gpus
from app.models.pull import remote_file
from app.models.weights import WeightsCache, open_cache
from app.settings.model import Settings
from app.setup.needs import MissingWeights, Needs
from pipeline.engines.llm.llama_options import LlamaCppOptions
from pipeline.engines.registry import EngineSpec, engine_spec

Build = Literal["", "cpu", "cuda"]
TorchChoice = Literal["auto", "cpu", "cuda"]

WEBRTC = "webrtc"
OWN_LOCKS = frozenset({"languages", "mcp", "wake", WEBRTC})
"""Extras with a lock file of their own, ``requirements-EXTRA.lock``, on top of the base or a
stack."""
GPU_FOR_REAL_TIME = frozenset({"qwen3-tts"})
"""Engines too slow for any CPU (0.6B in bf16, two server cores: 245 ms for each 80 ms frame)."""


@dataclass(frozen=True, kw_only=True)
class EngineNeeds(Needs):
    """The needs, and more that only the doctor looks at."""

    gpu_engines: tuple[str, ...] = ()
    """Names of the engines that want an NVIDIA GPU, or that find no usable GPU."""
    kept_on_cpu: tuple[str, ...] = ()
    """Names of the torch engines that the user put on the CPU."""
    gpu_loads: tuple[GpuLoad, ...] = ()
    memory_mb: int
    """Main memory, including what a GPU takes that shares it."""
    gpu: GpuKind | None = None
    """The kind of GPU that the engines will find."""
    without_gpu: tuple[str, ...] = ()
    """Settings that name a missing device, so that the engine will not start."""

    @property
    def missing_bytes(self) -> int:
        return sum(weights.size for weights in self.missing)


def needs_of(
    settings: Settings,
    gpus: Gpus,
    torch: TorchChoice = "auto",
    environ: Mapping[str, str] = os.environ,
    system: str = "",
) -> EngineNeeds:
    """``system``: ``sys.platform``. Raises ``ConfigError``, and ``WeightsError`` if the weights are
    not in the catalogue."""
    cache = open_cache(settings, environ)
    catalogue = cache.catalogue
    gpu = gpu_here(gpus, torch, system or sys.platform)
    engines = [
        EngineMemory(spec, options, catalogue, gpu)
        for kind, options in settings.engines()
        if isinstance(spec := engine_spec(kind, options.engine), EngineSpec)
    ]
    takes = demand(settings, catalogue, gpu)
    local = [each for _, each in settings.engines() if isinstance(each, LlamaCppOptions)]
    stack = "workstation" if any(engine.in_torch for engine in engines) else ""
    wanting = [e for e in engines if e.wants_gpu and (torch != "cpu" or e.on_gpu)]
    on_cpu = [e for e in engines if e.in_torch and e not in wanting]
    extras = {engine.spec.extra for engine in engines} | set(_other_extras(settings))
    on_gpu = any(e.spec.name == "llama-cpp" for e in wanting)
    cuda, server = gpu == "nvidia", settings.server
    return EngineNeeds(
        stack=stack,
        torch="" if not stack else _torch(torch, cuda, engines),
        llama="" if not local else "cuda" if cuda and on_gpu else "cpu",
        pictures=any(each.mmproj for each in local),
        gpu_engines=tuple(e.spec.name for e in wanting if gpu != "apple" or not e.on_gpu),
        kept_on_cpu=tuple(e.spec.name for e in on_cpu),
        gpu_loads=takes.loads(gpus.found) if cuda else (),
        memory_mb=takes.main_mb(gpus.found, gpu),
        temporary_mb=sum(e.weights_mb for e in engines if e.spec.extra == "nemo"),
        missing=tuple(_missing(cache, settings.weights(), environ)),
        weights_dir=str(cache.directory / "weights"),
        gpu=gpu,
        without_gpu=() if cuda else tuple(e.device_setting for e in engines if e.only_cuda),
        extras=tuple(sorted(OWN_LOCKS & extras)),
        console=server.console_url(server.port) if server.console else "",
    )


def _other_extras(settings: Settings) -> Iterator[str]:
    if settings.server.webrtc:
        yield WEBRTC
    if settings.tools.used:
        yield "mcp"
    if (settings.wake.mode, settings.wake.engine) == ("word", "micro-wakeword"):
        yield "wake"


def gpu_here(gpus: Gpus, torch: TorchChoice, system: str) -> GpuKind | None:
    """The kind of GPU that the engines will find. A broken driver still counts."""
    if system == "darwin":
        return "apple"
    if torch == "cpu":
        return None
    return "nvidia" if torch == "cuda" or gpus.found or gpus.problem else None


def _torch(choice: TorchChoice, cuda: bool, engines: Sequence[EngineMemory]) -> Build:
    if choice == "cuda" or (cuda and any(e.in_torch and e.on_gpu for e in engines)):
        return "cuda"
    return "cpu"


def _missing(
    cache: WeightsCache, names: Sequence[str], environ: Mapping[str, str]
) -> Iterator[MissingWeights]:
    for name in cache.missing(names):
        entry = cache.catalogue[name]
        remote = entry.hub or entry.web
        url = remote_file(name, entry, entry.files[0], environ).url if remote else ""
        yield MissingWeights(name, entry.size, entry.source, entry.licence, url)
