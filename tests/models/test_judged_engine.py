"""The life of a language model by URL together with the one that judges words for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from app.models.judged_engine import JudgedEngine
from pipeline.errors import EngineError
from tests.support.scripted import ScriptedLlm
from tests.support.watched_log import watched_log


class Part:
    """An engine that is ready when told so, and ends by ``close`` or an error."""

    name, problem, stage = "llm far", None, ScriptedLlm()

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.ready: Callable[[], None] = lambda: None
        self.error: EngineError | None = None
        self.ended = 0

    async def run(self, ready: Callable[[], None]) -> None:
        self.ready = ready
        await self.closed.wait()
        self.ended += 1
        if self.error:
            raise self.error

    def close(self) -> None:
        self.closed.set()

    def fail(self, why: str) -> None:
        self.error = EngineError(why)
        self.close()


class Scene:
    def __init__(self) -> None:
        self.far, self.judge = Part(), Part()
        far: Any = self.far
        judge: Any = self.judge
        self.engine = JudgedEngine(far, judge, "Be kind.")
        self.ready = 0

    def is_ready(self) -> None:
        self.ready += 1


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("first", ["far", "judge"])
async def test_it_is_ready_when_both_are(scene: Scene, first: str) -> None:
    parts = [scene.far, scene.judge] if first == "far" else [scene.judge, scene.far]
    life = asyncio.create_task(scene.engine.run(scene.is_ready))
    await settled()
    for count, part in enumerate(parts):
        assert scene.ready == 0
        part.ready()
        assert scene.ready == count
    parts[0].ready()
    assert scene.ready == 1, "a judge that comes back after a crash changes nothing"
    scene.engine.close()
    await life
    assert (scene.far.ended, scene.judge.ended) == (1, 1)


async def test_a_judge_that_cannot_be_loaded_is_done_without(scene: Scene) -> None:
    with watched_log("reachy_voice.llm") as log:
        life = asyncio.create_task(scene.engine.run(scene.is_ready))
        await settled()
        scene.far.ready()
        scene.judge.fail("The file is damaged")
        await settled()
    assert scene.ready == 1
    await log.until("without judging the words: The file is damaged")
    scene.engine.close()
    await life


async def test_an_engine_that_fails_closes_its_judge(scene: Scene) -> None:
    life = asyncio.create_task(scene.engine.run(scene.is_ready))
    await settled()
    scene.far.fail("No server")
    with pytest.raises(EngineError, match="No server"):
        await life
    assert scene.judge.ended == 1
    assert scene.ready == 0
