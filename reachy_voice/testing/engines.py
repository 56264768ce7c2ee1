"""Scripted engines: their results, and the time they take, are set in advance.

Like real engines, they stop when their work is cancelled. They record what they were asked.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from pipeline.audio import EMPTY, LISTEN_RATE, Pcm
from pipeline.engines.contract import (
    Delta,
    Embedding,
    EndOfTurn,
    Finished,
    Partial,
    TextDelta,
    Transcript,
    Warmed,
)
from pipeline.engines.stages import SpeakerStage, Stages, VadStage
from pipeline.engines.voices import Person
from pipeline.engines.word_scale import WordScale
from pipeline.errors import EngineError
from pipeline.messages import LlmRequest, Message, SpeechRequest, Tool, ToolChoice, Usage
from pipeline.work import Work
from reachy_voice.testing.jobs import ScriptedEngine, ScriptedJob
from reachy_voice.testing.tape import Tape


class Noise:
    """Random noise whose samples are all ``level`` or ``-level``, so that no two pieces match."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, level: int, samples: int) -> Pcm:
        if not level:
            return np.zeros(samples, np.int16)
        return np.array([-level, level], np.int16)[self._rng.integers(0, 2, samples)]


class LevelVad:
    """Takes all sound above a mean level of 500 for speech."""

    window_samples = 512
    least_movement_db = 0.0

    async def open(self, work: Work) -> LevelVad:
        return self

    async def score(self, pcm: Pcm) -> float:
        return 0.99 if np.abs(pcm.astype(int)).mean() > 500 else 0.01

    def close(self) -> None:
        pass


@dataclass(eq=False)
class ScriptedTurn(ScriptedEngine):
    """A turn detector."""

    probability: float = 0.95
    takes_s: float = 0.05
    history_seconds: float = 8.0
    probabilities: dict[str, float] = field(default_factory=dict)
    """Text -> its probability, in place of ``probability``."""
    heard: list[int] = field(default_factory=list)
    """Number of samples in each call."""

    async def score(self, pcm: Pcm, text: str, work: Work) -> float:
        self.heard.append(len(pcm))
        with self.job(work) as job:
            await job.take(self.takes_s)
        return self.probabilities.get(text, self.probability)


@dataclass(eq=False)
class ScriptedSpeaker(ScriptedEngine):
    """Tells people apart by their level; see ``people``."""

    takes_s: float = 0.03
    error: Exception | None = None
    heard: list[int] = field(default_factory=list)
    """Number of samples in each call."""

    async def embed(self, pcm: Pcm, work: Work) -> Embedding:
        self.heard.append(len(pcm))
        with self.job(work) as job:
            await job.take(self.takes_s)
        if self.error:
            raise self.error
        return _voice(int(np.percentile(np.abs(pcm.astype(int)), 90)))


def people(**levels: int) -> tuple[Person, ...]:
    """People whom ``ScriptedSpeaker`` knows, each by the ``level`` of their ``say``, rounded down
    to thousands: ``people(Tom=3_000)``."""
    return tuple(Person(name, _voice(level)) for name, level in levels.items())


