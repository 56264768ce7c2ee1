"""Whether memory holds one more engine beside those that run."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Protocol

import psutil

from app.gpu import free_memory_mb
from app.needs import CONTEXT_MB, TORCH_WORKER_MB, EngineNeeds
from app.weights import WeightsCache
from pipeline.engines import EngineOptions, EngineSpec, Kind, engine_spec

SPARE_MB = 500
"""Left for everything else."""


class HasRoom(Protocol):
    """Whether memory allows an engine beside those that run; may block."""

    def __call__(self, kind: Kind, options: EngineOptions) -> bool: ...


def has_room(
    cache: WeightsCache, free_gpu_mb: Callable[[], int | None] = free_memory_mb
) -> HasRoom:
    """On the GPU where the engine goes there and it tells what is free, else in main memory."""

    def asked(kind: Kind, options: EngineOptions) -> bool:
        spec = engine_spec(kind, options.engine)
        if not isinstance(spec, EngineSpec):
            return True  # it runs elsewhere
        needs = EngineNeeds(spec, options, cache)
        free_mb = free_gpu_mb() if needs.wants_gpu else None
        if free_mb is None:
            own_mb = TORCH_WORKER_MB if needs.in_torch else 0
            return needs.memory_mb + own_mb + SPARE_MB <= _free_mb()
        return needs.memory_mb + CONTEXT_MB + SPARE_MB <= free_mb

    return asked


def give_back() -> None:
    """Let the system have what an engine has freed: glibc keeps it, 190 MB after six exchanges of a
    small language model."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _free_mb() -> int:
    return int(psutil.virtual_memory().available) // 1_000_000
