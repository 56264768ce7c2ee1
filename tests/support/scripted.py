"""Scripted engines and a scene to play them in, for tests in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from pipeline.audio import EMPTY, LISTEN_RATE, AudioFormat, Pcm
from pipeline.bus import Bus, Published
from pipeline.commands import AppendAudio, Command, SessionConfig
from pipeline.conversation.memory import Memory
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
from pipeline.engines.stages import KeptVoice, LlmStage, Stages, TtsStage, VadStage
from pipeline.errors import EngineError
from pipeline.hearing.client_echo import Hearing
from pipeline.items import MessageItem, MessageRole, TextPart
from pipeline.messages import LlmRequest, Message, SpeechRequest, Tool, ToolChoice, Usage
from pipeline.recording.writing import Recorder, SessionRecording
from pipeline.session import Session
from pipeline.settings import BargeIn, Echo, SessionSettings
from pipeline.turn_record import TurnRecord
from pipeline.work import Cancelled, Work
from tests.support.lexicons import with_words

E = TypeVar("E")

VOICE = SessionConfig(instructions="Be brief.", output_format=AudioFormat(rate=16_000))
PUSH_TO_TALK = replace(VOICE, turn_detection=None)


AT_ONCE = SessionSettings(barge_in=BargeIn(policy="any-speech"), echo=Echo(cancel="never"))
"""All speech interrupts, without a look at its words or at what was sent."""


def text_item(item_id: str, text: str, role: MessageRole = "user") -> MessageItem:
    return MessageItem(item_id, role, (TextPart(text),))


class Noise:
    """Every sample is ``level`` or ``-level``: no two pieces are alike, as no two voices are."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, level: int, samples: int) -> Pcm:
        return self._rng.choice(np.array([-level, level], np.int16), samples)


class LevelVad:
    """Treats everything except silence as speech."""

    window_samples = 512
    least_movement_db = 0.0

    async def open(self) -> LevelVad:
        return self

    async def score(self, pcm: Pcm) -> float:
        return 0.99 if np.abs(pcm.astype(int)).mean() > 500 else 0.01

    def close(self) -> None:
        pass


@dataclass
class ScriptedTurn:
    probability: float = 0.95
    takes_s: float = 0.05
    history_seconds: float = 8.0
    heard: list[int] = field(default_factory=list)

    async def score(self, pcm: Pcm, text: str, work: Work) -> float:
        self.heard.append(len(pcm))
        await asyncio.sleep(self.takes_s)
        return self.probability


@dataclass
class ScriptedStt:
    """Gives ``texts`` one after the other, the last one again and again."""

    texts: Sequence[str] = ("hello",)
    hears: Callable[[Pcm], str] | None = None
    """What it makes of the audio, instead of ``texts``."""
    reported: Mapping[str, str] = field(default_factory=dict)
    """Text -> the language that is reported with it."""
    languages: Sequence[str] = ()
    language_probability: float = 1.0
    takes_s: float = 0.06
    partials: Sequence[str] = ()
    """One after the other for each piece that is fed, if partials are asked for."""
    streams: bool = False
    error: Exception | None = None
    refuses: Sequence[str] = ()
    """Languages that it does not list and refuses, when it is opened or with ``late_refusal``."""
    late_refusal: EngineError | None = None
    opened_in: list[str] = field(default_factory=list)
    open_utterances: int = 0
    finished: list[Pcm] = field(default_factory=list)

    async def open(self, language: str, partials: bool, work: Work) -> ScriptedUtterance:
        self.opened_in.append(language)
        if language in self.refuses and not self.late_refusal:
            raise EngineError(f"This recogniser does not know {language!r}")
        self.open_utterances += 1
        refusal = self.late_refusal if language in self.refuses else None
        return ScriptedUtterance(self, list(self.partials) if partials else [], error=refusal)

    def text(self) -> str:
        return self.texts[min(len(self.finished), len(self.texts)) - 1]


