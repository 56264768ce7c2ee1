"""Running engines by URL, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.by_url.pool import Pool
from pipeline.engines.contract import Delta
from pipeline.engines.registry import Kind, UrlEngineSpec, engine_spec
from pipeline.messages import LlmRequest, Message, Sampling, Tool, ToolChoice
from pipeline.work import Work
from pipeline.workers.stages import llm_stage
from tests.support.far_server import FarServer, serving
from tests.support.watched_log import WatchedLog, watched_log

SPECS = {
    (kind, name): engine_spec(kind, name)
    for kind, name in (
        (Kind.LLM, "openai-chat"),
        (Kind.STT, "openai-transcriptions"),
        (Kind.TTS, "openai-speech"),
    )
}
"""Looked up here, since modules must not be imported on the event loop."""

HELLO = (Message("system", "Be brief."), Message("user", "Hello, who are you?"))
DANCE = Tool(
    "dance",
    "Dance some steps",
    {"type": "object", "properties": {"steps": {"type": "integer"}}, "required": ["steps"]},
)
NOD = Tool("nod", "Nod", {"type": "object", "properties": {}})


def built(pool: Pool, kind: Kind, name: str, url: str, **options: Any) -> UrlEngine:
    """An engine that does not run yet. ``start_s`` is 0: it raises start errors at once and makes
    no unexpected requests."""
    spec = SPECS[kind, name]
    assert isinstance(spec, UrlEngineSpec)
    quiet = {"start_s": 0.0, "warm_up": False}
    given = spec.options.model_validate({"engine": name, "url": url, **quiet, **options})
    engine: UrlEngine = spec.build(given, pool)
    return engine


@asynccontextmanager
async def running(kind: Kind, name: str, url: str, **options: Any) -> AsyncIterator[UrlEngine]:
    """An engine whose server works."""
    async with Pool() as pool:
        engine = built(pool, kind, name, url, **options)
        async with alive(engine):
            yield engine


@asynccontextmanager
async def chat_with(far: FarServer, **options: Any) -> AsyncIterator[UrlEngine]:
    """A language model on a server that is started for it."""
    async with serving(far), running(Kind.LLM, "openai-chat", far.url, **options) as engine:
        yield engine


@asynccontextmanager
async def alive(engine: UrlEngine) -> AsyncIterator[UrlEngine]:
    """Raises what ``run`` raises before it is ready."""
    life = asyncio.create_task(engine.run(lambda: None))
    becoming = asyncio.create_task(engine.ready.wait())
    await asyncio.wait({life, becoming}, return_when=asyncio.FIRST_COMPLETED)
    becoming.cancel()
    try:
        if life.done():
            life.result()
        yield engine
    finally:
        engine.close()
        await asyncio.wait({life})
    life.result()


def told() -> AbstractContextManager[WatchedLog]:
    """The log of engines by URL while the context lasts."""
    return watched_log("reachy_voice.by_url")


async def answer(
    engine: UrlEngine,
    *messages: Message,
    tools: tuple[Tool, ...] = (),
    choice: ToolChoice | None = None,
    sampling: Sampling | None = None,
    work: Work | None = None,
) -> list[Delta]:
    """All events of one reply."""
    request = LlmRequest(messages or HELLO, tools, choice or ToolChoice(), sampling or Sampling())
    deltas = llm_stage(engine).open().reply(request, work or Work())
    return [delta async for delta in deltas]


async def answered(far: FarServer, *messages: Message, **how: Any) -> list[Delta]:
    """All events of one reply of a server started for it."""
    async with chat_with(far) as engine:
        return await answer(engine, *messages, **how)
