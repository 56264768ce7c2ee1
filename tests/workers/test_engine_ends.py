"""An engine's process ends during a session: the fate of the turn. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.commands import CreateResponse
from pipeline.engines.contract import Partial, Transcript
from pipeline.engines.stages import Stages
from pipeline.errors import EngineCrashed
from pipeline.events import ReplyAudio, ReplyFinished, ReplyText, TranscriptPartial, TranscriptReady
from pipeline.hearing.keywords import Keywords
from pipeline.hearing.recognition import Recognition
from pipeline.settings import Lexicon, SessionSettings
from pipeline.work import Work
from reachy_voice.testing import (
    LevelVad,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
    ScriptedUtterance,
    in_virtual_time,
    scene,
)
from tests.support.beside import beside

pytestmark = pytest.mark.quick

CRASHED = EngineCrashed("The engine's process ended")
SORRY = "Sorry, please say that again."
APOLOGISING = SessionSettings(apology=SORRY)


# --- listening ---------------------------------------------------------------------------------


class MortalVad(LevelVad):
    """Fails for windows from ``dead_from`` to ``dead_to``, in loop seconds."""

    dead_from = dead_to = 0.0

    async def open(self, work: Work) -> MortalVad:
        return self

    async def score(self, pcm: Pcm) -> float:
        if self.dead_from <= asyncio.get_running_loop().time() < self.dead_to:
            raise CRASHED
        return await super().score(pcm)


@in_virtual_time
async def test_a_session_survives_its_voice_detector() -> None:
    vad = MortalVad()
    vad.dead_from, vad.dead_to = 1.0, 4.0
    async with scene(vad=vad) as it:
        await it.say(2.0)
        await it.hear(6.0)
        # The part heard before counts as a turn, since the rest is silence.
        assert it.statuses == ["completed"]
        await it.say(1.0)
        await it.hear(5.0)
        assert it.statuses == ["completed", "completed"]


# --- recognising -------------------------------------------------------------------------------


@dataclass
class MortalStt(ScriptedStt):
    """Crashes in the calls with these numbers, counted over all utterances."""

    ends_in_feed: set[int] = field(default_factory=set)
    ends_in_finish: set[int] = field(default_factory=set)
    fed: int = 0
    asked: int = 0
    with_partials: list[bool] = field(default_factory=list)
    languages: Sequence[str] = ("en",)
    """Otherwise the language might be the cause."""

    async def open(self, language: str, partials: bool, work: Work) -> MortalUtterance:
        self.opened += 1
        self.with_partials.append(partials)
        return MortalUtterance(self, partials, self.generation, list(self.partials))


class MortalUtterance(ScriptedUtterance):
    stt: MortalStt

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        self.stt.fed += 1
        if self.stt.fed in self.stt.ends_in_feed:
            raise CRASHED
        return await super().feed(pcm, work)

    async def finish(self, work: Work) -> Transcript:
        self.stt.asked += 1
        ends = self.stt.asked in self.stt.ends_in_finish
        await asyncio.sleep(self.stt.takes_s)
        if ends:
            raise CRASHED
        return await super().finish(work)


@pytest.mark.parametrize(
    ("feeds", "finishes", "ends"),
    [
        ({10}, set(), ["completed"]),
        (set(), {1}, ["completed"]),
        ({10}, {1}, ["failed"]),
        (set(), {1, 2}, ["failed"]),
    ],
)
@in_virtual_time
async def test_a_crashed_recogniser_gets_the_utterance_again_once(
    feeds: set[int], finishes: set[int], ends: list[str]
) -> None:
    stt = MortalStt(ends_in_feed=feeds, ends_in_finish=finishes)
    async with scene(stt=stt, settings=APOLOGISING) as it:
        await it.say(1.0)
        await it.hear(6.0)
        assert it.statuses == ends
        if ends == ["completed"]:
            said = it.events(TranscriptReady)[0]
            loud = np.abs(stt.finished[0].astype(int)) > 500
            assert loud.sum() >= 0.95 * LISTEN_RATE
            assert said.seconds == pytest.approx(len(loud) / LISTEN_RATE)
        else:
            assert SORRY in [event.text for event in it.events(ReplyText)]
        await it.say(1.0)
        await it.hear(6.0)
        assert it.statuses == [*ends, "completed"]
    assert stt.opened == 0


@in_virtual_time
async def test_sent_words_are_not_sent_again() -> None:
    stt = MortalStt(partials=["hello"] * 40, ends_in_feed={30}, streams=True)
    settings = SessionSettings(partials=True)
    async with scene(stt=stt, settings=settings) as it:
        await it.say(1.5)
        await it.hear(5.0)
        assert it.statuses == ["completed"]
    assert stt.with_partials == [True, False]
    assert "".join(event.text for event in it.events(TranscriptPartial)).count("hello") <= 1


@in_virtual_time
async def test_two_waiters_for_the_same_words_both_get_them() -> None:
    stt = MortalStt(ends_in_finish={1, 2})
    stages = Stages(LevelVad(), ScriptedTurn(), stt, ScriptedLlm(), ScriptedTts())
    recognition = Recognition(stages, "", Keywords((), Lexicon()))
    recognition.append(np.full(1600, 900, np.int16))
    async with beside(recognition.run()):
        texts = await asyncio.gather(*(recognition.transcript(Work()) for _ in range(2)))
        assert [said.text for said in texts] == ["hello", "hello"]
    stt.ends_in_finish = {stt.asked + 1}
    with pytest.raises(EngineCrashed):
        await recognition.transcript(Work())


# --- answering ---------------------------------------------------------------------------------


ENDS = (CRASHED,)


@pytest.mark.parametrize(
    ("answers", "ending"),
    [([ENDS], "completed"), ([ENDS] * 2, "failed"), ([("I ", "am ", *ENDS)], "failed")],
)
@in_virtual_time
async def test_a_crashed_language_model_is_asked_again_unless_it_answered(
    answers: list[Any], ending: str
) -> None:
    llm = ScriptedLlm()
    # Nothing is begun before the turn is over: it would be discarded and hide the effect.
    async with scene(llm=llm, settings=APOLOGISING) as it:
        await it.say(1.0)
        await it.hear(6.0)
        llm.answers = list(answers)
        await it.do(CreateResponse())
        await it.hear(8.0)
        assert it.statuses == ["completed", ending]
        await it.say(1.0)
        await it.hear(6.0)
        assert it.statuses == ["completed", ending, "completed"]
    said = [event.text for event in it.events(ReplyText)]
    assert (SORRY in said) == (ending == "failed")


@pytest.mark.parametrize(("ends", "ending"), [(1, "completed"), (2, "failed")])
@in_virtual_time
async def test_a_crashed_voice_says_the_rest_of_its_clause(ends: int, ending: str) -> None:
    tts = ScriptedTts(errors=[None, *[CRASHED] * ends])
    llm = ScriptedLlm(["Hello there, my friend. ", "How are you today? ", "I am fine."])
    async with scene(llm=llm, tts=tts) as it:
        await it.say(1.0)
        await it.hear(9.0)
        assert it.statuses == [ending]
        await it.say(1.0)
        await it.hear(9.0)
        assert it.statuses[-1] == "completed"
    if ending == "completed":
        assert tts.said[1] == tts.said[2]
        first = [
            e for e in it.events(ReplyAudio) if e.reply_id == it.events(ReplyFinished)[0].reply_id
        ]
        spoken_s = sum(len(event.pcm) / event.rate for event in first)
        assert spoken_s == pytest.approx(0.3 * 11, abs=0.3)
