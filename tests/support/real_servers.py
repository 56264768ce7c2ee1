"""Real third-party servers: llama.cpp's llama-server and ``examples/audio_server.py``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.models.weights import WeightsCache
from tests.support.far_server import free_port
from tests.support.programs import Program, running
from tests.support.relay import pump

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / ".venv" / ".setup" / "llama-server"
"""Written by script/real-servers: the directory with the program."""
MODEL = "smollm2-135m-instruct"

needs_llama_server = pytest.mark.skipif(
    not BUILT.exists() and not os.environ.get("CI"),
    reason="llama-server is not built; run: script/real-servers",
)


@dataclass
class RealServer:
    program: Program
    port: int

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"


@asynccontextmanager
async def llama_server(
    cache: WeightsCache, *options: str, port: int = 0, slots: int = 1, slot_tokens: int = 2048
) -> AsyncIterator[RealServer]:
    """llama-server with the smallest model, on one thread."""
    port = port or free_port()
    (model,) = await asyncio.to_thread(lambda: cache.path(MODEL).glob("*.gguf"))
    given = {"-m": model, "-a": MODEL, "-np": slots, "-c": slots * slot_tokens, "-t": 1}
    words = [word for pair in given.items() for word in pair]
    program_file = Path(BUILT.read_text()) / "llama-server"
    command = map(str, (program_file, *words, "--port", port, *options))
    async with running(*command, ready="listening on") as program:
        yield RealServer(program, port)


@asynccontextmanager
async def behind_one_url(*servers: RealServer) -> AsyncIterator[str]:
    """A URL that forwards to the first running server, like a load balancer."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for server in servers:
            with suppress(OSError):
                far = await asyncio.open_connection("127.0.0.1", server.port)
                await asyncio.gather(pump(reader, far[1]), pump(far[0], writer))
                return
        writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", port := free_port()):
        yield f"http://127.0.0.1:{port}/v1"


@asynccontextmanager
async def audio_server(port: int = 0) -> AsyncIterator[RealServer]:
    """The audio server with Moonshine and Piper."""
    port = port or free_port()
    example = ROOT / "examples" / "audio_server.py"
    command = map(str, (sys.executable, example, "--port", port))
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    async with running(*command, ready="Uvicorn running on", env=environ) as program:
        yield RealServer(program, port)
