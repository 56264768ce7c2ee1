"""Whether this program runs in a container, where a port forwarder may stand in front of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_FILES = (".dockerenv", "run/.containerenv", "run/systemd/container")
_VARIABLES = ("container", "KUBERNETES_SERVICE_HOST")
_CGROUP = re.compile(r"docker|libpod|kubepods|containerd|crio|/lxc[/.]|garden|buildkit")


def in_container(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a container engine has left one of its signs. There is no certain one, so images set
    ``access.loopback`` themselves."""
    if any(environ.get(name) for name in _VARIABLES):
        return True
    if any((root / name).exists() for name in _FILES):
        return True
    try:
        return _CGROUP.search((root / "proc/1/cgroup").read_text()) is not None
    except OSError:
        return False
