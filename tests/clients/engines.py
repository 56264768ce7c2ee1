"""Scripted engines for the client tests: what is said, thought and spoken is known in advance.

Speech is a steady tone; which phrase it stands for is told by its level, so that any number of
clients can talk at once, in any order and at any sample rate, over the same stages.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import (
    Delta,
    Finished,
    Partial,
    TextDelta,
    ToolCall,
    Transcript,
    Warmed,
)
from pipeline.engines.stages import Stages, TtsStage
from pipeline.messages import LlmRequest, Message, SpeechRequest, Tool, ToolChoice, Usage
from pipeline.work import Work
from tests.support.scripted import LevelVad, Noise

TIME, WEATHER, STORY, WAIT = (
    "What time is it?",
    "What is the weather in Paris?",
    "Tell me a long story.",
    "Wait a moment, please.",
)
LEVELS = {2000: TIME, 4000: WEATHER, 6000: STORY, 8000: WAIT}
"""Level of the tone that says each phrase, as the mean of the samples' magnitudes."""
COUGH_LEVEL = 10_000
"""Loud enough to be taken for speech; no words are in it."""

NOON = "It is noon."
TALE = "Once upon a time there was a robot who counted all the stars in the sky. " * 8
CALM = "All right, I wait."
WEATHER_ARGUMENTS = {"city": "Paris"}

Brain = Callable[[Sequence[Message], Sequence[Tool], ToolChoice], Sequence[Delta]]
"""What the language model answers; without the ``Finished`` at the end."""


def tone(phrase_level: int, seconds: float, rate: int = LISTEN_RATE) -> Pcm:
    """A person saying the phrase of that level: int16, shape ``(seconds * rate,)``."""
    return np.full(round(seconds * rate), phrase_level, dtype=np.int16)


def silence(seconds: float, rate: int = LISTEN_RATE) -> Pcm:
    return np.zeros(round(seconds * rate), dtype=np.int16)


SAY_TIME, SAY_STORY, SAY_WAIT = (tone(level, 0.5) for level in (2000, 6000, 8000))
"""At 16 kHz."""


def heard_phrase(pcm: Pcm) -> str:
    """The phrase of the tone in ``pcm``; empty for a cough."""
    loud = np.abs(pcm.astype(int))
    loud = loud[loud > 1000]
    level = int(np.median(loud)) if len(loud) else 0
    nearest = min((*LEVELS, COUGH_LEVEL), key=lambda each: abs(each - level))
    return LEVELS.get(nearest, "")


def think(
    messages: Sequence[Message], tools: Sequence[Tool], choice: ToolChoice
) -> Sequence[Delta]:
    """The brain of every client test: knows the phrases above, and calls ``get_weather``."""
    last = messages[-1]
    if last.role == "tool":
        return words(f"The tool says {spoken_result(last.content)}.")
    asked = last.content.lower()
    if "wait" in asked:
        return words(CALM)
    # Some frameworks put a name of their own in front of the tool's.
    weather = [tool.name for tool in tools if tool.name.endswith("get_weather")]
    if "weather" in asked and weather:
        return [ToolCall(weather[0], json.dumps(WEATHER_ARGUMENTS))]
    if "time" in asked:
        return words(NOON)
    if "story" in asked:
        return words(TALE)
    return words("Hello.")


def words(text: str) -> list[Delta]:
    """One delta for each word, with the space behind it."""
    return [TextDelta(word) for word in text.replace(" ", " \0").split("\0") if word]


def spoken_result(output: str) -> str:
    """A tool's output in words, whichever JSON or text the client's library makes of it."""
    for mark in '{}":,_':
        output = output.replace(mark, " ")
    return " ".join(output.split())


@dataclass
class LevelStt:
    """Hears the phrase of the tone's level."""

    takes_s: float = 0.01
    streams: bool = False
    languages: Sequence[str] = ()

    async def open(self, language: str, partials: bool, work: Work) -> LevelUtterance:
        return LevelUtterance(self.takes_s)


@dataclass
class LevelUtterance:
    takes_s: float
    pcm: list[Pcm] = field(default_factory=list)

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        self.pcm.append(pcm.copy())
        return Partial()

    async def finish(self, work: Work) -> Transcript:
        await asyncio.sleep(self.takes_s)
        pcm = np.concatenate(self.pcm) if self.pcm else np.zeros(0, np.int16)
        return Transcript(heard_phrase(pcm), len(pcm) / LISTEN_RATE)

    def close(self) -> None:
        pass


@dataclass
class SureTurn:
    """Every pause is the end."""

    history_seconds: float = 8.0

    async def score(self, pcm: Pcm, text: str, work: Work) -> float:
        return 0.99


@dataclass(frozen=True)
class Asked:
    """The model's prompt, and whether it had to answer."""

    kind: Literal["warm", "reply"]
    messages: list[Message]
    tools: list[Tool]


@dataclass
class BrainLlm:
    """Answers with ``brain``, and records its requests in order."""

    brain: Brain = think
    per_delta_s: float = 0.002
    asked: list[Asked] = field(default_factory=list)

    @property
    def prompts(self) -> list[list[Message]]:
        """What it was to answer."""
        return [asked.messages for asked in self.asked if asked.kind == "reply"]

    def open(self) -> BrainConversation:
        return BrainConversation(self)


@dataclass(eq=False)
class BrainConversation:
    llm: BrainLlm

    async def warm(self, request: LlmRequest, work: Work) -> Warmed:
        self.llm.asked.append(Asked("warm", list(request.messages), list(request.tools)))
        return Warmed()

    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        self.llm.asked.append(Asked("reply", list(request.messages), list(request.tools)))
        generated = 0
        for delta in self.llm.brain(request.messages, request.tools, request.tool_choice):
            generated += 1
            yield delta
            await asyncio.sleep(self.llm.per_delta_s)
        yield Finished("stop", Usage(10, 4, 6, generated))

    def close(self) -> None:
        pass


@dataclass
class NoiseTts:
    """A word is a piece of noise; ``said`` is what was asked for, with its voice."""

    seconds_per_word: float = 0.1
    rate: int = 16_000
    voices: Sequence[str] = ("joe",)
    said: list[tuple[str, str]] = field(default_factory=list)
    noise: Noise = field(default_factory=lambda: Noise(2))

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        self.said.append((request.text, request.voice))
        await asyncio.sleep(0.005)
        seconds = self.seconds_per_word * len(request.text.split()) / request.speed
        yield self.noise(1000, round(seconds * self.rate))


@dataclass
class Cast:
    """The scripted engines of one server; change one before the server starts."""

    stt: LevelStt = field(default_factory=LevelStt)
    llm: BrainLlm = field(default_factory=BrainLlm)
    tts: NoiseTts = field(default_factory=NoiseTts)
    another_tts: TtsStage | None = None
    """Speaks instead of ``tts``."""

    def stages(self) -> Stages:
        tts = self.another_tts or self.tts
        return Stages(LevelVad(), SureTurn(), self.stt, self.llm, tts)


def calling(*answers: Sequence[Delta]) -> Cast:
    """A model that returns these answers in order, and then its usual ones."""
    left = list(answers)
    return Cast(llm=BrainLlm(lambda *asked: left.pop(0) if left else think(*asked)))