@dataclass
class ScriptedUtterance:
    stt: ScriptedStt
    partials: list[str]
    pcm: list[Pcm] = field(default_factory=list)
    error: Exception | None = None

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        self.pcm.append(pcm)
        return Partial(tentative=self.partials.pop(0) if self.partials else "")

    async def finish(self, work: Work) -> Transcript:
        await asyncio.sleep(self.stt.takes_s)
        if error := self.error or self.stt.error:
            raise error
        pcm = np.concatenate((EMPTY, *self.pcm))
        self.stt.finished.append(pcm)
        text = self.stt.hears(pcm) if self.stt.hears else self.stt.text()
        told = self.stt.reported.get(text, "")
        return Transcript(text, len(pcm) / LISTEN_RATE, told, self.stt.language_probability)

    def close(self) -> None:
        self.stt.open_utterances -= 1


GREETING = ("Hello ", "there, ", "my ", "friend. ", "How ", "are ", "you?")
Thought = Callable[[Sequence[Message], Sequence[Tool], ToolChoice], Sequence[str | Delta]]


@dataclass
class ScriptedLlm:
    deltas: Sequence[str | ToolCall] = GREETING
    think: Thought | None = None
    """What it answers, instead of ``deltas``."""
    first_s: float = 0.1
    per_token_s: float = 0.02
    may_load: bool = False
    end_probability: float | None = None
    """That the user's words are complete; told before the answer."""
    errors: list[Exception] = field(default_factory=list)
    """Raised one after the other instead of an answer."""
    answers: list[Sequence[str | ToolCall]] = field(default_factory=list)
    """Given one after the other, then ``deltas`` again and again."""
    prompts: list[list[Message]] = field(default_factory=list)
    offered: list[tuple[Sequence[Tool], ToolChoice]] = field(default_factory=list)
    """Tools and choice of each reply."""
    warmed: list[list[Message]] = field(default_factory=list)
    read_ahead: list[str] = field(default_factory=list)
    """What was said so far at each warm-up."""
    warm_s: float = 0.0
    warm_ups_finished: int = 0
    open_conversations: int = 0
    running: int = 0

    def open(self) -> ScriptedConversation:
        self.open_conversations += 1
        return ScriptedConversation(self)


@dataclass(eq=False)
class ScriptedConversation:
    llm: ScriptedLlm

    async def warm(self, request: LlmRequest, work: Work) -> Warmed:
        self.llm.warmed.append(list(request.messages))
        self.llm.read_ahead.append(request.unfinished)
        work.watch(self, lambda _: stop.set())
        stop = asyncio.Event()
        try:
            async with asyncio.timeout(self.llm.warm_s):
                await stop.wait()
            raise Cancelled
        except TimeoutError:
            self.llm.warm_ups_finished += 1
        finally:
            work.unwatch(self)
        return Warmed()

    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        self.llm.prompts.append(list(request.messages))
        self.llm.offered.append((request.tools, request.tool_choice))
        self.llm.running += 1
        try:
            await asyncio.sleep(self.llm.first_s)
            if self.llm.errors:
                raise self.llm.errors.pop(0)
            if self.llm.end_probability is not None:
                yield EndOfTurn(self.llm.end_probability)
            deltas: Sequence[str | Delta] = self.llm.deltas
            if self.llm.think:
                deltas = self.llm.think(request.messages, request.tools, request.tool_choice)
            elif self.llm.answers:
                deltas = self.llm.answers.pop(0)
            limit = request.sampling.max_tokens or len(deltas)
            for delta in deltas[:limit]:
                yield TextDelta(delta) if isinstance(delta, str) else delta
                await asyncio.sleep(self.llm.per_token_s)
            cut = limit < len(deltas)
            yield Finished("length" if cut else "stop", Usage(10, 4, 6, limit))
        finally:
            self.llm.running -= 1

    def close(self) -> None:
        self.llm.open_conversations -= 1


@dataclass
class ScriptedTts:
    first_s: float = 0.08
    seconds_per_word: float = 0.3
    rate: int = 16_000
    voices: Sequence[str] = ("joe",)
    error: Exception | None = None
    said: list[str] = field(default_factory=list)
    said_by: list[str] = field(default_factory=list)
    """The voice of each."""
    noise: Noise = field(default_factory=lambda: Noise(2))

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        self.said.append(request.text)
        self.said_by.append(request.voice)
        await asyncio.sleep(self.first_s)
        if self.error:
            raise self.error
        seconds = self.seconds_per_word * len(request.text.split()) / request.speed
        yield self.noise(1000, round(seconds * self.rate))


