"""What a person types beside a running server, so that its list is changed and no other."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from app.settings.model import Settings

NAME = "reachy-voice"


def typed_command(settings: Settings, words: str) -> str:
    """The whole command line for ``words``, as in ``allow 192.168.1.7``."""
    own = settings.paths.access_file
    where = "" if own is None else f" --set paths.access_file={shlex.quote(str(own.expanduser()))}"
    return f"{_program()} {words}{where}"


def _program() -> str:
    """The running program as it can be called from here: by name if the shell would find it."""
    running = Path(sys.argv[0])
    if running.name != NAME or not running.is_file():
        return NAME
    found = shutil.which(NAME)
    if found is not None and Path(found).samefile(running):
        return NAME
    path = os.path.relpath(running)
    if path.startswith(".."):
        path = str(running.absolute())
    elif "/" not in path:
        path = f"./{path}"
    return shlex.quote(path)
