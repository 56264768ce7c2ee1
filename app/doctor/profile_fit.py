"""Which profiles this machine can run: what each states that it needs, and the doctor's checks."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import psutil

from app.doctor.engine_needs import EngineNeeds, needs_of
from app.doctor.installed import llama_has_cuda
from app.doctor.machine import check_gpu, check_memory, check_nvcc
from app.models.gpu import Gpus, find_gpus, find_nvcc
from app.settings.load import DEFAULT, load_settings, resolve
from app.settings.model import NeedsSettings
from app.setup.computer import existing, usable_cores

SYSTEM_MB = 1500
"""Main memory for everything else: an estimate for a Linux desktop."""
MACOS_MB = 4000
"""The same for macOS, which shares its memory with the GPU."""

BEST_FIRST = ("reachy", "reachy-8gb", "apple", "cpu-plus", "cpu")

_NO_APPLE = "needs a Mac with Apple silicon"
_NO_NVCC = "needs CUDA's compiler, to build llama.cpp (package cuda-toolkit)"


@dataclass(frozen=True, slots=True)
class Machine:
    """MB are 10^6 bytes."""

    memory_mb: int
    cores: int
    gpus: Gpus = field(default_factory=Gpus)
    system: str = "linux"
    processor: str = "x86_64"
    """``system`` and ``processor`` are as ``sys.platform`` and ``platform.machine`` name them."""
    disk_mb: int = 1_000_000
    """Free space where the weights go."""
    nvcc: bool = True
    """Whether llama.cpp is, or can be, compiled for the GPU."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a profile fits."""

    name: str
    why: str = ""
    """What is missing."""
    fetches: str = ""
    """What its first start would download."""
    urls: tuple[str, ...] = ()
    """Sources other than pip's index."""

    @property
    def fits(self) -> bool:
        return not self.why


def this_machine(gpus: Gpus | None = None, environ: Mapping[str, str] = os.environ) -> Machine:
    """What can be detected without torch. ``gpus``: if already detected."""
    gpus = gpus or find_gpus()
    cache = load_settings(DEFAULT, environ=environ).settings.paths.cache(environ)
    return Machine(
        psutil.virtual_memory().total // 10**6,
        usable_cores(),
        gpus,
        sys.platform,
        platform.machine(),
        shutil.disk_usage(existing(cache)).free // 10**6,
        all(c.state == "ok" for c in check_nvcc(gpus.found, find_nvcc(), llama_has_cuda())),
    )


def judge(machine: Machine) -> list[Verdict]:
    """Judge each profile of ``BEST_FIRST``. Raises ``ConfigError``."""
    return [_verdict(machine, name) for name in BEST_FIRST]


def _verdict(machine: Machine, name: str) -> Verdict:
    settings = load_settings(name, environ={}).settings
    needs = needs_of(settings, machine.gpus, system=machine.system)
    urls = tuple(missing.url for missing in needs.missing if missing.url)
    why = lacking(settings.needs, machine, needs)
    return Verdict(name, why, _fetches(needs), urls)


def _fetches(needs: EngineNeeds) -> str:
    """What to download. Some of the packages may be installed already; only pip knows."""
    locks = [lock for lock in (needs.stack, *needs.extras) if lock]
    packages = [f"the packages of requirements-{lock}.lock" for lock in locks]
    weights = [f"{missing.name} ({missing.size / 1e6:,.0f} MB)" for missing in needs.missing]
    return ", ".join(packages + weights)


def lacking(stated: NeedsSettings, machine: Machine, needs: EngineNeeds) -> str:
    """The first thing that the settings or their engines need and this machine lacks; or empty."""
    apple = (machine.system, machine.processor) == ("darwin", "arm64")
    if stated.gpu == "apple" and not apple:
        return _NO_APPLE
    checks = list(check_gpu(needs, machine.gpus)) if needs.gpu_engines else []
    is_shared = apple or (machine.gpus.first is not None and not machine.gpus.first.memory_mb)
    least_mb = stated.memory_mb + (stated.gpu_memory_mb if is_shared and stated.gpu else 0)
    least_mb += MACOS_MB if stated.gpu == "apple" else SYSTEM_MB
    checks.append(check_memory(least_mb, machine.memory_mb, machine.memory_mb))
    for check in checks:
        if check.state != "ok":
            return f"{check.name}: {check.detail}"
    if stated.gpu == "nvidia" and not machine.nvcc:
        return _NO_NVCC
    if machine.cores < stated.cores:
        return f"needs {stated.cores} cores, this machine has {machine.cores}"
    disk_mb = min(stated.disk_mb, needs.missing_bytes // 10**6)
    if machine.disk_mb < disk_mb:
        return f"needs {disk_mb:,} MB of disk, {machine.disk_mb:,} MB are free"
    return ""


def advice(verdicts: Sequence[Verdict]) -> str:
    """One line: the best profile that fits, and why better ones do not."""
    fitting = [place for place, verdict in enumerate(verdicts) if verdict.fits]
    best = fitting[0] if fitting else len(verdicts)
    # Do not mention Apple silicon to users without a Mac.
    reasons = [f"{v.name}: {v.why}" for v in verdicts[:best] if v.why != _NO_APPLE]
    result = (
        f"profile {verdicts[best].name}" if fitting else "no profile fits; see `extends: remote`"
    )
    return ". ".join((f"This machine: {result}", *reasons))


def profile_summary(name: str) -> str:
    """The first sentence of a profile's comment, after the line for editors."""
    lines = resolve(name).read_text(encoding="utf-8").splitlines()
    comment = takewhile(lambda line: line.startswith("#"), lines[1:])
    text = " ".join(line.lstrip("# ") for line in comment).strip()
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]
