"""The engines of a played scene: the real models' results, in virtual time.

Each engine does one thing at a time, first come first served, and a pass of the recogniser cannot
be stopped. The language model and the voice are scripted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import (
    Delta,
    EndOfTurn,
    Finished,
    Partial,
    Stt,
    TextDelta,
    Transcript,
    Warmed,
)
from pipeline.engines.contract import Utterance as UtteranceEngine
from pipeline.engines.stages import Stages
from pipeline.engines.vad.silero import WINDOW_SAMPLES, SileroVad
from pipeline.messages import LlmRequest, Message, SpeechRequest, Usage
from pipeline.work import NEVER, Cancelled, Priority, Work

_ANSWER = (
    *("Well, ", "let ", "me ", "think ", "about ", "that. "),
    *("I ", "would ", "say ", "that ", "it ", "depends ", "on ", "the ", "day. "),
    *("Shall ", "I ", "tell ", "you ", "more ", "about ", "it?"),
)
_SECONDS_PER_WORD = 0.3
"""Pace of the scripted voice; Piper's joe says 3.2 words a second."""

EngineName = Literal["stt", "turn", "llm", "tts"]


@dataclass(frozen=True, slots=True)
class Delays:
    """The engines' times, in seconds. ``slowdowns``: factors on the first engine's time while the
    second is busy."""

    stt_pass_s: float = 0.0
    stt_per_audio_s: float = 0.0
    turn_s: float = 0.0
    llm_first_s: float = 0.0
    llm_token_s: float = 0.0
    llm_read_ahead_s: float = 0.0
    tts_clause_s: float = 0.0
    slowdowns: tuple[tuple[EngineName, EngineName, float], ...] = ()

    def stt_s(self, audio_s: float) -> float:
        """One pass over this much audio."""
        return self.stt_pass_s + self.stt_per_audio_s * audio_s


NO_DELAYS = Delays()
EMBEDDED = Delays(
    stt_pass_s=0.027,
    stt_per_audio_s=0.020,
    turn_s=0.045,
    llm_first_s=0.078,
    llm_token_s=0.012,
    llm_read_ahead_s=0.030,
    tts_clause_s=0.086,
    slowdowns=(("stt", "turn", 1.45), ("turn", "stt", 2.0), ("llm", "turn", 1.3)),
)
"""The default models on 2 cores of a server CPU (AVX-512), load 0.6 to 0.9. ``stt``, ``turn``:
least squares over 30 passes of 1 to 6 s of recordings of people, and medians of 30 calls,
2026-11-21. ``llm``, ``tts``: medians of a prototype on such a machine (78 ms to the first token
when running alone and 102 ms beside the turn detector, 51 ms more to a first clause, 86 ms for its
speech); reading a few words ahead is one slice."""
BY_URL = Delays(
    stt_pass_s=0.08,
    turn_s=0.045,
    llm_first_s=0.1,
    llm_token_s=0.01,
    llm_read_ahead_s=0.1,
    tts_clause_s=0.12,
)
"""Servers that take 80 ms for a transcript, 100 for a first token and 120 for a first sound."""
H100 = Delays(
    stt_pass_s=0.044,
    stt_per_audio_s=0.0007,
    turn_s=0.045,
    llm_first_s=0.016,
    llm_token_s=0.005,
    llm_read_ahead_s=0.016,
    tts_clause_s=0.028,
)
"""The profile ``reachy`` on an H100, 2026-11-26, with models of full size made from seeds. ``stt``:
Parakeet in bf16, 34, 50, 55 and 62 ms for 1, 3, 10 and 30 s of speech. ``llm``: a model of 4B,
medians of 8 turns. ``tts``: the first sound of Qwen3-TTS, for 22 words (n 4; 18 ms for shorter
clauses, n 8). ``turn`` is that of ``EMBEDDED``: it runs on the CPU, and was not measured alone
there."""


# --- listening ---------------------------------------------------------------------------------


class ModelResults(Protocol):
    """The models' results for audio (``ears.Ears``); 16 kHz."""

    passes: list[float]

    @property
    def stt(self) -> Stt: ...

    def speech_scores(self, pcm: Pcm) -> NDArray[np.float64]: ...

    def turn_over(self, pcm: Pcm) -> float: ...

    def words_complete(self, messages: Sequence[Message]) -> float | None: ...


@dataclass
class Computer:
    """A computer whose engines take virtual time; ``uses``: each engine's work and seconds."""

    delays: Delays
    uses: list[tuple[EngineName, Work, float]] = field(default_factory=list)
    _busy_until: dict[EngineName, float] = field(default_factory=dict)

    async def work(
        self, engine: EngineName, seconds: float, work: Work, *, stoppable: bool = False
    ) -> None:
        """Return when ``engine`` has worked for ``seconds``. Raises ``Cancelled``; work that is not
        ``stoppable`` keeps the engine busy even then."""
        if work.cancelled:
            raise Cancelled
        loop = asyncio.get_running_loop()
        begins = max(loop.time(), self._busy_until.get(engine, 0.0))
        for slow, beside, factor in self.delays.slowdowns:
            if slow == engine and self._busy_until.get(beside, 0.0) > begins:
                seconds *= factor
        ends = self._busy_until[engine] = begins + seconds
        stopped, watch = asyncio.Event(), object()
        work.watch(watch, lambda state: stopped.set() if state.cancelled else None)
        try:
            async with asyncio.timeout_at(ends):
                await stopped.wait()
            raise Cancelled
        except TimeoutError:
            pass
        finally:
            work.unwatch(watch)
            self._book(engine, work, begins, ends, stoppable)

    def _book(
        self, engine: EngineName, work: Work, begins: float, ends: float, stoppable: bool
    ) -> None:
        now = asyncio.get_running_loop().time()
        stopped_at = ends if now >= ends or (not stoppable and now > begins) else max(begins, now)
        if self._busy_until[engine] == ends:
            self._busy_until[engine] = stopped_at
        self.uses.append((engine, work, stopped_at - begins))
        work.engine_seconds += stopped_at - begins

    def seconds(self, priority: Priority) -> float:
        """Seconds spent on work whose final priority is ``priority``."""
        return sum(seconds for _, work, seconds in self.uses if work.priority is priority)


