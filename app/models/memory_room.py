"""Whether memory can hold another engine in addition to the running ones."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Sequence

import psutil

from app.models.engine_memory import Demand, EngineMemory
from app.models.gpu import free_memory_mb
from app.models.weights import WeightsCache
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind, engine_spec

SPARE_MB = 500
"""Headroom for everything else."""


def has_room(
    cache: WeightsCache,
    kind: Kind,
    options: EngineOptions,
    free_gpu_mb: Callable[[], Sequence[int]] = free_memory_mb,
) -> bool:
    """Check main memory, and the GPU if the engine uses one whose free memory is known
    (``free_gpu_mb``: of each GPU, in CUDA's order). Blocks."""
    spec = engine_spec(kind, options.engine)
    if not isinstance(spec, EngineSpec):
        return True  # it runs elsewhere
    engine = EngineMemory(spec, options, cache.catalogue, "nvidia")
    free_mb = free_gpu_mb() if engine.wants_gpu else ()
    if not free_mb:
        # There is no GPU, or it shares the machine's memory.
        engine = EngineMemory(spec, options, cache.catalogue, None)
    needs = Demand(tuple(engine.parts()))
    if needs.memory_mb + engine.on_way_mb + SPARE_MB > _free_mb():
        return False
    if engine.number is not None:  # else llama.cpp uses all GPUs
        free_mb = free_mb[engine.number : engine.number + 1]
    return not needs.gpu_mb or needs.gpu_mb + SPARE_MB <= sum(free_mb)


def give_back() -> None:
    """Return freed memory to the system: glibc kept 190 MB after a small language model had been
    replaced six times."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _free_mb() -> int:
    return int(psutil.virtual_memory().available) // 1_000_000
