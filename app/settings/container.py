"""Whether this program runs in a container, where connections may come from a port forwarder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_FILES = (".dockerenv", "run/.containerenv", "run/systemd/container")
_VARIABLES = ("container", "KUBERNETES_SERVICE_HOST")
_TRACES = {
    "proc/1/cgroup": re.compile(r"docker|libpod|kubepods|containerd|crio|/lxc[/.]|garden|buildkit"),
    "proc/self/mountinfo": re.compile(
        r"^(?=.* (?!/dev/)\S*/(?:docker|containerd|lxc|garden|buildkit)/)(\S+ ){4}/ ", re.MULTILINE
    ),
}
"""An engine may name itself in the control group, or be a folder that the root directory comes
from. A device may have any name."""


def in_container(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> bool:
    """Whether there are signs of a container engine. None is certain, so images set
    ``access.loopback`` themselves."""
    if any(environ.get(name) for name in _VARIABLES):
        return True
    if any((root / name).exists() for name in _FILES):
        return True
    return any(trace.search(_text(root / name)) for name, trace in _TRACES.items())


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
