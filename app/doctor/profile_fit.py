"""What each profile takes, and which of them a machine can run.

Pure but for ``this_machine``, which looks at the machine, and ``wanted``, which reads the profiles.
Memory is in MB of 1,000,000 bytes.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from app.models.catalogue import Catalogue
from app.models.engine_memory import Demand, GpuKind, demand
from app.models.gpu import (
    GPU_SHARE,
    LEAST_CAPABILITY,
    LEAST_DRIVER,
    Gpu,
    dotted,
    find_gpus,
    version,
)
from app.settings.load import load_settings

SYSTEM_MB = 1500
"""Of main memory, for everything else: an estimate for a desktop with Linux."""
MACOS_MB = 4000
"""The same for macOS, whose memory is the GPU's, too."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What is there; GPUs in CUDA's order. ``system`` and ``processor`` as ``sys.platform`` and
    ``platform.machine`` name them."""

    memory_mb: int
    cores: int
    gpus: tuple[Gpu, ...] = ()
    system: str = "linux"
    processor: str = "x86_64"

    @property
    def apple_silicon(self) -> bool:
        return self.system == "darwin" and self.processor == "arm64"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A profile and what it needs; ``gpu``: which kind its models are for."""

    name: str
    needs: Demand
    gpu: GpuKind | None = None
    cores: int = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a profile fits; ``why`` says what is missing, in words that follow its name."""

    name: str
    why: str = ""

    @property
    def fits(self) -> bool:
        return not self.why


# --- which fits --------------------------------------------------------------------------------

BEST_FIRST: tuple[tuple[str, GpuKind | None, int], ...] = (
    ("reachy", "nvidia", 4),
    ("reachy-8gb", "nvidia", 4),
    ("apple", "apple", 4),
    ("cpu-plus", None, 4),
    ("cpu", None, 1),
)
"""Profile, the GPU that it is for, and the cores that keep it in real time."""


def judge(machine: Machine, profiles: Sequence[Wanted]) -> list[Verdict]:
    """A verdict on each profile."""
    return [Verdict(wanted.name, _missing(machine, wanted)) for wanted in profiles]


def advice(verdicts: Sequence[Verdict]) -> str:
    """One line: the best that fits, and why those before it do not."""
    best = next((verdict.name for verdict in verdicts if verdict.fits), None)
    before = [v for v in verdicts if not v.fits] if best is None else _before(verdicts, best)
    # Who has no Mac is not helped by hearing of one.
    reasons = [f"{v.name} {v.why}" for v in before if v.why != _NO_APPLE]
    found = f"profile {best}" if best else "no profile fits; see `extends: remote`"
    return ". ".join((f"This machine: {found}", *reasons))


def _before(verdicts: Sequence[Verdict], best: str) -> list[Verdict]:
    names = [verdict.name for verdict in verdicts]
    return list(verdicts[: names.index(best)])


_NO_APPLE = "needs a Mac with Apple silicon"


def _missing(machine: Machine, wanted: Wanted) -> str:
    if wanted.gpu == "apple" and not machine.apple_silicon:
        return _NO_APPLE
    if wanted.gpu == "nvidia" and (why := _missing_gpu(machine, wanted.needs)):
        return why
    rest_mb = MACOS_MB if wanted.gpu == "apple" else SYSTEM_MB
    least_mb = wanted.needs.main_mb(machine.gpus, wanted.gpu) + rest_mb
    if machine.memory_mb < least_mb:
        return f"needs {_gb(least_mb)} of memory, {_gb(machine.memory_mb)} are here"
    if machine.cores < wanted.cores:
        return f"needs {wanted.cores} cores, {machine.cores} are here"
    return ""


def _missing_gpu(machine: Machine, needs: Demand) -> str:
    wanted = f"needs a GPU of NVIDIA with {_gib(needs.gpu_mb / GPU_SHARE)}"
    if machine.system != "linux":
        return f"{wanted}, on Linux"
    if not machine.gpus:
        return wanted
    for load in needs.loads(machine.gpus):
        if load.gpu is None or load.spread or load.needed_mb > GPU_SHARE * load.memory_mb > 0:
            # Memory of several is not added up: llama.cpp may spread itself, the others do not.
            first = machine.gpus[0]
            return f"{wanted}, {first.name} has {_gib(first.memory_mb)}"
    first = machine.gpus[0]
    if version(first.driver) < LEAST_DRIVER:
        return f"needs a driver from {dotted(LEAST_DRIVER)} on, {first.name} has {first.driver}"
    if first.capability and first.capability < LEAST_CAPABILITY:
        least, has = dotted(LEAST_CAPABILITY), dotted(first.capability)
        return f"needs compute capability {least} (Turing), {first.name} has {has}"
    return ""


def _gb(megabytes: float) -> str:
    return f"{megabytes / 1000:.1f} GB"


def _gib(megabytes: float) -> str:
    """As GPUs are sold: a card of 16 GB has 16 GiB."""
    return f"{megabytes * 1e6 / 2**30:.1f} GiB"


# --- what a profile needs ----------------------------------------------------------------------


def wanted(catalogue: Catalogue) -> list[Wanted]:
    """The profiles of ``BEST_FIRST``, as their files have them. Raises ``ConfigError``."""
    found = []
    for name, gpu, cores in BEST_FIRST:
        settings = load_settings(name, environ={}).settings
        found.append(Wanted(name, demand(settings, catalogue, gpu), gpu, cores))
    return found


def table(found: Demand) -> list[str]:
    """The lines that stand at the top of a profile: each part with its memory and licence, and the
    sums."""
    rows = [(p.name, "GPU" if p.on_gpu else "", p.memory_mb, p.licence) for p in found.parts]
    rows += [("in all, main memory", "", found.memory_mb, "")]
    if found.gpu_mb:
        rows += [("in all, GPU", "GPU", found.gpu_mb, "")]
    return [
        f"#   {name:<28} {where:<3} {megabytes:>7,} MB  {licence}".rstrip()
        for name, where, megabytes, licence in rows
    ]


# --- this machine ------------------------------------------------------------------------------


def this_machine() -> Machine:
    """The facts, as far as they can be had without torch."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    memory_mb = psutil.virtual_memory().total // 10**6
    return Machine(memory_mb, cores, find_gpus().found, sys.platform, platform.machine())
