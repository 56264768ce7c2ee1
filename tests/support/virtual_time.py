"""Runs tests in virtual time (``pipeline.recording.virtual_time``)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from pipeline.recording.virtual_time import VirtualLoop


def run_virtual(main: Coroutine[Any, Any, Any]) -> Any:
    """Run ``main`` in virtual time; fail if it leaves a task behind."""
    loop = VirtualLoop()
    try:
        result = loop.run_until_complete(main)
        leaked = asyncio.all_tasks(loop)
        assert not leaked, f"leaked tasks: {leaked}"
        return result
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


__all__ = ["VirtualLoop", "run_virtual"]
