"""Whether memory holds one more engine beside those that run."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Sequence
from typing import Protocol

import psutil

from app.models.engine_memory import Demand, EngineMemory
from app.models.gpu import free_memory_mb
from app.models.weights import WeightsCache
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind, engine_spec

SPARE_MB = 500
"""Left for everything else."""


class HasRoom(Protocol):
    """Whether memory allows an engine beside those that run; may block."""

    def __call__(self, kind: Kind, options: EngineOptions) -> bool: ...


def has_room(
    cache: WeightsCache, free_gpu_mb: Callable[[], Sequence[int]] = free_memory_mb
) -> HasRoom:
    """On the GPU where the engine goes there and it tells what is free (``free_gpu_mb``: of each,
    in CUDA's order), and in main memory."""

    def asked(kind: Kind, options: EngineOptions) -> bool:
        spec = engine_spec(kind, options.engine)
        if not isinstance(spec, EngineSpec):
            return True  # it runs elsewhere
        engine = EngineMemory(spec, options, cache.catalogue, "nvidia")
        free_mb = free_gpu_mb() if engine.wants_gpu else ()
        if not free_mb:
            # None, or it shares the machine's memory.
            engine = EngineMemory(spec, options, cache.catalogue, None)
        found = Demand(tuple(engine.parts()))
        if found.memory_mb + engine.on_way_mb + SPARE_MB > _free_mb():
            return False
        return not found.gpu_mb or found.gpu_mb + SPARE_MB <= _free_on(engine.number, free_mb)

    return asked


def _free_on(number: int | None, free_mb: Sequence[int]) -> int:
    """``None``: llama.cpp spreads itself over all."""
    if number is None:
        return sum(free_mb)
    return free_mb[number] if number < len(free_mb) else 0


def give_back() -> None:
    """Let the system have what an engine has freed: glibc keeps it, 190 MB after six exchanges of a
    small language model."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _free_mb() -> int:
    return int(psutil.virtual_memory().available) // 1_000_000
