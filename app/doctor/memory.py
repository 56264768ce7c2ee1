"""Do main memory and each GPU have room for the engines?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psutil

from app.models.engine_memory import GpuLoad
from app.models.gpu import GPU_SHARE
from app.setup.finding import Check

SMALLER = "Choose a profile for a smaller GPU, or smaller models: reachy-voice models list"


def check_memory(needed_mb: int, total_mb: int, available_mb: int) -> Check:
    """``available_mb``: memory that programs can still take without swapping."""
    detail = f"{available_mb:,} of {total_mb:,} MB available, about {needed_mb:,} MB needed"
    if total_mb < needed_mb:
        return Check("memory", "fail", detail, "Choose smaller models: reachy-voice models list")
    if available_mb < needed_mb:
        return Check("memory", "warn", detail, "Close other programs, or choose smaller models")
    return Check("memory", "ok", detail)


def memory_mb() -> tuple[int, int]:
    """Total and available memory in MB."""
    memory = psutil.virtual_memory()
    return memory.total // 10**6, memory.available // 10**6


def check_gpu_memory(loads: Sequence[GpuLoad], here: int) -> Iterator[Check]:
    """``here``: the number of GPUs. A GPU that shares main memory counts there instead
    (``EngineNeeds.memory_mb``)."""
    for load in loads:
        if load.gpu is None:
            fix = f"Name one from cuda:0 to cuda:{here - 1}, or use auto"
            detail = f"an engine's device is cuda:{load.number}, but only {here} GPUs are visible"
            yield Check("GPU memory", "fail", detail, fix)
        elif load.memory_mb:
            yield _gpu_memory(load, f"{load.gpu.name}: " if here > 1 else "")


def _gpu_memory(load: GpuLoad, whose: str) -> Check:
    detail = f"{whose}{load.memory_mb:,} MB, about {load.needed_mb:,} MB needed"
    if load.needed_mb > load.memory_mb:
        return Check("GPU memory", "fail", detail, SMALLER)
    if load.spread:
        detail += " in all; llama.cpp spreads what the first cannot hold"
        fix = "Move engines (stt.device: cuda:1, tts.device: cuda:1), or choose smaller models"
        return Check("GPU memory", "warn", detail, fix)
    if load.needed_mb > GPU_SHARE * load.memory_mb:
        fix = "Close other programs that use the GPU (see nvidia-smi), or choose smaller models"
        return Check("GPU memory", "warn", detail, fix)
    return Check("GPU memory", "ok", detail)