def _voice(level: int) -> Embedding:
    return np.asarray(np.eye(33)[min(level // 1000, 32)], np.float32)


# --- speech to text ----------------------------------------------------------------------------


@dataclass(eq=False)
class ScriptedStt(ScriptedEngine):
    """A recogniser. Returns ``texts`` in order, then repeats the last one."""

    texts: Sequence[str] = ("hello",)
    hears: Callable[[Pcm], str] | None = None
    """Computes the text from the audio, in place of ``texts``."""
    tape: Tape | None = None
    """Looks the words up on this tape, in place of ``texts``."""
    corrections: dict[str, str] = field(default_factory=dict)
    """Recognised text -> the final text to return in its place."""
    reported: Mapping[str, str] = field(default_factory=dict)
    """Final text -> the language reported with it."""
    languages: Sequence[str] = ()
    language_probability: float = 1.0
    takes_s: float = 0.06
    partials: Sequence[str | Partial] = ()
    """Returned in order, one per ``feed``, if partials are wanted. A plain string is tentative."""
    streams: bool = False
    error: Exception | None = None
    refuses: Sequence[str] = ()
    """Unlisted languages that it refuses: at ``open``, or at ``finish`` with ``late_refusal``."""
    late_refusal: EngineError | None = None
    opened_in: list[str] = field(default_factory=list)
    """The language of each utterance."""
    finished: list[Pcm] = field(default_factory=list)
    """The audio of each final transcript."""

    async def open(self, language: str, partials: bool, work: Work) -> ScriptedUtterance:
        self.opened_in.append(language)
        if language in self.refuses and not self.late_refusal:
            raise EngineError(f"This recogniser does not know {language!r}")
        with self.job(work):
            self.opened += 1
        refusal = self.late_refusal if language in self.refuses else None
        return ScriptedUtterance(self, partials, self.generation, list(self.partials), refusal)

    def text(self) -> str:
        return self.texts[min(len(self.finished), len(self.texts)) - 1]


@dataclass(eq=False)
class ScriptedUtterance:
    stt: ScriptedStt
    wants_partials: bool
    generation: int
    partials: list[str | Partial]
    error: Exception | None = None
    pcm: list[Pcm] = field(default_factory=list)
    closed: bool = False

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        with self._job(work):
            self.pcm.append(pcm)
        if not self.wants_partials:
            return Partial()
        if tape := self.stt.tape:
            return Partial(tentative=" ".join(tape.words_in(self._audio, whole=True)))
        partial = self.partials.pop(0) if self.partials else ""
        return partial if isinstance(partial, Partial) else Partial(tentative=partial)

    async def finish(self, work: Work) -> Transcript:
        stt = self.stt
        with self._job(work) as job:
            await job.take(stt.takes_s)
        if error := self.error or stt.error:
            raise error
        pcm = self._audio
        stt.finished.append(pcm)
        if stt.tape:
            text = " ".join(stt.tape.words_in(pcm))
        else:
            text = stt.hears(pcm) if stt.hears else stt.text()
        text = stt.corrections.get(text, text)
        language = stt.reported.get(text, "")
        return Transcript(text, len(pcm) / LISTEN_RATE, language, stt.language_probability)

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True
        self.stt.opened -= 1

    @property
    def _audio(self) -> Pcm:
        return np.concatenate((EMPTY, *self.pcm))

    def _job(self, work: Work) -> AbstractContextManager[ScriptedJob]:
        assert not self.closed, "used after its end"
        self.stt.require(self.generation)
        return self.stt.job(work)


# --- language model ----------------------------------------------------------------------------

GREETING = ("Hello ", "there, ", "my ", "friend. ", "How ", "are ", "you?")
Answer = Sequence[str | float | Delta | Exception]
"""Words and calls. A float is a pause in seconds; an exception is raised."""
Thought = Callable[[Sequence[Message], Sequence[Tool], ToolChoice], Answer]


@dataclass(eq=False)
class ScriptedLlm(ScriptedEngine):
    """A language model. Answers with ``deltas`` unless something else is set."""

    deltas: Answer = GREETING
    think: Thought | None = None
    """Computes the answer, in place of ``deltas``."""
    first_s: float = 0.1
    """Time from the request to the first word."""
    per_token_s: float = 0.02
    may_load: bool = False
    read_s: float | None = None
    """Time from the request to the end probability; default: ``first_s``."""
    end_probability: float | None = None
    """Probability that the user's words are complete; ``None``: it cannot tell."""
    end_probabilities: dict[str, float] = field(default_factory=dict)
    """Last words -> their probability, in place of ``end_probability``."""
    errors: list[Exception] = field(default_factory=list)
    """Raised in order, in place of answers."""
    answers: list[Answer] = field(default_factory=list)
    """Given in order; after them, always ``deltas``."""
    answers_to: dict[str, Answer] = field(default_factory=dict)
    """Last words -> the answer, in place of ``deltas``."""
    warm_s: float = 0.0
    prompts: list[list[Message]] = field(default_factory=list)
    """The messages of each reply's prompt."""
    offered: list[tuple[Sequence[Tool], ToolChoice]] = field(default_factory=list)
    """Tools and tool choice of each reply."""
    warmed: list[list[Message]] = field(default_factory=list)
    """The messages of each warm-up's prompt."""
    read_ahead: list[str] = field(default_factory=list)
    """The user's unfinished words at each warm-up."""
    warm_ups_finished: int = 0

    def open(self) -> ScriptedConversation:
        self.opened += 1
        return ScriptedConversation(self)

    def answer(self, request: LlmRequest) -> Answer:
        if self.think:
            return self.think(request.messages, request.tools, request.tool_choice)
        if self.answers:
            return self.answers.pop(0)
        return self.answers_to.get(_last_words(request), self.deltas)


@dataclass(eq=False)
class ScriptedConversation:
    llm: ScriptedLlm
    closed: bool = False

    async def warm(self, request: LlmRequest, work: Work) -> Warmed:
        assert not self.closed, "used after its end"
        self.llm.warmed.append(list(request.messages))
        self.llm.read_ahead.append(request.unfinished)
        with self.llm.job(work) as job:
            await job.take(self.llm.warm_s)
        self.llm.warm_ups_finished += 1
        return Warmed()

    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        assert not self.closed, "used after its end"
        llm = self.llm
        llm.prompts.append(list(request.messages))
        llm.offered.append((request.tools, request.tool_choice))
        llm.tell(f"thinks about {_last_words(request)!r}")
        with llm.job(work) as job:
            read_s = llm.first_s if llm.read_s is None else min(llm.read_s, llm.first_s)
            await job.take(read_s)
            if llm.errors:
                raise llm.errors.pop(0)
            complete = llm.end_probabilities.get(_last_words(request), llm.end_probability)
            if complete is not None:
                yield EndOfTurn(complete)
            if llm.first_s > read_s:
                await job.take(llm.first_s - read_s)
            answer = llm.answer(request)
            limit = request.sampling.max_tokens or len(answer)
            for delta in answer[:limit]:
                if isinstance(delta, float):
                    await job.take(delta)
                    continue
                if isinstance(delta, Exception):
                    raise delta
                yield TextDelta(delta) if isinstance(delta, str) else delta
                await job.take(llm.per_token_s)
            yield Finished("length" if limit < len(answer) else "stop", Usage(10, 4, 6, limit))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.llm.opened -= 1


def _last_words(request: LlmRequest) -> str:
    return request.messages[-1].content if request.messages else ""


# --- voice -------------------------------------------------------------------------------------


@dataclass(eq=False)
class ScriptedTts(ScriptedEngine):
    """A voice that makes ``seconds_per_word`` of noise for each word."""

    first_s: float = 0.08
    """Time from the request to the first word."""
    seconds_per_word: float = 0.3
    per_word_s: float | None = None
    """Time to make each word after the first; ``None``: a whole clause comes at once."""
    rate: int = LISTEN_RATE
    voices: Sequence[str] = ("joe",)
    error: Exception | None = None
    errors: list[Exception | None] = field(default_factory=list)
    """Raised in order, in place of speech (``None``: speech); after them, always ``error``."""
    said: list[str] = field(default_factory=list)
    """The text of each request."""
    requests: list[SpeechRequest] = field(default_factory=list)
    noise: Noise = field(default_factory=lambda: Noise(2))

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        self.said.append(request.text)
        self.requests.append(request)
        self.tell(f"voices {request.text!r}")
        with self.job(work) as job:
            await job.take(self.first_s)
            if error := self.errors.pop(0) if self.errors else self.error:
                raise error
            samples = self.seconds_per_word / request.speed * self.rate
            words = len(request.text.split())
            if self.per_word_s is None:
                yield self.noise(1000, round(samples * words))
                return
            for number in range(words):
                if number:
                    await job.take(self.per_word_s)
                yield self.noise(1000, round(samples))


# --- all of them -------------------------------------------------------------------------------


@dataclass
class Cast:
    """The engines of one scene or server; set them before it starts."""

    stt: ScriptedStt = field(default_factory=ScriptedStt)
    llm: ScriptedLlm = field(default_factory=ScriptedLlm)
    tts: ScriptedTts = field(default_factory=ScriptedTts)
    turn: ScriptedTurn = field(default_factory=ScriptedTurn)
    vad: VadStage = field(default_factory=LevelVad)
    speaker: SpeakerStage | None = None
    people: tuple[Person, ...] = ()
    """The people whose voices are known."""
    word_scales: dict[str, WordScale] = field(default_factory=dict)
    """Per measured language: how far to trust the language model on whether words are complete."""

    def stages(self) -> Stages:
        engines = self.vad, self.turn, self.stt, self.llm, self.tts
        return Stages(
            *engines, word_scales=self.word_scales, speaker=self.speaker, people=self.people
        )

    @property
    def engines(self) -> tuple[ScriptedEngine, ...]:
        return self.stt, self.llm, self.tts, self.turn

    @property
    def idle(self) -> bool:
        """Whether no work is running and no utterance is open."""
        return not self.stt.opened and not any(engine.running for engine in self.engines)
