"""Puts a portable llama.cpp into the program's wheel, so that setup needs no compiler.

``build/shipped/`` must hold it: ``llama_cpp_python-VERSION-*.whl``, as setup makes it with
REACHY_VOICE_PORTABLE=1. Without one, the wheel is for every platform, and setup compiles llama.cpp.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TAG = "REACHY_VOICE_WHEEL_TAG"
"""The wheel's platform tag; the default says nothing about the C library."""


class ShippedLlama(BuildHookInterface[Any]):
    """Found by hatchling, which names it in ``[tool.hatch.build.targets.wheel.hooks.custom]``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wheels = sorted(Path(self.root, "build", "shipped").glob("llama_cpp_python-*.whl"))
        if wheels and version == "standard":
            build_data["force_include"][str(wheels[-1])] = f"app/files/shipped/{wheels[-1].name}"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{os.environ.get(TAG, 'linux_x86_64')}"
