"""Which profiles this machine can run: the doctor's checks, run for each profile."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil

from app.doctor.memory import check_memory
from app.doctor.needs import Needs, needs_of
from app.doctor.stack import check_gpu
from app.models.engine_memory import GpuKind
from app.models.gpu import Gpus, find_gpus
from app.settings.load import load_settings

SYSTEM_MB = 1500
"""Main memory for everything else: an estimate for a Linux desktop."""
MACOS_MB = 4000
"""The same for macOS, which shares its memory with the GPU."""

BEST_FIRST: tuple[tuple[str, GpuKind | None, int], ...] = (
    ("reachy", "nvidia", 4),
    ("reachy-8gb", "nvidia", 4),
    ("apple", "apple", 4),
    ("cpu-plus", None, 4),
    ("cpu", None, 1),
)
"""Profile, the kind of GPU it needs, and the cores it needs for real time."""

_NO_APPLE = "needs a Mac with Apple silicon"


@dataclass(frozen=True, slots=True)
class Machine:
    """``memory_mb``: 10^6 bytes; ``system`` and ``processor`` as ``sys.platform`` and
    ``platform.machine`` name them."""

    memory_mb: int
    cores: int
    gpus: Gpus = field(default_factory=Gpus)
    system: str = "linux"
    processor: str = "x86_64"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a profile fits. ``why``: what is missing; ``fetches``: what its first start would
    download."""

    name: str
    why: str = ""
    fetches: str = ""

    @property
    def fits(self) -> bool:
        return not self.why


def this_machine(gpus: Gpus | None = None) -> Machine:
    """What can be detected without torch. ``gpus``: if already detected."""
    memory_mb = psutil.virtual_memory().total // 10**6
    return Machine(memory_mb, usable_cores(), gpus or find_gpus(), sys.platform, platform.machine())


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def judge(machine: Machine) -> list[Verdict]:
    """Judge each profile of ``BEST_FIRST``. Raises ``ConfigError``."""
    return [_verdict(machine, *profile) for profile in BEST_FIRST]


def _verdict(machine: Machine, name: str, gpu: GpuKind | None, cores: int) -> Verdict:
    settings = load_settings(name, environ={}).settings
    needs = needs_of(settings, machine.gpus, system=machine.system)
    return Verdict(name, _missing(machine, needs, gpu, cores), _fetches(needs))


def _fetches(needs: Needs) -> str:
    """What to download. Some of the packages may be installed already; only pip knows."""
    packages = [f"the packages of requirements-{needs.stack}.lock"] if needs.stack else []
    weights = [f"{missing.name} ({missing.size / 1e6:,.0f} MB)" for missing in needs.missing]
    return ", ".join(packages + weights)


def _missing(machine: Machine, needs: Needs, gpu: GpuKind | None, cores: int) -> str:
    if gpu == "apple" and (machine.system, machine.processor) != ("darwin", "arm64"):
        return _NO_APPLE
    least_mb = needs.memory_mb + (MACOS_MB if gpu == "apple" else SYSTEM_MB)
    checks = list(check_gpu(needs, machine.gpus)) if needs.gpu_engines else []
    checks.append(check_memory(least_mb, machine.memory_mb, machine.memory_mb))
    for check in checks:
        if check.state != "ok":
            return f"{check.name}: {check.detail}"
    return f"needs {cores} cores, this machine has {machine.cores}" if machine.cores < cores else ""


def advice(verdicts: Sequence[Verdict]) -> str:
    """One line: the best profile that fits, and why better ones do not."""
    fitting = [place for place, verdict in enumerate(verdicts) if verdict.fits]
    best = fitting[0] if fitting else len(verdicts)
    # Do not mention Apple silicon to users without a Mac.
    reasons = [f"{v.name}: {v.why}" for v in verdicts[:best] if v.why != _NO_APPLE]
    found = (
        f"profile {verdicts[best].name}" if fitting else "no profile fits; see `extends: remote`"
    )
    return ". ".join((f"This machine: {found}", *reasons))
