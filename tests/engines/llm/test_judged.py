"""A language model that does not judge words, paired with one that does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from pipeline.engines.contract import Delta, EndOfTurn, Finished, TextDelta, Warmed
from pipeline.engines.llm.judged import JudgedLlm
from pipeline.errors import EngineError
from pipeline.events import TurnJudged
from pipeline.messages import LlmRequest, Message, Usage
from pipeline.work import Work
from reachy_voice.testing import (
    ScriptedConversation,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTurn,
    play,
    say,
    silence,
)

pytestmark = pytest.mark.quick

INSTRUCTIONS = "Be kind."
OWN = Message("system", "You are a pirate. " * 500)
SAID = Message("user", "can you find out how")
ANSWER = (TextDelta("Aye."), Finished("stop", Usage(3, 0, 3, 2)))


@dataclass
class Model:
    """Answers or reads ahead once ``free`` is set. ``left``: how many requests were cancelled
    before."""

    probability: float | None = None
    error: EngineError | None = None
    free: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    read: list[tuple[tuple[Message, ...], str]] = field(default_factory=list)
    left: int = 0
    closed: int = 0

    def open(self) -> Model:
        return self

    async def _wait(self) -> None:
        self.asked.set()
        try:
            await self.free.wait()
        except asyncio.CancelledError:
            self.left += 1
            raise
        if self.error:
            raise self.error

    async def warm(self, request: LlmRequest, work: Work) -> Warmed:
        self.read.append((tuple(request.messages), request.unfinished))
        await self._wait()
        return Warmed(end_probability=self.probability)

    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        await self._wait()
        for delta in ANSWER:
            yield delta

    def close(self) -> None:
        self.closed += 1


def reply(llm: Model, judge: Model, *messages: Message) -> AsyncGenerator[Delta, None]:
    conversation = JudgedLlm(llm, judge, INSTRUCTIONS).open()
    return conversation.reply(LlmRequest(messages or (OWN, SAID)), Work())


async def test_the_opinion_comes_before_the_answer() -> None:
    llm, judge = Model(), Model(0.2)
    judge.free.set()
    async with aclosing(reply(llm, judge)) as deltas:
        assert await anext(deltas) == EndOfTurn(0.2)
        llm.free.set()
        assert [delta async for delta in deltas] == list(ANSWER)


async def test_an_answer_does_not_wait_for_the_opinion() -> None:
    llm, judge = Model(), Model(0.2)
    llm.free.set()
    assert [delta async for delta in reply(llm, judge)] == list(ANSWER)
    assert judge.left == 1


async def test_an_opinion_during_the_answer_is_passed_on() -> None:
    llm, judge = Model(), Model(0.2)
    llm.free.set()
    async with aclosing(reply(llm, judge)) as deltas:
        assert await anext(deltas) == ANSWER[0]
        judge.free.set()
        rest = [delta async for delta in deltas]
    assert rest in ([EndOfTurn(0.2), ANSWER[1]], [ANSWER[1], EndOfTurn(0.2)])


@dataclass
class SlowJudge(ScriptedLlm):
    def open(self) -> Judging:
        return Judging(self)


class Judging(ScriptedConversation):
    async def warm(self, request: LlmRequest, work: Work) -> Warmed:
        await asyncio.sleep(0.25)
        return Warmed(end_probability=0.0001)


def test_a_late_opinion_still_lengthens_the_wait() -> None:
    quick = ScriptedLlm(deltas=("Aye, ",) * 60, first_s=0.01)
    llm = JudgedLlm(quick, SlowJudge(), INSTRUCTIONS)
    stt = ScriptedStt(texts=("can you find out how",))
    played = play(say(1.0), silence(3.0), llm=llm, stt=stt, turn=ScriptedTurn(0.3))
    read = [judged for judged in played.events(TurnJudged) if "words" in judged.reasons]
    unread = [judged for judged in played.events(TurnJudged) if "words" not in judged.reasons]
    assert read[-1].wait_ms > unread[-1].wait_ms
    assert played.reply.usage.prompt


@pytest.mark.parametrize("judge", [Model(None), Model(0.2, EngineError("It is gone"))])
async def test_without_an_opinion_there_is_still_an_answer(judge: Model) -> None:
    llm, judge = Model(), Model(judge.probability, judge.error)
    judge.free.set()
    deltas = asyncio.create_task(anext(reply(llm, judge)))  # type: ignore[arg-type]
    await judge.asked.wait()
    llm.free.set()
    assert await deltas == ANSWER[0]


async def test_an_answer_that_fails_ends_the_judging() -> None:
    llm, judge = Model(error=EngineError("No server")), Model(0.2)
    llm.free.set()
    with pytest.raises(EngineError, match="No server"):
        await anext(reply(llm, judge))
    assert judge.left == 1


async def test_an_unwanted_answer_ends_both() -> None:
    llm, judge = Model(), Model(0.2)
    deltas = reply(llm, judge)
    waiting = asyncio.create_task(anext(deltas))  # type: ignore[arg-type]
    await asyncio.gather(llm.asked.wait(), judge.asked.wait())
    waiting.cancel()
    await asyncio.wait({waiting})
    assert (llm.left, judge.left) == (1, 1)
    judge.free.set()
    async with aclosing(reply(llm, judge)) as deltas:
        assert await anext(deltas) == EndOfTurn(0.2)
    assert llm.left == 2


async def test_the_judge_reads_the_last_question_and_the_words() -> None:
    llm, judge = Model(), Model(0.2)
    llm.free.set()
    question = "Where to? " * 100
    before = (OWN, Message("user", "Hello."), Message("assistant", question))
    async for _ in reply(llm, judge, *before, Message("tool", "42"), SAID):
        pass
    ((messages, said),) = judge.read
    assert messages == (Message("system", INSTRUCTIONS), Message("assistant", question[-200:]))
    assert said == SAID.content
    async for _ in reply(llm, judge, OWN, SAID, Message("tool", "42")):
        pass
    assert len(judge.read) == 1, "the user has not spoken"


async def test_both_read_ahead_and_both_are_closed() -> None:
    llm, judge = Model(), Model(0.2)
    conversation = JudgedLlm(llm, judge, INSTRUCTIONS).open()
    llm.free.set()
    judge.free.set()
    assert await conversation.warm(LlmRequest((OWN,), unfinished="can you"), Work()) == Warmed()
    assert llm.read == [((OWN,), "can you")]
    assert judge.read == [((Message("system", INSTRUCTIONS),), "can you")]
    conversation.close()
    assert (llm.closed, judge.closed) == (1, 1)


async def test_the_model_reads_ahead_if_the_judge_cannot() -> None:
    llm, judge = Model(), Model(error=EngineError("It is gone"))
    llm.free.set()
    judge.free.set()
    conversation = JudgedLlm(llm, judge, INSTRUCTIONS).open()
    assert await conversation.warm(LlmRequest((OWN,)), Work()) == Warmed()
