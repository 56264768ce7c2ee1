"""Ask the installed program what the chosen engines need: only it can read the settings."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.setup.failures import NOT_FIT, SetupError
from app.setup.finding import Check
from app.setup.place import Place


@dataclass(frozen=True)
class Cuda:
    """The compiler for the GPU; each value affects the binary. An empty ``nvcc``: the installed
    build is for a GPU already, and is kept."""

    nvcc: str
    version: str
    capability: str


@dataclass(frozen=True, slots=True)
class MissingWeights:
    """A catalogue entry that must still be downloaded."""

    name: str
    size: int
    """Bytes."""
    source: str
    licence: str
    url: str = ""
    """URL of its first file, unless it comes from pip's index."""


@dataclass(frozen=True)
class Needs:
    """What the settings need beyond the base. MB are 10^6 bytes."""

    stack: str = ""
    """The ``requirements-STACK.lock`` installed on top of the base; empty: only the base."""
    torch: str = ""
    """cpu or cuda; empty: no engine uses it."""
    cuda: Cuda | None = None
    temporary_mb: int = 0
    """Space in TMPDIR: NeMo unpacks its archive there at each start."""
    missing: tuple[MissingWeights, ...] = ()
    weights_dir: str = ""
    extras: tuple[str, ...] = ()
    """Extras to install, each with its own lock file."""
    findings: tuple[Check, ...] = ()
    """The doctor's findings about this machine."""
    llama: str = "cpu"
    """How to compile llama.cpp: cpu or cuda; empty: no engine uses it."""
    pictures: bool = False
    """Whether llama.cpp will read pictures."""
    console: str = ""
    """Address of the console on this machine; empty: there is none."""

    @classmethod
    def read(cls, answer: dict[str, Any]) -> Needs:
        parts = {
            "cuda": Cuda(**answer["cuda"]) if answer["cuda"] else None,
            "missing": tuple(MissingWeights(**each) for each in answer["missing"]),
            "findings": tuple(Check(**each) for each in answer["findings"]),
        }
        return cls(**{key: answer[key] for key in cls.__dataclass_fields__} | parts)


BASE_NEEDS = Needs()


def ask(place: Place, arguments: Sequence[str]) -> Needs:
    """Raises ``SetupError`` if the settings cannot be used; the program prints why."""
    command = [str(place.python), "-I", "-m", "app.doctor.for_setup", *arguments]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode:
        what = "the needs of the settings are unknown"
        if process.returncode < 0:
            why = f"the installed program was ended by signal {-process.returncode}"
            raise SetupError(NOT_FIT, what, why, f"Delete {place.venv}, then run this again")
        raise SetupError(process.returncode, what, "see above", "Correct them, then run this again")
    return Needs.read(json.loads(process.stdout))


def unfit(needs: Needs) -> SetupError | None:
    """One error for everything this machine lacks, or ``None``."""
    faults = [finding for finding in needs.findings if finding.state == "fail"]
    if not faults:
        return None
    why = "; ".join(f"{finding.name}: {finding.detail}" for finding in faults)
    fix = "\n       ".join(finding.fix for finding in faults)
    return SetupError(NOT_FIT, "this machine cannot run the chosen engines", why, fix)
