"""NVIDIA GPUs in this machine, as ``nvidia-smi`` reports them. Needs no package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

FIELDS = ("name", "memory.total", "driver_version", "compute_cap", "memory.free")
QUERY = (f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
SMI_PLACES = ("/usr/lib/wsl/lib/nvidia-smi",)
"""Paths to try if it is not on PATH, as in WSL."""
SMI_TIMEOUT_S = 30
"""The first call after boot wakes the GPU, which takes some seconds."""
NVCC_PLACES = ("/usr/local/cuda/bin/nvcc", "/opt/cuda/bin/nvcc")

LEAST_DRIVER = (580,)
"""For CUDA 13.x: NVIDIA, "CUDA Compatibility", table of minor version compatibility.
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"""
LEAST_CAPABILITY = (7, 5)
"""Turing, in PyTorch's builds for CUDA 13.0: RELEASE.md, "PyTorch CUDA Support Matrix"
(https://github.com/pytorch/pytorch/issues/172352); CUDA 13 cannot compile for older GPUs."""
GPU_SHARE = 0.95
"""Usable share of a GPU's memory; screen and driver take the rest. An estimate."""

Run = Callable[[Sequence[str]], tuple[int, str]]
"""A command -> exit code and output (both streams)."""


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    memory_mb: int
    """In 10^6 bytes; 0 if it shares the machine's (DGX Spark, Jetson)."""
    driver: str
    """The driver's version, such as ``580.65.06``."""
    capability: tuple[int, ...]
    """8.9 is (8, 9); empty if unknown."""
    free_mb: int | None = field(default=None, compare=False)
    """At the time of the query."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs found, in CUDA's order: 0 is ``cuda:0``."""

    found: tuple[Gpu, ...] = ()
    problem: str = ""
    """Why an installed driver reports nothing useful; else empty."""

    @property
    def first(self) -> Gpu | None:
        """The GPU that engines use by default."""
        return self.found[0] if self.found else None


def cuda_order(gpus: Sequence[Gpu], environ: Mapping[str, str] = os.environ) -> list[int]:
    """Indices into nvidia-smi's list, in CUDA's order.

    nvidia-smi counts by PCI bus. CUDA does so only if CUDA_DEVICE_ORDER is PCI_BUS_ID; otherwise
    the fastest GPU is 0. CUDA does not define "fastest": we take the newest, then the largest.
    CUDA_VISIBLE_DEVICES selects GPUs, up to the first number that does not exist; if it contains
    names (GPU-...), we ignore it. ("CUDA C++ Programming Guide", environment variables.)
    """
    order = list(range(len(gpus)))
    if order and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        fastest = max(order, key=lambda i: (gpus[i].capability, gpus[i].memory_mb))
        order.sort(key=lambda i: i != fastest)
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return order
    items = [item.strip() for item in visible.split(",")] if visible.strip() else []
    if not all(re.fullmatch(r"-?\d+", item) for item in items):
        return order
    exist = takewhile(lambda number: 0 <= number < len(order), map(int, items))
    return [order[number] for number in exist]


def version(text: str) -> tuple[int, ...]:
    """``580.65.06`` -> (580, 65, 6); empty if it is not a version."""
    match = re.match(r"\d+(\.\d+)*", text.strip())
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def dotted_text(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def parse_gpus(output: str) -> tuple[Gpu, ...]:
    """Parse the output of ``nvidia-smi`` for ``QUERY``; other lines (warnings) are skipped.

    A field that a GPU does not know is ``[N/A]`` or ``[Not Supported]``.
    """
    gpus = []
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.rsplit(",", len(FIELDS) - 1)]
        if len(cells) != len(FIELDS) or not version(cells[2]):
            continue
        total, free = (_mb(cells[place]) for place in (1, 4))
        gpus.append(Gpu(cells[0], total or 0, cells[2], version(cells[3]), free))
    return tuple(gpus)


def _mb(mib: str) -> int | None:
    return int(mib) * 2**20 // 10**6 if mib.isdigit() else None


def run_command(command: Sequence[str]) -> tuple[int, str]:
    """Run a command: 127 if it cannot be run, 124 if it takes too long."""
    try:
        process = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SMI_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} did not answer within {SMI_TIMEOUT_S} s"
    except OSError as error:
        return 127, str(error)
    return process.returncode, process.stdout


def find_gpus(
    run: Run = run_command,
    which: Callable[[str], str | None] = shutil.which,
    environ: Mapping[str, str] = os.environ,
) -> Gpus:
    """Ask the driver. A missing driver or a hidden GPU yields an empty list."""
    program = which("nvidia-smi") or next(filter(os.path.exists, SMI_PLACES), None)
    if program is None:
        return Gpus()
    status, output = run([program, *QUERY])
    gpus = parse_gpus(output) if status == 0 else ()
    if gpus:
        return Gpus(tuple(gpus[place] for place in cuda_order(gpus, environ)))
    first = next((line.strip() for line in output.splitlines() if line.strip()), "")
    return Gpus(problem=first or f"nvidia-smi ended with {status} and printed nothing")


def free_memory_mb(gpus: Gpus | None = None) -> list[int]:
    """Free memory of each GPU, in CUDA's order; empty if any is unknown, or without GPUs."""
    free = [gpu.free_mb for gpu in (gpus or find_gpus()).found]
    return [] if None in free else [mb for mb in free if mb is not None]


def find_nvcc(
    environ: Mapping[str, str] = os.environ, which: Callable[[str], str | None] = shutil.which
) -> str | None:
    """CUDA's compiler: $CUDACXX, on PATH, or where NVIDIA's packages put it."""
    candidates = [which(name) for name in (environ.get("CUDACXX", ""), "nvcc") if name]
    return next(filter(None, candidates), None) or next(filter(os.path.exists, NVCC_PLACES), None)


def nvcc_version(nvcc: str, run: Run = run_command) -> tuple[int, ...]:
    """The version in nvcc's line ``... release 13.0, V13.0.88``; empty: there is no such line."""
    match = re.search(r"\brelease [\d.]+, V([\d.]+)", run([nvcc, "--version"])[1])
    return version(match[1]) if match else ()
