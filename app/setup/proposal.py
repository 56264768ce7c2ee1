"""At the first start, on a terminal: propose the best profile that this machine can run.

Only the installed program can judge that (``app.doctor.profile_offer``). The answer is kept in the
owner's settings file, so the question comes only once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from app.setup.commands import tell
from app.setup.place import Place
from app.setup.plan import Fetch, megabytes, total_mb, whole_s

KEPT = """\
# Chosen at the first start. Change it, or add settings of your own: see docs/configuration.md.
# Delete this file to be asked again.
extends: {profile}
"""


@dataclass(frozen=True)
class Proposal:
    """A profile better than the default. ``hosts``: where its weights come from."""

    profile: str
    summary: str
    machine: str
    hosts: str
    file: str
    """The owner's settings, not there yet."""

    def text(self, fetches: Sequence[Fetch]) -> str:
        hosts = f", and {self.hosts} can be reached" if self.hosts else ""
        size, minutes = megabytes(total_mb(fetches)), ceil(whole_s(fetches) / 60)
        return (
            f"\n{self.machine}{hosts}: the profile {self.profile} fits.\n"
            f"  {self.summary}\n"
            f"  To be set up: {size}, about {minutes} minutes. The default is smaller, but its\n"
            "  language model is often wrong.\n"
            "Take it? [Y/n] "
        )

    def keep(self, *, taken: bool) -> bool:
        """Write the settings file, unless there is one by now. Returns ``False`` if that fails."""
        file = Path(self.file)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x") as new:
                new.write(KEPT.format(profile=self.profile if taken else "default"))
        except FileExistsError:
            tell(f"{file} is there by now, and is used as it is.")
            return True
        except OSError as error:
            tell(
                f"The answer cannot be kept in {file}: {error.strerror}. The default starts; for "
                f"the other, start with: --config {self.profile}",
            )
            return False
        tell(
            f"Kept in {file}. To change it, edit that line, or start once with: reachy-voice serve "
            f"--config {'default' if taken else self.profile}",
        )
        return True


def may_ask(settings: Sequence[str]) -> bool:
    """Whether there is a person to ask, who has not chosen any settings."""
    has_settings = settings or any(name.startswith("REACHY_VOICE__") for name in os.environ)
    return not has_settings and sys.stdin.isatty() and sys.stderr.isatty()


def proposal(place: Place) -> Proposal | None:
    """The proposal; ``None`` if nothing better than the default fits and can be fetched."""
    command = [str(place.python), "-I", "-m", "app.doctor.profile_offer"]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    answer = json.loads(process.stdout) if process.returncode == 0 else {}
    return Proposal(**answer) if answer else None


def ask_owner(offer: Proposal, fetches: Sequence[Fetch]) -> bool:
    """Ask until the answer is yes or no, and keep it. End of input is no, but not kept."""
    tell(offer.text(fetches), end="")
    while line := sys.stdin.buffer.readline():
        answer = line.decode(errors="replace").strip().lower()
        if answer in ("", "y", "yes"):
            return offer.keep(taken=True)
        if answer in ("n", "no"):
            offer.keep(taken=False)
            return False
        tell("Please answer y or n. Take it? [Y/n] ", end="")
    tell("")
    return False
