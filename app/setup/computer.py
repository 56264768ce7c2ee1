"""What this computer has: a compiler, disk space, memory, instruction sets."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from app.setup.failures import NO_PYTHON, NO_SPACE, SetupError

Which = Callable[[str], str | None]

# Flags that affect -march=native. The others vary with the kernel's version.
_X86_INSTRUCTIONS = re.compile(
    r"(sse|ssse|pni|avx|fma|f16c|bmi|amx|vnni|movbe|popcnt|lzcnt|abm|v?aes|gfni|v?pclmul|sha|adx"
    r"|xop|tbm|cx16|lahf)\w*"
)


def find_compiler(
    environ: Mapping[str, str], which: Which = shutil.which
) -> tuple[str, str] | None:
    """Paths of a C and a C++ compiler, from $CC and $CXX or else from PATH."""
    c = _first_program([environ.get("CC", ""), "cc", "gcc", "clang"], which)
    cxx = _first_program([environ.get("CXX", ""), "c++", "g++", "clang++"], which)
    return (c, cxx) if c and cxx else None


def _first_program(commands: Iterable[str], which: Which) -> str | None:
    words = (shlex.split(command) for command in commands)
    programs = (which(command[0]) for command in words if command)
    return next(filter(None, programs), None)


def venv_error(find_module: Callable[[str], object], version: tuple[int, int]) -> SetupError | None:
    """The error if ``venv``, a separate package in Debian, is missing: without it, no pip."""
    if find_module("venv") and find_module("ensurepip"):
        return None
    return SetupError(
        NO_PYTHON,
        "this Python cannot make virtual environments",
        "its modules venv and ensurepip are in a separate Debian package",
        "sudo apt-get install python3-venv    "
        f"(python{version[0]}.{version[1]}-venv if it is not the system's Python)",
    )


def instructions(cpuinfo: str) -> str:
    """The instruction sets in a ``/proc/cpuinfo``, sorted; all processors are assumed equal."""
    match = re.search(r"^(flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    if match is None:
        return ""
    words = set(match[2].split())
    if match[1] == "flags":
        words = {word for word in words if _X86_INSTRUCTIONS.fullmatch(word)}
    return " ".join(sorted(words))


def processor() -> str:
    """Identifies the machines that can run a binary compiled here with -march=native."""
    return f"{architecture()} {own_instructions()}"


def architecture() -> str:
    """Identifies the machines that can run a binary compiled here for every processor."""
    system = os.uname()
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
    return f"{system.sysname} {system.machine} {libc}"


def own_instructions() -> str:
    """The instruction sets of this machine's processor."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text()
    except OSError:
        import platform

        cpuinfo = f"Features: {platform.processor()}"
    return instructions(cpuinfo)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compile_jobs(cores: int, meminfo: str, gb_each: int = 1) -> int:
    """Number of parallel compilers: one per core, or as many as memory allows."""
    match = re.search(r"^MemAvailable:\s*(\d+) kB$", meminfo, re.MULTILINE)
    fit = int(match[1]) // (gb_each * 1_000_000) if match else cores
    return max(1, min(cores, fit))


def space_errors(needs_mb: Mapping[Path, int]) -> list[SetupError]:
    """One error for each file system with too little space for its directories."""
    return [
        SetupError(
            NO_SPACE,
            "there is not enough disk space",
            f"{place} has {free // 10**6} MB free, but {need // 10**6} MB are needed",
            "Free some space, or move the checkout (XDG_DATA_HOME, if installed from a wheel); "
            "XDG_CACHE_HOME moves the cache",
        )
        for place, need, free in space({path: mb * 10**6 for path, mb in needs_mb.items()})
        if free < need
    ]


def space(needs: Mapping[Path, int]) -> list[tuple[Path, int, int]]:
    """A directory of each file system, and the bytes needed and free there."""
    by_device: dict[int, tuple[Path, int]] = {}
    for directory, need in needs.items():
        place = existing(directory)
        device = place.stat().st_dev
        first, total = by_device.get(device, (place, 0))
        by_device[device] = (first, total + need)
    return [(place, need, shutil.disk_usage(place).free) for place, need in by_device.values()]


def existing(path: Path) -> Path:
    """The path or its nearest parent that exists."""
    return path if path.exists() else existing(path.parent)
