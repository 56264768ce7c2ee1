"""One demanding client does not starve another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.commands import AppendAudio, CreateResponse, SessionConfig
from pipeline.events import ReplyFinished
from pipeline.speaking.replies import MAX_RUNNING
from pipeline.work import Priority
from pipeline.workers.host import Answer, EngineHost, JobEnd, Promote, Submit
from pipeline.workers.tuning import STREAM_CREDIT
from reachy_voice.testing import LevelVad, ScriptedLlm, in_virtual_time, scene

pytestmark = pytest.mark.quick

# --- in an engine ------------------------------------------------------------------------------


class Talker:
    """An engine that records whose steps it runs. ``then``: called at the n-th step."""

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
        """A new client with one short job."""
        self.came += 1
        client = 10 + self.came % self.strangers
        self.host.receive(Submit(self.came, 0, "once", (), 0, False, client=client))

    def _answered(self, answer: Answer) -> None:
        if isinstance(answer, JobEnd) and answer.job and 0 < self.came < 600:
            self.a_stranger_comes()

    def steps_of(self, name: str) -> list[int]:
        self.host.run_until_idle()
        return [at for at, each in enumerate(self.steps) if each == name]


def busy_engine() -> Talker:
    """An engine busy with as many replies as one client may have at once."""
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
def test_new_clients_do_not_starve_one_being_served(strangers: int) -> None:
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
    """Counts the audio it has scored. It runs on the loop, like ours, and never yields."""

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


@in_virtual_time
async def test_minutes_of_audio_at_once_do_not_block_others() -> None:
    """Computing takes no virtual time, so progress is measured by the other client's."""
    vad, text = CountingVad(), SessionConfig("Be brief.", modality="text")
    llm = ScriptedLlm(first_s=0.0, per_token_s=0.0)
    async with scene(vad=vad) as greedy, scene(config=text, llm=llm) as guest:
        minute = AppendAudio(np.zeros(60 * LISTEN_RATE, np.int16), LISTEN_RATE)
        audio = asyncio.create_task(greedy.do(*[minute] * 10))
        await vad.busy.wait()
        await guest.session.submit(CreateResponse())
        await guest.until(ReplyFinished)
        assert vad.seconds < 60, "of ten minutes"
        audio.cancel()
