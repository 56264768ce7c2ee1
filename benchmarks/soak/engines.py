"""Engines of a soak in virtual time: quick, slow, and failing now and then, by a seed.

What somebody says is coded in how loud it is (``level_of``), so that the recogniser knows its
words, as far as they have been heard. All sessions share one computer
(``virtual_engines.Computer``), on which each engine does one thing at a time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.harness.virtual_engines import NO_DELAYS, Computer
from pipeline.audio import EMPTY, LISTEN_RATE, Pcm
from pipeline.engines.contract import (
    Delta,
    EndOfTurn,
    Finished,
    Partial,
    TextDelta,
    ToolCall,
    Transcript,
    Warmed,
)
from pipeline.engines.stages import Stages
from pipeline.errors import EngineError
from pipeline.messages import Message, Sampling, SpeechRequest, Tool, ToolChoice, Usage
from pipeline.work import Work
from tests.support.moody_voice import hum, speechlike

PHRASES = (
    "What time is it?",
    "Tell me a story about a lighthouse, please.",
    "Can you turn your head to the left and tell me what you see there?",
    "I was thinking about, um",
    "How many legs does a spider have?",
    "And what about the other one?",
    "Stop.",
    "No, wait a moment.",
    "What is that over there?",
    "Mm-hm.",
    "Yeah, right.",
    "Okay.",
    "",
)
"""The last one is a noise."""
QUESTIONS, INTERRUPTIONS, BACKCHANNELS, NOISE = range(6), range(6, 9), range(9, 12), 12
SECONDS_PER_WORD = 0.32
NOISE_S = 0.3
_LOWEST, _STEP = 2000, 200
_LOOK = LISTEN_RATE // 50
"""Samples for each look at how loud it is."""
RATE = 24_000
"""Of the voice, Hz."""
BANK_S = 60.0
S_PER_CHAR = 0.065


def level_of(phrase: int) -> int:
    """The samples that stand for it."""
    return _LOWEST + _STEP * phrase


def seconds_of(phrase: int) -> float:
    return SECONDS_PER_WORD * len(PHRASES[phrase].split()) or NOISE_S


@dataclass
class Odds:
    """How engines behave. Shares are of their calls."""

    rng: random.Random
    failures: float = 0.01
    slow: float = 0.02
    """Calls that take ten times as long."""
    hums: float = 0.01
    stuck: float = 0.003
    calls: float = 0.15
    failed: int = 0
    """How often an engine failed."""

    def seconds(self, usual_s: float) -> float:
        factor = 10.0 if self.rng.random() < self.slow else 1.0
        return usual_s * factor * self.rng.lognormvariate(0.0, 0.5)

    def fail(self) -> None:
        if self.rng.random() < self.failures:
            self.failed += 1
            raise EngineError("The engine failed, as it was told to")


@dataclass
class Engines:
    """All of them. ``opened``: streams, utterances, conversations and calls that are open now."""

    odds: Odds
    computer: Computer = field(default_factory=lambda: Computer(NO_DELAYS))
    opened: int = 0
    bank: Pcm = field(default_factory=lambda: speechlike(BANK_S, rate=RATE))

    def stages(self) -> Stages:
        return Stages(Vad(self), Turn(self), Stt(self), Llm(self), Tts(self))

    async def work(self, engine: str, usual_s: float, work: Work, stoppable: bool = True) -> None:
        """Raises ``Cancelled`` and, now and then, ``EngineError``."""
        await self.computer.work(
            engine,  # type: ignore[arg-type]
            self.odds.seconds(usual_s),
            work,
            stoppable=stoppable,
        )
        self.computer.spent.clear()


@dataclass
class _Open:
    engines: Engines
    _closed: bool = False

    def __post_init__(self) -> None:
        self.engines.opened += 1

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.engines.opened -= 1


# --- listening ---------------------------------------------------------------------------------


@dataclass
class Vad:
    engines: Engines
    window_samples: int = 512

    async def open(self) -> VadStream:
        return VadStream(self.engines)


class VadStream(_Open):
    async def score(self, pcm: Pcm) -> float:
        return 0.99 if abs(int(pcm[len(pcm) // 2])) > _LOWEST // 2 else 0.01


@dataclass
class Turn:
    engines: Engines
    history_seconds: float = 8.0

    async def score(self, pcm: Pcm, text: str, work: Work) -> float:
        await self.engines.work("turn", 0.045, work)
        self.engines.odds.fail()
        return 0.3 if text.endswith("um") else self.engines.odds.rng.uniform(0.6, 0.99)


@dataclass
class Stt:
    engines: Engines
    streams: bool = False

    async def open(self, language: str, partials: bool, work: Work) -> Utterance:
        return Utterance(self.engines)


class Utterance(_Open):
    def __init__(self, engines: Engines) -> None:
        super().__init__(engines)
        self._levels: list[Pcm] = []
        self._samples = 0

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        self._levels.append(pcm[_LOOK // 2 :: _LOOK].copy())
        self._samples += len(pcm)
        return Partial()

    async def finish(self, work: Work) -> Transcript:
        audio_s = self._samples / LISTEN_RATE
        await self.engines.work("stt", 0.027 + 0.02 * audio_s, work, stoppable=False)
        self.engines.odds.fail()
        return Transcript(words_of(np.concatenate((EMPTY, *self._levels))), audio_s)


def words_of(levels: Pcm) -> str:
    """What was said, as far as it was heard. ``levels``: 50 a second."""
    said = []
    for level, group in itertools.groupby(levels.tolist()):
        phrase = round((level - _LOWEST) / _STEP)
        words = PHRASES[phrase].split() if 0 <= phrase < len(PHRASES) else []
        heard = len(list(group)) * _LOOK / LISTEN_RATE / SECONDS_PER_WORD
        said += words[: round(heard)]
    return " ".join(said)


# --- answering ---------------------------------------------------------------------------------


@dataclass
class Llm:
    engines: Engines

    def open(self) -> Conversation:
        return Conversation(self.engines)


_ANSWER = (
    "the quick robot looks at an old lighthouse and says that nobody knows when the next ship will "
    "come, so we wait. Perhaps it is late! I think you are right, of course; there are 42 steps."
)


class Conversation(_Open):
    async def warm(
        self, messages: Sequence[Message], tools: Sequence[Tool], work: Work, said: str = ""
    ) -> Warmed:
        await self.engines.work("llm", 0.03, work)
        return Warmed()

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        sampling: Sampling,
        work: Work,
    ) -> AsyncGenerator[Delta, None]:
        engines, rng = self.engines, self.engines.odds.rng
        call = _Open(engines)
        try:
            await engines.work("llm", 0.08, work)
            engines.odds.fail()
            if messages and messages[-1].role == "user":
                yield EndOfTurn(rng.uniform(0.3, 0.99))
            words = _ANSWER.split()
            length, begin = int(rng.triangular(1, 80, 12)), rng.randrange(len(words))
            for word in itertools.islice(itertools.cycle(words), begin, begin + length):
                await engines.work("llm", 0.012, work)
                yield TextDelta(f"{word} ")
            if rng.random() < 0.1 * engines.odds.failures:
                raise EngineError("The engine failed in the middle")
            if tools and rng.random() < engines.odds.calls:
                yield ToolCall(tools[0].name, json.dumps({"where": "here"}))
            yield Finished("stop", Usage(100, 80, 20, length))
        finally:
            call.close()


@dataclass
class Tts:
    """Sound that is like speech, but for what fails."""

    engines: Engines
    rate: int = RATE
    voices: Sequence[str] = ("joe", "amy")

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        engines, rng = self.engines, self.engines.odds.rng
        call = _Open(engines)
        try:
            await engines.work("tts", 0.08, work)
            engines.odds.fail()
            if rng.random() < engines.odds.stuck:
                await asyncio.Event().wait()
            seconds = min(BANK_S / 2, S_PER_CHAR * len(request.text) / request.speed)
            start = rng.randrange(int((BANK_S - seconds) * self.rate))
            pcm = engines.bank[start : start + int(seconds * self.rate)]
            if rng.random() < engines.odds.hums:
                pcm = np.concatenate((pcm[: len(pcm) // 2], hum(8.0, RATE)))
            size = int(0.4 * self.rate)
            for at in range(0, len(pcm), size):
                yield pcm[at : at + size]
                await engines.work("tts", 0.03, work)
        finally:
            call.close()
