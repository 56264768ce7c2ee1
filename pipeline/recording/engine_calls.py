"""Engines whose every call is written down: what for, when it began and ended, and its result.

Arguments are kept as a key only (``plain.key_of``), since a replay makes them again:

    {"kind": "call", "at": 1.25, "call": 6, "of": "turn.score", "key": "...", "began": 1.2, ...}
    {"kind": "call", "at": 1.3, "call": 7, "of": "llm.reply", "key": "..."}      a stream begins,
    {"kind": "item", "at": 1.4, "call": 7, "item": {"is": "TextDelta", ...}}     gives something,
    {"kind": "done", "at": 1.9, "call": 7}                                       and ends

What ends otherwise has an ``error``, or ``left``: nobody waited for it any more. ``at_once``: the
caller did not even wait for the event loop. Engine time has lines of its own, because it is booked
when the engine is done, which may be before or after the caller is:

    {"kind": "cost", "at": 1.8, "call": 7, "engine_s": 0.4}
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from pipeline.audio import Pcm
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
from pipeline.errors import PromptTooLong, ReachyVoiceError
from pipeline.messages import Message, Sampling, SpeechRequest, Tool, ToolChoice
from pipeline.recording.plain import HeardSoFar, key_of, spoken_key, to_plain
from pipeline.work import Cancelled, Work

Key = str | Callable[[], str]
"""Made where the line is made, if it takes long."""


class Log(Protocol):
    """Where the lines of one session go."""

    def now(self) -> float:
        """Seconds since the session began."""
        ...

    def write(
        self, kind: str, at: float, fields: Callable[[], Mapping[str, Any]], audio_bytes: int = 0
    ) -> None:
        """``fields`` is called later, elsewhere: it may only read what never changes."""
        ...


class CallWork(Work):
    """One call's share of the work it belongs to: ends with it, and knows its own engine time."""

    def __init__(self, whole: Work) -> None:
        self.on_cost: Callable[[float], None] = lambda seconds: None
        """Told of engine time as it is booked."""
        self._whole = whole
        self._own_seconds = 0.0
        super().__init__(whole.priority)
        self.client = whole.client
        if whole.cancelled:
            self.cancel()
        whole.watch(self, self._follow)

    @property
    def engine_seconds(self) -> float:
        return self._own_seconds

    @engine_seconds.setter
    def engine_seconds(self, seconds: float) -> None:
        more = seconds - self._own_seconds
        self._whole.engine_seconds += more
        self._own_seconds = seconds
        if more:
            self.on_cost(more)

    def job_began(self) -> None:
        super().job_began()
        self._whole.job_began()

    def job_ended(self, engine_seconds: float) -> None:
        super().job_ended(engine_seconds)  # books it at the whole, too
        self._whole.job_ended(0.0)

    def close(self) -> None:
        """Follow the whole no longer; late engine time still counts there."""
        self._whole.unwatch(self)

    def _follow(self, whole: Work) -> None:
        self.promote(whole.priority)
        if whole.cancelled:
            self.cancel()


class Call:
    """One call while it lasts: ``with Call(...) as call``."""

    _numbers = itertools.count(1)

    def __init__(self, log: Log, of: str, key: Key, work: Work | None = None) -> None:
        self.work = CallWork(work or Work())
        self.work.on_cost = self._cost
        self._log = log
        self._of = of
        self._key = key
        self._waited = False
        self._result: Any = None
        self._number = next(self._numbers)
        self._streams = False

    def __enter__(self) -> Self:
        self._began = self._log.now()
        self._others = asyncio.get_running_loop().call_soon(self._others_ran)
        return self

    def _others_ran(self) -> None:
        self._waited = True

    def stream(self) -> None:
        """It gives several things, one after the other."""
        self._streams = True
        of, key, number = self._of, self._key, self._number
        self._log.write("call", self._began, lambda: {"call": number, "of": of, "key": _made(key)})

    def item(self, item: Any) -> None:
        """The next thing that a stream gives."""
        number = self._number
        size = item.nbytes if isinstance(item, np.ndarray) else 0
        self._log.write(
            "item", self._log.now(), lambda: {"call": number, "item": to_plain(item)}, size
        )

    def result(self, result: Any) -> None:
        """What a call that gives one thing has given."""
        self._result = result

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._others.cancel()
        self.work.close()
        told = self._told(error)
        if self._streams:
            self._log.write("done", self._log.now(), lambda: told)
            return
        of, key, result = self._of, self._key, self._result
        began = round(self._began, 6)

        def fields() -> dict[str, Any]:
            return {"of": of, "key": _made(key), "began": began, "result": to_plain(result), **told}

        self._log.write("call", self._log.now(), fields)

    def _cost(self, seconds: float) -> None:
        cost = {"call": self._number, "engine_s": seconds}
        self._log.write("cost", self._log.now(), lambda: cost)

    def _told(self, error: BaseException | None) -> dict[str, Any]:
        told: dict[str, Any] = {"call": self._number}
        if not self._waited and not self._streams:
            told["at_once"] = True
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            told["left"] = True
        elif error is not None:
            told["error"] = error_to_plain(error)
        return told


def _made(key: Key) -> str:
    return key if isinstance(key, str) else key()


