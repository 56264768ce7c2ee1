"""What this computer offers: a compiler, room on disk, memory, its processor's instructions."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from setup_steps.failures import NO_PYTHON, NO_SPACE, SetupError

Which = Callable[[str], str | None]

# What -march=native turns into code. The kernel's other flags come and go with its version.
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
    found = (which(command[0]) for command in words if command)
    return next(filter(None, found), None)


def venv_error(has_module: Callable[[str], bool], version: tuple[int, int]) -> SetupError | None:
    """Debian splits ``venv`` off from Python; without it there is no pip to install anything."""
    if has_module("venv") and has_module("ensurepip"):
        return None
    return SetupError(
        NO_PYTHON,
        "this Python cannot make virtual environments",
        "its modules venv and ensurepip are in a Debian package of their own",
        "sudo apt-get install python3-venv    "
        f"(python{version[0]}.{version[1]}-venv for a Python beside the system's)",
    )


def instructions(cpuinfo: str) -> str:
    """The instruction sets in a ``/proc/cpuinfo``, sorted; all processors are taken as equal."""
    match = re.search(r"^(flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    if match is None:
        return ""
    words = set(match[2].split())
    if match[1] == "flags":
        words = {word for word in words if _X86_INSTRUCTIONS.fullmatch(word)}
    return " ".join(sorted(words))


def processor() -> str:
    """What a binary compiled with -march=native on this computer can be run by."""
    system = os.uname()
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text()
    except OSError:
        import platform

        cpuinfo = f"Features: {platform.processor()}"
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
    return f"{system.sysname} {system.machine} {libc} {instructions(cpuinfo)}"


def compile_jobs(cores: int, meminfo: str, gb_each: int = 1) -> int:
    """Compilers at once: one for each core, as far as there is memory for each."""
    match = re.search(r"^MemAvailable:\s*(\d+) kB$", meminfo, re.MULTILINE)
    fit = int(match[1]) // (gb_each * 1_000_000) if match else cores
    return max(1, min(cores, fit))


def space_errors(needs_mb: Mapping[Path, int]) -> list[SetupError]:
    """One error for each file system that has too little room for the directories on it."""
    needs: dict[int, tuple[Path, int]] = {}
    for directory, needed_mb in needs_mb.items():
        place = existing(directory)
        device = place.stat().st_dev
        first, sum_mb = needs.get(device, (place, 0))
        needs[device] = (first, sum_mb + needed_mb)
    return [
        _no_space(place, needed_mb, free_mb)
        for place, needed_mb in needs.values()
        if (free_mb := shutil.disk_usage(place).free // 1_000_000) < needed_mb
    ]


def existing(path: Path) -> Path:
    """The path or its nearest parent that exists."""
    return path if path.exists() else existing(path.parent)


def _no_space(place: Path, needed_mb: int, free_mb: int) -> SetupError:
    return SetupError(
        NO_SPACE,
        "there is too little room on the disk",
        f"{place} has {free_mb} MB free, and {needed_mb} MB are needed",
        "Free some, or move the checkout; the cache is moved by XDG_CACHE_HOME",
    )
