"""A whole server over scripted engines: its ports, and what it announces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from app.server import serving
from app.settings.model import LimitSettings, ServerSettings
from hardware.settings import Array, Robot
from tests.support.beside import beside
from tests.support.staged_server import StagedAssistant


class Listening(StagedAssistant):
    """The part of an ``Assistant`` that ``run_server`` needs."""

    def __init__(self, **server: Any) -> None:
        super().__init__()
        self.settings = SimpleNamespace(
            array=Array(),
            robot=Robot(),
            server=ServerSettings.model_validate(server),
            limits=LimitSettings(),
            accepted=None,
        )
        self.ready = asyncio.Event()
        self.closed = asyncio.Event()

    async def run(self, on_engine_ready: object, *, without_servers: bool) -> None:
        for _ in range(20):
            await asyncio.sleep(0)  # all other tasks have begun
        self.ready.set()
        await self.closed.wait()

    def close(self) -> None:
        self.closed.set()


@asynccontextmanager
async def listening(assistant: Any, **options: Any) -> AsyncIterator[int]:
    """Yields the port once clients are served. ``options``: of ``run_server``."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    life = serving.run_server(
        assistant, on_engine_ready=lambda kind: None, on_ready=port.set_result, port=0, **options
    )
    async with beside(life) as running:
        either: set[asyncio.Future[Any]] = {running, port}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        yield port.result()