@dataclass
class Cast:
    """The engines of one scene or server; change one before it starts."""

    stt: ScriptedStt = field(default_factory=ScriptedStt)
    llm: ScriptedLlm = field(default_factory=ScriptedLlm)
    tts: ScriptedTts = field(default_factory=ScriptedTts)
    turn: ScriptedTurn = field(default_factory=ScriptedTurn)
    vad: VadStage = field(default_factory=LevelVad)

    def stages(self) -> Stages:
        return Stages(self.vad, self.turn, self.stt, self.llm, self.tts)


@dataclass
class Scene:
    """A session with scripted engines, a microphone, and everything that was published."""

    session: Session
    log: list[Published]
    stages: Stages
    bus: Bus
    loop: asyncio.AbstractEventLoop
    began: float = 0.0
    noise: Noise = field(default_factory=lambda: Noise(1))

    async def do(self, *commands: Command) -> None:
        for command in commands:
            await self.session.submit(command)
        await self.settle()

    async def settle(self) -> None:
        """Let everything that can happen now happen."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def until(self, kind: type[Any]) -> None:
        """Wait for the next event of this kind."""
        published = asyncio.Event()
        self.bus.tap(lambda each: published.set() if isinstance(each.event, kind) else None)
        await published.wait()

    async def hear(self, seconds: float, *, level: int = 0, rate: int = 16_000) -> None:
        """Feed 20 ms chunks of noise in real time."""
        for _ in range(round(seconds / 0.02)):
            chunk = self.noise(level, rate // 50)
            await self.session.submit(AppendAudio(chunk, rate))
            await asyncio.sleep(0.02)

    async def sleep_until(self, seconds: float) -> None:
        """Wait until this many seconds after the scene began."""
        await asyncio.sleep(max(0.0, self.began + seconds - self.loop.time()))

    async def say(self, seconds: float) -> None:
        await self.hear(seconds, level=3000)

    def events(self, kind: type[E]) -> list[E]:
        return [event for _, event in self.log if isinstance(event, kind)]

    def time_of(self, kind: type[Any]) -> float:
        """When the first event of this kind was published, in seconds."""
        return next(at for at, event in self.log if isinstance(event, kind))

    def names(self, *without: type[Any]) -> list[str]:
        """Names of the events in order, but those in ``without`` and turn records; neighbours of
        one name count once."""
        left_out: tuple[type[Any], ...] = (TurnRecord, *without)
        names = [type(event).__name__ for _, event in self.log if not isinstance(event, left_out)]
        return [name for name, _ in itertools.groupby(names)]


@asynccontextmanager
async def scene(
    *,
    config: SessionConfig | None = None,
    settings: SessionSettings | None = None,
    turn: ScriptedTurn | None = None,
    stt: ScriptedStt | None = None,
    llm: LlmStage | None = None,
    tts: TtsStage | None = None,
    kept: KeptVoice | None = None,
    memory: Memory | None = None,
    vad: VadStage | None = None,
    hearing: Hearing | None = None,
    recorder: Recorder | None = None,
) -> AsyncIterator[Scene]:
    stages = Stages(
        vad or LevelVad(),
        turn or ScriptedTurn(),
        stt or ScriptedStt(),
        llm or ScriptedLlm(),
        tts or ScriptedTts(),
        kept=kept,
    )
    bus = Bus()
    log: list[Published] = []
    subscription = bus.subscribe()
    counter = itertools.count(1 + len(memory.chat.items) * 100 if memory else 1)
    config = config or VOICE
    session = Session(
        stages,
        config,
        with_words(settings),
        bus,
        lambda prefix: f"{prefix}_{next(counter)}",
        memory,
        hearing,
        SessionRecording(recorder, bus, config, memory) if recorder else None,
    )

    async def record() -> None:
        async for published in subscription:
            log.append(published)

    logging = asyncio.create_task(record())
    running = asyncio.create_task(session.run())
    try:
        played = Scene(session, log, stages, bus, asyncio.get_running_loop())
        await played.settle()
        yield played
    finally:
        running.cancel()
        await asyncio.wait({running})
        bus.close()
        await logging
    if not running.cancelled() and (error := running.exception()):
        raise error
