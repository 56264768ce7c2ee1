"""Engines of a soak in virtual time: quick, slow, or failing now and then, by a seed.

Transcripts are drawn at random, whatever was said. All sessions share one computer
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

from benchmarks.harness.virtual_engines import NO_DELAYS, Computer, EngineName
from pipeline.audio import LISTEN_RATE, Pcm
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
from pipeline.messages import LlmRequest, SpeechRequest, Usage
from pipeline.work import Work
from tests.support.moody_voice import S_PER_CHAR, hum, speechlike
from tests.support.scripted import LevelVad

HEARD = (
    "What time is it?",
    "Tell me a story about a lighthouse, please.",
    "I was thinking about, um",
    "How many legs does a spider have?",
    "Stop.",
    "No, wait a moment.",
    "Mm-hm.",
    "Okay.",
    "",
)
"""The last one is a noise."""
ANSWER = (
    "the quick robot looks at an old lighthouse and says that the next ship will come late, so we "
    "wait. Perhaps it is here! I think you are right, of course; there are 42 steps."
)
FAILURES, SLOW, HUMS, STUCK, CALLS = 0.01, 0.02, 0.01, 0.003, 0.15
"""Shares of an engine's calls: that fail, take ten times as long, hum, never end, call a tool."""
RATE = 24_000
"""Of the voice, Hz."""
BANK_S = 60.0


@dataclass
class Engines:
    """All engines. ``opened``: currently open utterances, conversations and calls. ``failed``: how
    often an engine failed on purpose."""

    rng: random.Random
    computer: Computer = field(default_factory=lambda: Computer(NO_DELAYS))
    opened: int = 0
    failed: int = 0
    bank: Pcm = field(default_factory=lambda: speechlike(BANK_S, rate=RATE))

    def stages(self) -> Stages:
        return Stages(LevelVad(), FlakyTurn(self), FlakyStt(self), FlakyLlm(self), FlakyTts(self))

    def happens(self, share: float) -> bool:
        return self.rng.random() < share

    async def work(
        self, engine: EngineName, usual_s: float, work: Work, *, may_fail: bool = False
    ) -> None:
        """Raises ``Cancelled`` and, if it may and by chance, ``EngineError``."""
        seconds = usual_s * (10.0 if self.happens(SLOW) else 1.0)
        seconds *= self.rng.lognormvariate(0.0, 0.5)
        await self.computer.work(engine, seconds, work, stoppable=engine != "stt")
        self.computer.spent.clear()
        if may_fail and self.happens(FAILURES):
            self.failed += 1
            raise EngineError("The engine failed on purpose")


class _Open:
    """A resource that must be closed at least once."""

    def __init__(self, engines: Engines) -> None:
        self.engines = engines
        self._closed = False
        engines.opened += 1

    def close(self) -> None:
        self.engines.opened -= not self._closed
        self._closed = True


@dataclass
class FlakyTurn:
    engines: Engines
    history_seconds: float = 8.0

    async def score(self, pcm: Pcm, text: str, work: Work) -> float:
        await self.engines.work("turn", 0.045, work, may_fail=True)
        return 0.3 if text.endswith("um") else self.engines.rng.uniform(0.6, 0.99)


@dataclass
class FlakyStt:
    engines: Engines
    streams: bool = False
    languages: Sequence[str] = ()

    async def open(self, language: str, partials: bool, work: Work) -> FlakyUtterance:
        return FlakyUtterance(self.engines)


class FlakyUtterance(_Open):
    samples = 0

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        self.samples += len(pcm)
        return Partial()

    async def finish(self, work: Work) -> Transcript:
        audio_s = self.samples / LISTEN_RATE
        await self.engines.work("stt", 0.027 + 0.02 * audio_s, work, may_fail=True)
        return Transcript(self.engines.rng.choice(HEARD), audio_s)


@dataclass
class FlakyLlm:
    engines: Engines
    may_load = False

    def open(self) -> FlakyConversation:
        return FlakyConversation(self.engines)


class FlakyConversation(_Open):
    async def warm(self, request: LlmRequest, work: Work) -> Warmed:
        await self.engines.work("llm", 0.03, work)
        return Warmed()

    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        engines, rng = self.engines, self.engines.rng
        call = _Open(engines)
        try:
            await engines.work("llm", 0.08, work, may_fail=True)
            if request.messages and request.messages[-1].role == "user":
                yield EndOfTurn(rng.uniform(0.3, 0.99))
            words = ANSWER.split()
            length, begin = int(rng.triangular(1, 80, 12)), rng.randrange(len(words))
            for word in itertools.islice(itertools.cycle(words), begin, begin + length):
                await engines.work("llm", 0.012, work)
                yield TextDelta(f"{word} ")
            if engines.happens(0.1 * FAILURES):
                raise EngineError("The engine failed in the middle")
            if request.tools and engines.happens(CALLS):
                yield ToolCall(request.tools[0].name, json.dumps({"where": "here"}))
            yield Finished("stop", Usage(100, 80, 20, length))
        finally:
            call.close()


@dataclass
class FlakyTts:
    """Sound like speech, except when it fails."""

    engines: Engines
    rate: int = RATE
    voices: Sequence[str] = ("joe", "amy")

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        engines = self.engines
        call = _Open(engines)
        try:
            await engines.work("tts", 0.08, work, may_fail=True)
            if engines.happens(STUCK):
                await asyncio.Event().wait()
            seconds = min(BANK_S / 2, S_PER_CHAR * len(request.text) / request.speed)
            start = engines.rng.randrange(int((BANK_S - seconds) * RATE))
            pcm = engines.bank[start : start + int(seconds * RATE)]
            if engines.happens(HUMS):
                pcm = np.concatenate((pcm[: len(pcm) // 2], hum(8.0, RATE)))
            for at in range(0, len(pcm), int(0.4 * RATE)):
                yield pcm[at : at + int(0.4 * RATE)]
                await engines.work("tts", 0.03, work)
        finally:
            call.close()
