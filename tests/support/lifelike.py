"""Scripted engines that behave as the real ones do: they hear what is said, stop when their work is
cancelled, and crash.

``Ears`` understand what is on a ``Tape``; ``Brain`` and ``Voice`` take their time. Every engine
notes what runs on it, and tells of what is asked of it. All of them live in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import numpy as np

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
from pipeline.errors import EngineCrashed
from pipeline.messages import LlmRequest, Message, SpeechRequest, Usage
from pipeline.work import Cancelled, Work
from tests.support.scripted import LevelVad, Noise
from tests.support.spoken_tape import Tape

STT_S, TURN_S, READ_S, TOKEN_S, SOUND_S = 0.061, 0.051, 0.041, 0.101, 0.081
"""A transcript, the turn detector, a prompt that is read, a first token, a first sound. Such that
nothing falls on the border of a window of 32 ms by chance, where the order would say nothing."""

OnEvent = Callable[[str], None]


# --- what all engines have in common -----------------------------------------------------------


class Engine:
    """``crash`` fails all that runs; until ``repair``, everything fails at once."""

    def __init__(self, tell: OnEvent = lambda event: None) -> None:
        self.tell = tell
        self.generation = 0
        self.running = 0
        self.most_at_once = 0
        self.opened = 0
        """Objects that were opened on it and not closed."""
        self._down = False
        self._waits: set[asyncio.Future[None]] = set()

    def crash(self) -> None:
        self._down = True
        self.generation += 1
        for wait in self._waits:
            _settle(wait, EngineCrashed("The engine ended under its work"))

    def repair(self) -> None:
        self._down = False

    def require_up(self) -> None:
        if self._down:
            raise EngineCrashed("The engine is not ready")

    @contextmanager
    def job(self, work: Work) -> Iterator[Job]:
        """One call. What it took is booked at its end, as a worker does."""
        self.require_up()
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        job = Job(work, self._waits)
        work.job_began()
        try:
            yield job
        finally:
            self.running -= 1
            work.job_ended(job.seconds)


class Job:
    def __init__(self, work: Work, waits: set[asyncio.Future[None]]) -> None:
        self.seconds = 0.0
        self._work = work
        self._waits = waits

    async def take(self, seconds: float) -> None:
        """Be busy. Raises ``Cancelled`` when the work is, and what a crash brings."""
        if self._work.cancelled:
            raise Cancelled
        loop = asyncio.get_running_loop()
        began = loop.time()
        done: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _settle, done, None)
        self._work.watch(done, lambda work: _stop(done, work))
        self._waits.add(done)
        try:
            await done
        finally:
            timer.cancel()
            self._work.unwatch(done)
            self._waits.discard(done)
            self.seconds += loop.time() - began


def _stop(future: asyncio.Future[None], work: Work) -> None:
    if work.cancelled:
        _settle(future, Cancelled())


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error:
        future.set_exception(error)
    else:
        future.set_result(None)


# --- the engines -------------------------------------------------------------------------------


class Ears(Engine):
    """Speech-to-text. ``corrects``: a final text that differs from what the partial ones say.
    ``feed_s``: what each feeding takes."""

    def __init__(
        self,
        tape: Tape | None = None,
        *,
        takes_s: float = STT_S,
        feed_s: float = 0.0,
        streams: bool = False,
    ) -> None:
        super().__init__()
        self.feed_s = feed_s
        self.tape = tape or Tape()
        self.takes_s = takes_s
        self.streams = streams
        self.languages: Sequence[str] = ()
        self.corrects: dict[str, str] = {}

    async def open(self, language: str, partials: bool, work: Work) -> Listening:
        with self.job(work) as job:
            await job.take(0)
        self.opened += 1
        return Listening(self, partials, self.generation)


@dataclass(eq=False)
class Listening:
    """One utterance."""

    ears: Ears
    partials: bool
    generation: int
    pieces: list[Pcm] = field(default_factory=list)
    closed: bool = False

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        with self._job(work) as job:
            await job.take(self.ears.feed_s)
        self.pieces.append(pcm)
        return Partial(tentative=self._text(whole=True)) if self.partials else Partial()

    async def finish(self, work: Work) -> Transcript:
        with self._job(work) as job:
            await job.take(self.ears.takes_s)
        text = self._text()
        seconds = sum(map(len, self.pieces)) / LISTEN_RATE
        return Transcript(self.ears.corrects.get(text, text), seconds)

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True
        self.ears.opened -= 1

    def _job(self, work: Work) -> AbstractContextManager[Job]:
        assert not self.closed, "used after its end"
        if self.generation != self.ears.generation:
            raise EngineCrashed("The engine was restarted during this call")
        return self.ears.job(work)

    def _text(self, *, whole: bool = False) -> str:
        pcm = np.concatenate((EMPTY, *self.pieces))
        return " ".join(self.ears.tape.words_in(pcm, whole=whole))


class Instinct(Engine):
    """The turn detector. ``sounds``: its probability for a text; ``usual`` for all others."""

    history_seconds = 8.0

    def __init__(self, *, takes_s: float = TURN_S, usual: float = 0.95) -> None:
        super().__init__()
        self.takes_s = takes_s
        self.usual = usual
        self.sounds: dict[str, float] = {}

    async def score(self, pcm: Pcm, text: str, work: Work) -> float:
        with self.job(work) as job:
            await job.take(self.takes_s)
        return self.sounds.get(text, self.usual)


ANSWER = ("I am here. ",)


class Brain(Engine):
    """The language model. ``answers``: what it says to what was said last; to all else ``usual``.

    A float among the deltas is a pause in seconds. ``read_s`` after it was asked it tells how
    likely the words are complete (``complete``, or else ``usually_complete``), and ``first_s``
    after it was asked it begins to answer.
    """

    may_load = False

    def __init__(
        self, *, read_s: float = READ_S, first_s: float = TOKEN_S, per_token_s: float = 0.02
    ) -> None:
        super().__init__()
        self.read_s = read_s
        self.first_s = first_s
        self.complete: dict[str, float] = {}
        self.usually_complete: float | None = 0.5
        """``None``: it cannot tell."""
        self.per_token_s = per_token_s
        self.usual: Sequence[str | float | ToolCall] = ANSWER
        self.answers: dict[str, Sequence[str | float | ToolCall]] = {}
        self.prompts: list[list[Message]] = []

    def open(self) -> Thinking:
        self.opened += 1
        return Thinking(self)


@dataclass(eq=False)
class Thinking:
    """One conversation."""

    brain: Brain
    closed: bool = False

    async def warm(self, request: LlmRequest, work: Work) -> Warmed:
        assert not self.closed, "used after its end"
        with self.brain.job(work) as job:
            await job.take(self.brain.first_s / 2)
        return Warmed()

    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        assert not self.closed, "used after its end"
        brain = self.brain
        asked = request.messages[-1].content
        brain.prompts.append(list(request.messages))
        brain.tell(f"thinks about {asked!r}")
        with brain.job(work) as job:
            await job.take(min(brain.read_s, brain.first_s))
            complete = brain.complete.get(asked, brain.usually_complete)
            if complete is not None:
                yield EndOfTurn(complete)
            await job.take(max(0.0, brain.first_s - brain.read_s))
            deltas = brain.answers.get(asked, brain.usual)
            for delta in deltas:
                if isinstance(delta, float):
                    await job.take(delta)
                    continue
                yield TextDelta(delta) if isinstance(delta, str) else delta
                await job.take(brain.per_token_s)
        yield Finished("stop", Usage(10, 4, 6, len(deltas)))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.brain.opened -= 1


class Voice(Engine):
    """Text-to-speech: ``seconds_per_word`` of sound for each word, the first word after ``first_s``
    and the others ``per_word_s`` apart."""

    rate = LISTEN_RATE
    voices = ("joe",)

    def __init__(
        self, *, first_s: float = SOUND_S, per_word_s: float = 0.0, seconds_per_word: float = 0.2
    ) -> None:
        super().__init__()
        self.first_s = first_s
        self.per_word_s = per_word_s
        self.seconds_per_word = seconds_per_word
        self._noise = Noise(2)

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        self.tell(f"voices {request.text!r}")
        with self.job(work) as job:
            await job.take(self.first_s)
            for number, _ in enumerate(request.text.split()):
                if number:
                    await job.take(self.per_word_s)
                yield self._noise(1_000, round(self.seconds_per_word * self.rate))


class Engines:
    """The cast of one scene."""

    def __init__(
        self,
        ears: Ears | None = None,
        brain: Brain | None = None,
        voice: Voice | None = None,
        instinct: Instinct | None = None,
    ) -> None:
        self.ears = ears or Ears()
        self.brain = brain or Brain()
        self.voice = voice or Voice()
        self.instinct = instinct or Instinct()

    def stages(self) -> Stages:
        return Stages(LevelVad(), self.instinct, self.ears, self.brain, self.voice)

    @property
    def idle(self) -> bool:
        """Whether no work runs and no utterance is open."""
        return not self.ears.opened and not any(engine.running for engine in self.all)

    @property
    def all(self) -> tuple[Engine, ...]:
        return self.ears, self.brain, self.voice, self.instinct
