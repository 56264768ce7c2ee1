"""The engines of a session that is recorded or replayed, each written once.

A stage here says what each call is for, and ``Calls`` says what becomes of it: a ``Recorder`` asks
the engine and writes down what it gives, and a ``Player`` gives what was written down.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import Delta, Partial, Transcript, Warmed
from pipeline.engines.stages import (
    ConversationStage,
    LlmStage,
    Stages,
    SttStage,
    TtsStage,
    TurnStage,
    UtteranceStage,
    VadStage,
    VadStreamStage,
)
from pipeline.messages import Message, Sampling, SpeechRequest, Tool, ToolChoice
from pipeline.recording.plain import HeardSoFar, key_of, spoken_key
from pipeline.work import Work

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question:
    """What one call asks of an engine. ``of``: its kind and method. ``key``: makes what stands for
    its arguments; called where that is needed, since it may take long. ``about``: for a person."""

    of: str
    key: Callable[[], str]
    about: str = ""


class Calls(Protocol):
    """What becomes of a call. ``ask`` puts the question to the engine."""

    async def one(
        self,
        asked: Question,
        work: Work,
        ask: Callable[[Work], Awaitable[T]],
        otherwise: T | None = None,
    ) -> T:
        """``otherwise``: the default where the recording has no answer."""
        ...

    async def opened(self, asked: Question, work: Work, ask: Callable[[Work], Awaitable[T]]) -> T:
        """Something that further calls are made on."""
        ...

    def stream(
        self, asked: Question, work: Work, ask: Callable[[Work], AsyncGenerator[T, None]]
    ) -> AsyncGenerator[T, None]: ...


@dataclass(slots=True, eq=False)
class TapedVadStream:
    stream: VadStreamStage
    calls: Calls
    heard: HeardSoFar = field(default_factory=HeardSoFar)

    async def score(self, pcm: Pcm) -> float:
        self.heard.feed(pcm)
        asked = Question("vad.score", self.heard.key())
        return await self.calls.one(asked, Work(), lambda _: self.stream.score(pcm))

    def close(self) -> None:
        self.stream.close()


@dataclass(slots=True, eq=False)
class TapedVad:
    vad: VadStage
    calls: Calls

    @property
    def window_samples(self) -> int:
        return self.vad.window_samples

    async def open(self) -> TapedVadStream:
        asked = Question("vad.open", str)
        stream = await self.calls.opened(asked, Work(), lambda _: self.vad.open())
        return TapedVadStream(stream, self.calls)


@dataclass(slots=True, eq=False)
class TapedTurn:
    turn: TurnStage
    calls: Calls

    @property
    def history_seconds(self) -> float:
        return self.turn.history_seconds

    async def score(self, pcm: Pcm, text: str, work: Work) -> float:
        asked = Question("turn.score", lambda: key_of(pcm, text), text)
        return await self.calls.one(asked, work, lambda own: self.turn.score(pcm, text, own))


@dataclass(slots=True, eq=False)
class TapedUtterance:
    utterance: UtteranceStage
    calls: Calls
    heard: HeardSoFar = field(default_factory=HeardSoFar)
    samples: int = 0
    partial: Partial = field(default_factory=Partial)

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        self.heard.feed(pcm)
        self.samples += len(pcm)
        asked = Question("stt.feed", self.heard.key())
        # In a replay the pieces may be cut differently: a feed may come a little earlier or later.
        self.partial = await self.calls.one(
            asked, work, lambda own: self.utterance.feed(pcm, own), self.partial
        )
        return self.partial

    async def finish(self, work: Work) -> Transcript:
        about = f"{self.samples / LISTEN_RATE:.2f} s"
        asked = Question("stt.finish", self.heard.key(), about)
        return await self.calls.one(asked, work, lambda own: self.utterance.finish(own))

    def close(self) -> None:
        self.utterance.close()


@dataclass(slots=True, eq=False)
class TapedStt:
    stt: SttStage
    calls: Calls

    @property
    def streams(self) -> bool:
        return self.stt.streams

    async def open(self, language: str, partials: bool, work: Work) -> TapedUtterance:
        asked = Question("stt.open", lambda: key_of(language, partials))
        utterance = await self.calls.opened(
            asked, work, lambda own: self.stt.open(language, partials, own)
        )
        return TapedUtterance(utterance, self.calls)


class TapedConversation:
    def __init__(self, conversation: ConversationStage, calls: Calls) -> None:
        # One that goes on in a new session is taped there, and not twice.
        inner = conversation.inner if isinstance(conversation, TapedConversation) else conversation
        self.inner: ConversationStage = inner
        self.calls = calls

    async def warm(
        self, messages: Sequence[Message], tools: Sequence[Tool], work: Work, said: str = ""
    ) -> Warmed:
        given = tuple(messages), tuple(tools), said
        return await self.calls.one(
            Question("llm.warm", lambda: key_of(*given)),
            work,
            lambda own: self.inner.warm(messages, tools, own, said),
            Warmed(),
        )

    def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        sampling: Sampling,
        work: Work,
    ) -> AsyncGenerator[Delta, None]:
        given = tuple(messages), tuple(tools), tool_choice, sampling
        about = messages[-1].content if messages else ""
        return self.calls.stream(
            Question("llm.reply", lambda: key_of(*given), about),
            work,
            lambda own: self.inner.reply(messages, tools, tool_choice, sampling, own),
        )

    def close(self) -> None:
        self.inner.close()


@dataclass(slots=True, eq=False)
class TapedLlm:
    llm: LlmStage
    calls: Calls

    def open(self) -> TapedConversation:
        return TapedConversation(self.llm.open(), self.calls)


@dataclass(slots=True, eq=False)
class TapedTts:
    tts: TtsStage
    calls: Calls

    @property
    def rate(self) -> int:
        return self.tts.rate

    @property
    def voices(self) -> Sequence[str]:
        return self.tts.voices

    def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        asked = Question("tts.synthesize", lambda: spoken_key(request), request.text)
        return self.calls.stream(asked, work, lambda own: self.tts.synthesize(request, own))


def taped_stages(stages: Stages, calls: Calls) -> Stages:
    """The same engines, asked by way of ``calls``."""
    return Stages(
        TapedVad(stages.vad, calls),
        TapedTurn(stages.turn, calls),
        TapedStt(stages.stt, calls),
        TapedLlm(stages.llm, calls),
        TapedTts(stages.tts, calls),
        kept=TapedTts(stages.notices, calls),
        word_scales=stages.word_scales,
    )