@dataclass
class ScoredVad:
    """A VAD that returns the scores of the one played stream."""

    scores: NDArray[np.float64]
    window_samples: int = WINDOW_SAMPLES
    least_movement_db: float = SileroVad.least_movement_db
    _next: int = 0

    async def open(self, work: Work) -> ScoredVad:
        return self

    async def score(self, pcm: Pcm) -> float:
        self._next += 1
        return float(self.scores[self._next - 1]) if self._next <= len(self.scores) else 0.0

    def close(self) -> None:
        pass


class InlineVad:
    """Silero without a worker: virtual time has no threads."""

    def __init__(self, vad: SileroVad) -> None:
        self._vad = vad
        self.window_samples = vad.window_samples
        self.least_movement_db = vad.least_movement_db

    async def open(self, work: Work) -> InlineVadStream:
        return InlineVadStream(self._vad)


class InlineVadStream:
    def __init__(self, vad: SileroVad) -> None:
        self._stream = vad.open()

    async def score(self, pcm: Pcm) -> float:
        return self._stream.score(pcm)

    def close(self) -> None:
        pass


@dataclass
class HeardTurn:
    ears: ModelResults
    computer: Computer
    history_seconds: float = 8.0

    async def score(self, pcm: Pcm, text: str, work: Work) -> float:
        await self.computer.work("turn", self.computer.delays.turn_s, work)
        return self.ears.turn_over(pcm)


@dataclass
class HeardStt:
    ears: ModelResults
    computer: Computer

    @property
    def streams(self) -> bool:
        return self.ears.stt.streams

    languages: Sequence[str] = ()

    async def open(self, language: str, partials: bool, work: Work) -> HeardUtterance:
        return HeardUtterance(self, self.ears.stt.open(language, partials))


@dataclass
class HeardUtterance:
    """The engine's own utterance; each of its passes takes virtual time."""

    stt: HeardStt
    engine: UtteranceEngine

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        before = len(self.stt.ears.passes)
        partial = self.engine.feed(pcm)
        await self._take_time(before, work)
        return partial

    async def finish(self, work: Work) -> Transcript:
        before = len(self.stt.ears.passes)
        transcript = self.engine.finish(NEVER)
        await self._take_time(before, work)
        return transcript

    async def _take_time(self, before: int, work: Work) -> None:
        computer = self.stt.computer
        for audio_s in self.stt.ears.passes[before:]:
            await computer.work("stt", computer.delays.stt_s(audio_s), work)

    def close(self) -> None:
        pass


@dataclass
class VirtualLlm:
    """Always gives the same answer, and the real model's verdict on whether the user's words are
    complete. ``prompts``: the prompts it received, each with its work."""

    ears: ModelResults
    computer: Computer
    answer: Sequence[str] = _ANSWER
    prompts: list[tuple[Work, list[Message]]] = field(default_factory=list)
    may_load: bool = False

    def open(self) -> VirtualLlm:
        return self

    async def warm(self, request: LlmRequest, work: Work) -> Warmed:
        seconds = self.computer.delays.llm_read_ahead_s
        await self.computer.work("llm", seconds, work, stoppable=True)
        return Warmed()

    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        self.prompts.append((work, list(request.messages)))
        delays = self.computer.delays
        await self.computer.work("llm", delays.llm_first_s, work, stoppable=True)
        if request.messages and request.messages[-1].role == "user":
            probability = self.ears.words_complete(request.messages)
            if probability is not None:
                yield EndOfTurn(probability)
        for word in self.answer:
            yield TextDelta(word)
            await self.computer.work("llm", delays.llm_token_s, work, stoppable=True)
        yield Finished("stop", Usage())

    def close(self) -> None:
        pass


@dataclass
class VirtualTts:
    computer: Computer
    rate: int = LISTEN_RATE
    voices: Sequence[str] = ("joe",)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        """Yields noise: a constant level would resemble any sound, and pass for its echo."""
        await self.computer.work("tts", self.computer.delays.tts_clause_s, work)
        seconds = _SECONDS_PER_WORD * len(request.text.split())
        yield self.rng.normal(0, 1000, round(seconds * self.rate)).astype(np.int16)


def virtual_stages(pcm: Pcm, llm: VirtualLlm) -> Stages:
    """A session's stages in virtual time, on the language model's computer. ``pcm``: everything
    that the session will hear."""
    ears, computer = llm.ears, llm.computer
    return Stages(
        ScoredVad(ears.speech_scores(pcm)),
        HeardTurn(ears, computer),
        HeardStt(ears, computer),
        llm,
        VirtualTts(computer),
    )
