"""Runs the daemon of a Reachy Mini (``reachy-mini-daemon``), without camera, sound and motors.

For the environment of ``requirements.lock``, which leaves out their dependencies: stub modules that
provide any name replace them. The daemon is unchanged, except that it does not announce itself on
the network, where nobody should find a test robot.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock


class _Anything(ModuleType):
    __path__ = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


for _name in ("gi", "gi.repository", "onnxruntime"):
    sys.modules[_name] = _Anything(_name)

from reachy_mini.daemon.app.main import main  # type: ignore[import-not-found] # noqa: E402
from reachy_mini.utils.discovery import (  # type: ignore[import-not-found] # noqa: E402
    MdnsServiceRegistration,
)

MdnsServiceRegistration.register = lambda _: None

if __name__ == "__main__":
    main()
