"""What each profile takes, and which of them a machine can run.

Pure but for ``this_machine``, which looks at the machine, and ``wanted``, which reads the profiles.
Memory is in MB of 1,000,000 bytes.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psutil

from app.catalogue import Catalogue
from app.gpu import GPU_SHARE, LEAST_DRIVER, Gpu, dotted, find_gpus, version
from app.needs import CONTEXT_MB, SERVER_MB, TORCH_WORKER_MB, context_mb
from app.settings import Settings
from app.settings_load import load_settings
from pipeline.engines import Kind

GpuKind = Literal["nvidia", "apple"]

SYSTEM_MB = 1500
"""Of main memory, for everything else: an estimate for a desktop with Linux."""
MACOS_MB = 4000
"""The same for macOS, whose memory is the GPU's, too."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something that takes memory: weights (by their name in the catalogue), context, a process."""

    name: str
    on_gpu: bool
    memory_mb: int
    licence: str = ""


@dataclass(frozen=True, slots=True)
class Needs:
    """What one choice of engines takes."""

    parts: tuple[Part, ...]

    @property
    def memory_mb(self) -> int:
        """Main memory."""
        return sum(part.memory_mb for part in self.parts if not part.on_gpu)

    @property
    def gpu_mb(self) -> int:
        """Memory of the GPU."""
        return sum(part.memory_mb for part in self.parts if part.on_gpu)


@dataclass(frozen=True, slots=True)
class Machine:
    """What is there. ``system`` and ``processor`` as ``sys.platform`` and ``platform.machine`` name
    them."""

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
    needs: Needs
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
    needs = wanted.needs
    if wanted.gpu == "apple":
        if not machine.apple_silicon:
            return _NO_APPLE
        least_mb = needs.gpu_mb + needs.memory_mb + MACOS_MB
    else:
        least_mb = needs.memory_mb + SYSTEM_MB
    if wanted.gpu == "nvidia" and (why := _missing_gpu(machine, needs)):
        return why
    if machine.memory_mb < least_mb:
        return f"needs {_gb(least_mb)} of memory, {_gb(machine.memory_mb)} are here"
    if machine.cores < wanted.cores:
        return f"needs {wanted.cores} cores, {machine.cores} are here"
    return ""


def _missing_gpu(machine: Machine, needs: Needs) -> str:
    wanted = f"needs a GPU of NVIDIA with {_gib(needs.gpu_mb / GPU_SHARE)}"
    if machine.system != "linux":
        return f"{wanted}, on Linux"
    if not machine.gpus:
        return wanted
    # Memory of several is not added up: each model is on one of them.
    best = max(machine.gpus, key=lambda gpu: _memory_mb(machine, gpu))
    if _memory_mb(machine, best) * GPU_SHARE < needs.gpu_mb:
        return f"{wanted}, {best.name} has {_gib(_memory_mb(machine, best))}"
    if version(best.driver) < LEAST_DRIVER:
        return f"needs a driver from {dotted(LEAST_DRIVER)} on, {best.name} has {best.driver}"
    return ""


def _memory_mb(machine: Machine, gpu: Gpu) -> int:
    """What it may have; of the machine's, what the rest does not need."""
    return gpu.memory_mb or max(0, machine.memory_mb - SYSTEM_MB - SERVER_MB)


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
        found.append(Wanted(name, needs(settings, catalogue, cuda=gpu != "apple"), gpu, cores))
    return found


def needs(settings: Settings, catalogue: Catalogue, *, cuda: bool = True) -> Needs:
    """What the engines take, from their options and the catalogue. Raises ``WeightsError``.

    ``cuda``: whether what is on a GPU is on one of NVIDIA's."""
    parts = [part for kind in Kind for part in _parts(kind, settings.engine(kind), catalogue, cuda)]
    return Needs((*parts, Part("the server itself", False, SERVER_MB)))


def _parts(kind: Kind, options: Any, catalogue: Catalogue, cuda: bool) -> Iterator[Part]:
    name = getattr(options, "weights", None)
    if not name:
        return
    entry = catalogue[name]
    on_gpu = _on_gpu(options)
    yield Part(name, on_gpu, entry.memory_mb, entry.licence)
    if kind is Kind.LLM and entry.context_values:
        tokens = options.context_tokens
        yield Part(f"context, {tokens:,} tokens", on_gpu, context_mb(options, entry, on_gpu))
    if on_gpu and hasattr(options, "device"):
        yield Part(f"the process of {options.engine}", False, TORCH_WORKER_MB)
        yield Part(f"CUDA for {options.engine}", True, CONTEXT_MB)
    elif on_gpu and cuda:
        yield Part(f"CUDA for {options.engine}", True, CONTEXT_MB)


def _on_gpu(options: Any) -> bool:
    """``auto`` is the GPU: a profile that needs one is not for a machine without."""
    return bool(getattr(options, "gpu_layers", 0)) or getattr(options, "device", "cpu") != "cpu"


def table(found: Needs) -> list[str]:
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
