"""One client that asks for a lot does not starve another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any

import numpy as np
import pytest

from app.compose import new_id
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.bus import Bus, Subscription
from pipeline.commands import AppendAudio, Command, CreateResponse, ResponseOptions, SessionConfig
from pipeline.engines.contract import Delta, Finished, TextDelta
from pipeline.engines.stages import Stages
from pipeline.events import ReplyFinished
from pipeline.messages import LlmRequest, Usage
from pipeline.session import Session
from pipeline.settings import SessionSettings
from pipeline.speaking.replies import MAX_RUNNING
from pipeline.work import Priority, Work
from pipeline.workers.host import Answer, Done, EngineHost, Promote, Submit
from pipeline.workers.tuning import STREAM_CREDIT
from reachy_voice.testing import (
    LevelVad,
    ScriptedConversation,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
    in_virtual_time,
    run_virtual,
)

pytestmark = pytest.mark.quick

# --- in an engine ------------------------------------------------------------------------------


class Talker:
    """An engine that notes whose steps it makes. ``then``: what happens at the n-th step."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.then: dict[int, Callable[[], None]] = {}
        self.strangers = 0
        self.came = 0
        self.host = EngineHost(self, self._answered)

    def talk(self, client: str, cancel: object) -> Iterator[int]:
        for item in range(STREAM_CREDIT - 1):
            self.steps.append(client)
            self.then.get(len(self.steps), lambda: None)()
            yield item

    def once(self) -> None:
        self.steps.append("stranger")

    def submit(self, job: int, name: str, priority: Priority = Priority.CONFIRMED) -> None:
        number = {"greedy": 1, "guest": 2}[name]
        self.host.receive(Submit(job, 0, "talk", (name,), int(priority), True, client=number))

    def a_stranger_comes(self) -> None:
        """A client with one short job."""
        self.came += 1
        client = 10 + self.came % self.strangers
        self.host.receive(Submit(self.came, 0, "once", (), 0, False, client=client))

    def _answered(self, answer: Answer) -> None:
        if isinstance(answer, Done) and answer.job and 0 < self.came < 600:
            self.a_stranger_comes()

    def steps_of(self, name: str) -> list[int]:
        self.host.run_until_idle()
        return [at for at, each in enumerate(self.steps) if each == name]


def busy_engine() -> Talker:
    """Busy with every reply that one client may have at once."""
    engine = Talker()
    for job in range(MAX_RUNNING):
        engine.submit(job, "greedy")
    return engine


def test_a_newcomer_is_served_at_once_and_then_every_round() -> None:
    engine = busy_engine()
    engine.then[5] = lambda: engine.submit(100, "guest")
    mine = engine.steps_of("guest")
    assert len(mine) == STREAM_CREDIT - 1
    assert max(np.diff([5, *mine])) == 2, "every other step, however much the other client asks for"


def test_work_that_becomes_urgent_waits_no_longer() -> None:
    engine = busy_engine()
    engine.then[5] = lambda: engine.submit(100, "guest", Priority.SPECULATIVE)
    engine.then[50] = lambda: engine.host.receive(Promote(100, int(Priority.CONFIRMED)))
    assert engine.steps_of("guest")[0] == 50


@pytest.mark.parametrize("strangers", [600, 20])
def test_clients_that_come_and_go_do_not_starve_one_that_is_being_served(strangers: int) -> None:
    engine = Talker()
    engine.strangers = strangers
    engine.submit(0, "guest")
    for _ in range(3):
        engine.a_stranger_comes()
    mine = engine.steps_of("guest")
    assert len(mine) == STREAM_CREDIT - 1
    assert max(np.diff(mine)) <= 4, "three others wait at any time"


# --- in the session ----------------------------------------------------------------------------


class CountingVad(LevelVad):
    """Knows how much it has heard. It runs on the loop, as ours does, and gives way to nobody."""

    def __init__(self) -> None:
        self.windows = 0
        self.busy = asyncio.Event()

    async def score(self, pcm: Pcm) -> float:
        self.windows += 1
        if self.seconds > 5:
            self.busy.set()
        return await super().score(pcm)

    @property
    def seconds(self) -> float:
        return self.windows * self.window_samples / LISTEN_RATE


class House:
    """Sessions over the same engines; ``async with`` it."""

    def __init__(self, llm: ScriptedLlm) -> None:
        self.finished: dict[str, float] = {}
        """When everybody's first reply ended."""
        self._changed = asyncio.Event()
        self._others = ScriptedTurn(), ScriptedStt(), llm, ScriptedTts()
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> House:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(None, None, None)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(self._group.create_task(work))

    def session(self, name: str, vad: CountingVad) -> Session:
        bus = Bus()
        config = SessionConfig("Be brief.", modality="text")
        session = Session(Stages(vad, *self._others), config, SessionSettings(), bus, new_id)
        self.begin(session.run())
        self.begin(self._watch(name, bus.subscribe()))
        return session

    async def _watch(self, name: str, events: Subscription) -> None:
        async for at, event in events:
            if isinstance(event, ReplyFinished):
                self.finished.setdefault(name, at)
                self._changed.set()

    async def until_finished(self, name: str) -> float:
        while name not in self.finished:
            self._changed.clear()
            await self._changed.wait()
        return self.finished[name]


async def submit_all(session: Session, *commands: Command) -> None:
    for command in commands:
        await session.submit(command)


@in_virtual_time
async def test_minutes_of_audio_at_once_do_not_hold_up_the_other() -> None:
    """Computing takes no virtual time, so progress is measured by how far the other one gets."""

    vad = CountingVad()
    async with House(ScriptedLlm(first_s=0.0, per_token_s=0.0)) as house:
        greedy, guest = house.session("greedy", vad), house.session("guest", CountingVad())
        minute = AppendAudio(np.zeros(60 * LISTEN_RATE, np.int16), LISTEN_RATE)
        house.begin(submit_all(greedy, *[minute] * 10))
        await vad.busy.wait()
        await guest.submit(CreateResponse())
        await house.until_finished("guest")
        assert vad.seconds < 60, "of ten minutes"


class SerialLlm(ScriptedLlm):
    """One token at a time for everybody together, as from one processor."""

    def __init__(self) -> None:
        super().__init__(first_s=0.0)
        self.processor = asyncio.Lock()

    def open(self) -> ScriptedConversation:
        return SerialConversation(self)


class SerialConversation(ScriptedConversation):
    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        assert isinstance(self.llm, SerialLlm)
        for word in self.llm.deltas:
            async with self.llm.processor:
                await asyncio.sleep(TOKEN_S)
            assert isinstance(word, str)
            yield TextDelta(word)
        yield Finished("stop", Usage())

    def close(self) -> None:
        pass


TOKEN_S = 0.02


def test_many_requests_of_one_slow_the_other_down_by_a_bounded_factor() -> None:
    async def answered_in(greedy_requests: int) -> float:
        llm = SerialLlm()
        async with House(llm) as house:
            greedy = house.session("greedy", CountingVad())
            guest = house.session("guest", CountingVad())
            aside = CreateResponse(ResponseOptions(in_conversation=False))
            await submit_all(greedy, *[aside] * greedy_requests)
            await asyncio.sleep(TOKEN_S)
            began = asyncio.get_running_loop().time()
            await guest.submit(CreateResponse())
            return await house.until_finished("guest") - began

    alone_s = run_virtual(answered_in(0))
    assert alone_s < run_virtual(answered_in(1)) <= 2.2 * alone_s
    assert run_virtual(answered_in(200)) <= (MAX_RUNNING + 1.2) * alone_s