def error_to_plain(error: BaseException) -> dict[str, Any]:
    """What an engine raised. Of errors that are no messages for people, the kind only."""
    told: dict[str, Any] = {"error": type(error).__name__}
    if isinstance(error, PromptTooLong):
        return {**told, "given": [error.prompt_tokens, error.limit_tokens]}
    if isinstance(error, ReachyVoiceError) and not isinstance(error, Cancelled):
        return {**told, "what": error.what, "why": error.why, "fix": error.fix}
    return told


# --- the engines -------------------------------------------------------------------------------


class RecordedVadStream:
    def __init__(self, stream: VadStreamStage, log: Log) -> None:
        self._stream = stream
        self._log = log
        self._heard = HeardSoFar()

    async def score(self, pcm: Pcm) -> float:
        self._heard.feed(pcm)
        with Call(self._log, "vad.score", self._heard.key) as call:
            score = await self._stream.score(pcm)
            call.result(score)
        return score

    def close(self) -> None:
        self._stream.close()


class RecordedVad:
    def __init__(self, vad: VadStage, log: Log) -> None:
        self._vad = vad
        self._log = log

    @property
    def window_samples(self) -> int:
        return self._vad.window_samples

    async def open(self) -> RecordedVadStream:
        with Call(self._log, "vad.open", ""):
            return RecordedVadStream(await self._vad.open(), self._log)


class RecordedTurn:
    def __init__(self, turn: TurnStage, log: Log) -> None:
        self._turn = turn
        self._log = log

    @property
    def history_seconds(self) -> float:
        return self._turn.history_seconds

    async def score(self, pcm: Pcm, text: str, work: Work) -> float:
        with Call(self._log, "turn.score", lambda: key_of(pcm, text), work) as call:
            score = await self._turn.score(pcm, text, call.work)
            call.result(score)
        return score


class RecordedUtterance:
    def __init__(self, utterance: UtteranceStage, log: Log) -> None:
        self._utterance = utterance
        self._log = log
        self._heard = HeardSoFar()

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        self._heard.feed(pcm)
        with Call(self._log, "stt.feed", self._heard.key, work) as call:
            partial = await self._utterance.feed(pcm, call.work)
            call.result(partial)
        return partial

    async def finish(self, work: Work) -> Transcript:
        with Call(self._log, "stt.finish", self._heard.key, work) as call:
            transcript = await self._utterance.finish(call.work)
            call.result(transcript)
        return transcript

    def close(self) -> None:
        self._utterance.close()


class RecordedStt:
    def __init__(self, stt: SttStage, log: Log) -> None:
        self._stt = stt
        self._log = log

    @property
    def streams(self) -> bool:
        return self._stt.streams

    async def open(self, language: str, partials: bool, work: Work) -> RecordedUtterance:
        with Call(self._log, "stt.open", key_of(language, partials), work) as call:
            utterance = await self._stt.open(language, partials, call.work)
        return RecordedUtterance(utterance, self._log)


class RecordedConversation:
    def __init__(self, conversation: ConversationStage, log: Log) -> None:
        # One that goes on in a new session is written down there, and not twice.
        inner = conversation.inner if isinstance(conversation, RecordedConversation) else None
        self.inner: ConversationStage = inner or conversation
        self._log = log

    async def warm(
        self, messages: Sequence[Message], tools: Sequence[Tool], work: Work, said: str = ""
    ) -> Warmed:
        asked = (tuple(messages), tuple(tools), said)
        with Call(self._log, "llm.warm", lambda: key_of(*asked), work) as call:
            warmed = await self.inner.warm(messages, tools, call.work, said)
            call.result(warmed)
        return warmed

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        sampling: Sampling,
        work: Work,
    ) -> AsyncGenerator[Delta, None]:
        asked = (tuple(messages), tuple(tools), tool_choice, sampling)
        with Call(self._log, "llm.reply", lambda: key_of(*asked), work) as call:
            call.stream()
            stream = self.inner.reply(messages, tools, tool_choice, sampling, call.work)
            async with aclosing(stream) as deltas:
                async for delta in deltas:
                    call.item(delta)
                    yield delta

    def close(self) -> None:
        self.inner.close()


class RecordedLlm:
    def __init__(self, llm: LlmStage, log: Log) -> None:
        self._llm = llm
        self._log = log

    def open(self) -> RecordedConversation:
        return RecordedConversation(self._llm.open(), self._log)


class RecordedTts:
    def __init__(self, tts: TtsStage, log: Log) -> None:
        self._tts = tts
        self._log = log

    @property
    def rate(self) -> int:
        return self._tts.rate

    @property
    def voices(self) -> Sequence[str]:
        return self._tts.voices

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        with Call(self._log, "tts.synthesize", spoken_key(request), work) as call:
            call.stream()
            stream = self._tts.synthesize(request, call.work)
            async with aclosing(stream) as chunks:
                async for pcm in chunks:
                    call.item(pcm)
                    yield pcm


def recorded_stages(stages: Stages, log: Log) -> Stages:
    """The same engines, with their calls written down."""
    return Stages(
        RecordedVad(stages.vad, log),
        RecordedTurn(stages.turn, log),
        RecordedStt(stages.stt, log),
        RecordedLlm(stages.llm, log),
        RecordedTts(stages.tts, log),
        kept=RecordedTts(stages.notices, log),
    )
