"""At the first start, on a terminal: propose the best profile that this machine can run.

Only the installed program can judge that (``app.doctor.proposal``). The answer is kept in the
owner's settings file, so the question comes only once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from app.setup.place import Place
from app.setup.plan import Fetch, megabytes, total_mb, whole_s

KEPT = """\
# Chosen at the first start. Change it, or add settings of your own: see docs/configuration.md.
# Delete this file to be asked again.
extends: {profile}
"""


@dataclass(frozen=True)
class Proposal:
    """See ``app.doctor.proposal``. ``file``: the owner's settings, not there yet."""

    profile: str
    summary: str
    machine: str
    hosts: str
    file: str

    def text(self, fetches: Sequence[Fetch]) -> str:
        reached = f", and {self.hosts} can be reached" if self.hosts else ""
        size, minutes = megabytes(total_mb(fetches)), ceil(whole_s(fetches) / 60)
        return (
            f"\n{self.machine}{reached}: the profile {self.profile} fits.\n"
            f"  {self.summary}\n"
            f"  To be set up: {size}, about {minutes} minutes. The default is smaller, but its\n"
            "  language model is often wrong.\n"
            "Take it? [Y/n] "
        )

    def keep(self, *, taken: bool) -> None:
        """Write the settings file, unless there is one by now."""
        file = Path(self.file)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x") as new:
            new.write(KEPT.format(profile=self.profile if taken else "default"))
        print(
            f"Kept in {file}. To change it, edit that line, or start once with: reachy-voice serve "
            f"--config {'default' if taken else self.profile}",
            file=sys.stderr,
        )


def may_ask(settings: Sequence[str], environ: Mapping[str, str] = os.environ) -> bool:
    """Whether there is a person to ask, who has not chosen any settings."""
    chosen = settings or any(name.startswith("REACHY_VOICE__") for name in environ)
    return not chosen and sys.stdin.isatty() and sys.stderr.isatty()


def proposal(place: Place) -> Proposal | None:
    """``None`` if nothing better than the default fits, or can be fetched."""
    command = [str(place.python), "-I", "-m", "app.doctor.proposal"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found = json.loads(done.stdout) if done.returncode == 0 else {}
    return Proposal(**found) if found else None


def answered(offer: Proposal, fetches: Sequence[Fetch]) -> bool:
    """Ask, and keep the answer. The end of the input is no answer, so it is not kept."""
    print(offer.text(fetches), end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        print(file=sys.stderr)
        return False
    taken = line.strip().lower() in ("", "y", "yes")
    offer.keep(taken=taken)
    return taken
