"""What can be told of a profile before anything is fetched: is it there, has it its GPU?

Nothing can read YAML yet. A profile that is named says what it needs in the comment at its top,
which a test keeps true; of a file of the user's own only its existence is known.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from setup_steps.failures import NOT_FIT, SETTINGS, SetupError

if TYPE_CHECKING:
    from app.models.gpu import Gpus

ENGINES = ("stt", "llm", "tts")
LAST_PYTHON = (3, 13)
LEAST_GLIBC = (2, 34)
"""Both as in ``app.doctor.stack``, which says it of all settings."""
OTHERS = "choose another profile: --profile cpu-plus runs on a laptop"


@dataclass(frozen=True)
class Known:
    """Of a profile, by its comment. MB are 10^6 bytes."""

    name: str
    text: tuple[str, ...]
    """What it is for and what it fetches: its first two paragraphs."""
    memory_mb: int
    gpu_mb: int
    nvidia: bool

    def lines(self) -> list[str]:
        needs = f"{self.memory_mb:,} MB of memory" if self.memory_mb else ""
        if self.gpu_mb:
            needs += f" and {self.gpu_mb:,} MB of the GPU's"
        said = f"  By its own account it needs {needs}." if needs else ""
        return [f"The profile {self.name}:", *(f"  {line}" for line in self.text), said]


def profile_of(root: Path, config: str) -> Known | None:
    """``None``: a file of the user's own, or no profile. Raises ``SetupError`` if it is not there.

    A name or a path as ``app.settings.load.resolve`` takes it.
    """
    if not config:
        return None
    if "/" in config or config.endswith((".yaml", ".yml")):
        if Path(config).expanduser().is_file():
            return None
        raise SetupError(
            SETTINGS, "there are no settings to read", f"{config} does not exist", "Check the path"
        )
    profiles = root / "config" / "profiles"
    names = ["default", *sorted(path.stem for path in profiles.glob("*.yaml"))]
    if config not in names:
        near = get_close_matches(config, names, n=1)
        fix = f"Did you mean {near[0]}?" if near else "A file is given with its .yaml ending"
        why = f"known are: {', '.join(names)}"
        raise SetupError(SETTINGS, f"there is no profile called {config!r}", why, fix)
    if config == "default":
        return None
    return read(config, (profiles / f"{config}.yaml").read_text(encoding="utf-8"))


def read(name: str, text: str) -> Known:
    comment = [line[1:].strip() for line in takewhile(_is_comment, text.splitlines()[1:])]
    paragraphs = "\n".join(comment).strip().split("\n\n")

    def total(of: str) -> int:
        match = re.search(rf"^in all, {of} +(?:GPU +)?([\d,]+) MB$", "\n".join(comment), re.M)
        return int(match[1].replace(",", "")) if match else 0

    shown = tuple(line for each in paragraphs[:2] for line in each.splitlines())
    first = paragraphs[0]
    return Known(name, shown, total("main memory"), total("GPU"), "NVIDIA" in first)


def _is_comment(line: str) -> bool:
    return line.startswith("#")


def packages_error(
    known: Known, python: tuple[int, int], libc: tuple[str, str]
) -> SetupError | None:
    """torch's and NeMo's wheels are for some Pythons and, on Linux, for a recent glibc."""
    what = f"the packages of the profile {known.name} cannot be installed here"
    fix = f"Use Python 3.11 to 3.13 on Linux with glibc 2.34 or newer, or {OTHERS}"
    if python > LAST_PYTHON:
        return SetupError(NOT_FIT, what, f"this is Python {python[0]}.{python[1]}", fix)
    name, numbers = libc
    if name == "glibc" and tuple(map(int, re.findall(r"\d+", numbers)))[:2] < LEAST_GLIBC:
        return SetupError(NOT_FIT, what, f"this is glibc {numbers}", fix)
    return None


def gpu_error(known: Known, gpus: Gpus) -> SetupError | None:
    """A GPU of NVIDIA's that the profile needs and that is not here, or ``None``."""
    what = f"this machine cannot run the profile {known.name}"
    if not gpus.found:
        why = gpus.problem or "it needs a GPU of NVIDIA's, and no driver of one is here"
        return SetupError(
            NOT_FIT, what, why, f"Install NVIDIA's driver (580 or newer), or {OTHERS}"
        )
    from app.models.gpu import LEAST_DRIVER, dotted, version

    driver = gpus.found[0].driver
    if version(driver) < LEAST_DRIVER:
        why = f"its NVIDIA driver is {driver}, and {dotted(LEAST_DRIVER)} or newer is needed"
        return SetupError(NOT_FIT, what, why, f"Install a newer driver, or {OTHERS}")
    # 0: it shares the machine's memory, of which only the program itself can tell.
    here_mb = [gpu.memory_mb for gpu in gpus.found]
    if all(here_mb) and sum(here_mb) < known.gpu_mb:
        why = f"it needs {known.gpu_mb:,} MB of a GPU's memory, and there are {sum(here_mb):,}"
        return SetupError(NOT_FIT, what, why, OTHERS.capitalize())
    return None


def find_gpus(root: Path) -> Gpus:
    """``app.models.gpu`` needs no package, but its place is not on the path before it is
    installed."""
    if str(root) not in sys.path:
        sys.path.append(str(root))
    from app.models import gpu

    return gpu.find_gpus()


def check(
    root: Path,
    config: str,
    settings: Sequence[str],
    torch: str,
    environ: Mapping[str, str],
    find: Callable[[Path], Gpus] = find_gpus,
) -> Known | None:
    """What is known of the profile. Raises ``SetupError`` where it cannot be used here.

    Settings beside the profile that choose an engine or its place may do without what the profile
    needs: then only the program itself can tell.
    """
    known = profile_of(root, config)
    by_name = tuple(f"REACHY_VOICE__{engine.upper()}" for engine in ENGINES)
    changed = any(each.split("=")[0].split(".")[0].strip() in ENGINES for each in settings)
    changed = changed or any(name.startswith(by_name) for name in environ)
    if known is None or not known.nvidia or changed:
        return known
    error = packages_error(known, sys.version_info[:2], platform.libc_ver())
    if error is None and torch != "cpu":
        error = gpu_error(known, find(root))
    if error is not None:
        raise error
    return known
