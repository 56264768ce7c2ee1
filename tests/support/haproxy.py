"""HAProxy with the configuration of ``examples/fleet``."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.far_server import free_port
from tests.support.programs import running

CONFIG = Path(__file__).resolve().parents[2] / "examples" / "fleet" / "haproxy.cfg"
PROGRAM = Path("/usr/sbin/haproxy")
"""Debian's path; not every PATH has that folder."""

needs_haproxy = pytest.mark.skipif(
    not PROGRAM.exists() and not os.environ.get("CI"),
    reason="haproxy is not installed (Debian: apt-get install haproxy)",
)


@asynccontextmanager
async def behind_haproxy(ports: Sequence[int], key: str) -> AsyncIterator[int]:
    """The port of a load balancer for two servers, whose readiness checks use ``key``."""
    text, front = CONFIG.read_text(), free_port()
    for before, after in zip((8765, 8771, 8772), (front, *ports), strict=True):
        assert f":{before}" in text
        text = text.replace(f":{before}", f":{after}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "haproxy.cfg"
        await asyncio.to_thread(file.write_text, text)
        environ = {**os.environ, "REACHY_VOICE_KEY": key}
        command = (str(PROGRAM), "-W", "-f", str(file))
        async with running(*command, ready="Loading success", env=environ):
            yield front
