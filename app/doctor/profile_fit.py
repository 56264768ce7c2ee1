"""Which of the profiles this machine can run: the doctor's own checks, asked of each profile."""

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
"""Of main memory, for everything else: an estimate for a desktop with Linux."""
MACOS_MB = 4000
"""The same for macOS, whose memory is the GPU's, too."""

BEST_FIRST: tuple[tuple[str, GpuKind | None, int], ...] = (
    ("reachy", "nvidia", 4),
    ("reachy-8gb", "nvidia", 4),
    ("apple", "apple", 4),
    ("cpu-plus", None, 4),
    ("cpu", None, 1),
)
"""Profile, the GPU that it is for, and the cores that keep it in real time."""

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
    fetch."""

    name: str
    why: str = ""
    fetches: str = ""

    @property
    def fits(self) -> bool:
        return not self.why


def this_machine(gpus: Gpus | None = None) -> Machine:
    """What can be found out without torch. ``gpus``: where they were looked for already."""
    memory_mb = psutil.virtual_memory().total // 10**6
    return Machine(memory_mb, usable_cores(), gpus or find_gpus(), sys.platform, platform.machine())


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def judge(machine: Machine) -> list[Verdict]:
    """A verdict on each profile of ``BEST_FIRST``. Raises ``ConfigError``."""
    return [_verdict(machine, *profile) for profile in BEST_FIRST]


def _verdict(machine: Machine, name: str, gpu: GpuKind | None, cores: int) -> Verdict:
    settings = load_settings(name, environ={}).settings
    needs = needs_of(settings, machine.gpus, system=machine.system)
    return Verdict(name, _missing(machine, needs, gpu, cores), _fetches(needs))


def _fetches(needs: Needs) -> str:
    """Packages that are locked for it may be here already; pip knows."""
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
    return f"needs {cores} cores, {machine.cores} are here" if machine.cores < cores else ""


def advice(verdicts: Sequence[Verdict]) -> str:
    """One line: the best that fits, and why those before it do not."""
    fitting = [place for place, verdict in enumerate(verdicts) if verdict.fits]
    best = fitting[0] if fitting else len(verdicts)
    # A user without a Mac is not helped by hearing of one.
    reasons = [f"{v.name}: {v.why}" for v in verdicts[:best] if v.why != _NO_APPLE]
    found = (
        f"profile {verdicts[best].name}" if fitting else "no profile fits; see `extends: remote`"
    )
    return ". ".join((f"This machine: {found}", *reasons))
