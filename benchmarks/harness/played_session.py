"""A real session with the caller's engines, for benchmarks in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from pipeline.audio import LISTEN_RATE, AudioFormat
from pipeline.bus import Bus, Published
from pipeline.commands import SessionConfig
from pipeline.engines.stages import Stages
from pipeline.session import Session
from pipeline.settings import SessionSettings

SPOKEN = SessionConfig(instructions="Be brief.", output_format=AudioFormat(rate=LISTEN_RATE))


@asynccontextmanager
async def played_session(
    stages: Stages,
    settings: SessionSettings,
    note: Callable[[Published], None],
    config: SessionConfig = SPOKEN,
    began: float | None = None,
) -> AsyncIterator[Session]:
    """Run a session until the context ends; ``note`` gets every event as it happens. Times are
    seconds on the loop's clock since ``began`` (default: now). Raises the session's error."""
    bus, counter = Bus(), itertools.count(1)
    zero = asyncio.get_running_loop().time() if began is None else began
    bus.tap(lambda published: note(Published(published.at - zero, published.event)))
    session = Session(stages, config, settings, bus, lambda prefix: f"{prefix}_{next(counter)}")
    running = asyncio.create_task(session.run())
    try:
        yield session
    finally:
        running.cancel()
        await asyncio.wait({running})
        bus.close()
    if not running.cancelled() and (error := running.exception()):
        raise error
