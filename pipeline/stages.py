"""The engines as the session sees them: typed and awaitable.

The ``*Stage`` protocols are what the session needs; the ``Remote*`` classes speak to a worker.
Engines by URL (``pipeline.by_url``) bring stages of their own, which run on the event loop. Tests
in virtual time bring scripted stages instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline.audio import Pcm
from pipeline.engines import Delta, Partial, Transcript, Warmed
from pipeline.errors import EngineCrashed, EngineError
from pipeline.leases import Leases
from pipeline.messages import Message, Sampling, Tool, ToolChoice
from pipeline.work import Cancelled, Work
from pipeline.worker import Remote, Worker

log = logging.getLogger("reachy_voice.tts")

MOST_TOLD = 20
"""Languages that the log names: clients may ask for whatever they like."""


class VadStreamStage(Protocol):
    async def score(self, pcm: Pcm) -> float: ...

    def close(self) -> None: ...


class VadStage(Protocol):
    @property
    def window_samples(self) -> int: ...

    async def open(self) -> VadStreamStage: ...


class TurnStage(Protocol):
    @property
    def history_seconds(self) -> float: ...

    async def score(self, pcm: Pcm, text: str, work: Work) -> float: ...


class UtteranceStage(Protocol):
    async def feed(self, pcm: Pcm, work: Work) -> Partial: ...

    async def finish(self, work: Work) -> Transcript: ...

    def close(self) -> None: ...


class SttStage(Protocol):
    @property
    def streams(self) -> bool: ...

    async def open(self, language: str, partials: bool, work: Work) -> UtteranceStage: ...


class ConversationStage(Protocol):
    async def warm(
        self, messages: Sequence[Message], tools: Sequence[Tool], work: Work, said: str = ""
    ) -> Warmed: ...

    def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        sampling: Sampling,
        work: Work,
    ) -> AsyncGenerator[Delta, None]: ...

    def close(self) -> None: ...


class LlmStage(Protocol):
    def open(self) -> ConversationStage: ...


class TtsStage(Protocol):
    """May have ``in_language(language) -> TtsStage``: see ``spoken_in``."""

    @property
    def rate(self) -> int: ...

    @property
    def voices(self) -> Sequence[str]: ...

    def synthesize(
        self, text: str, voice: str, speed: float, work: Work, attempt: int = 0
    ) -> AsyncGenerator[Pcm, None]: ...


def spoken_in(tts: TtsStage, language: str) -> TtsStage:
    """The same voice for text in ``language`` (ISO 639-1; empty: not known). One that knows of no
    languages stays as it is."""
    choose = getattr(tts, "in_language", None)
    chosen: TtsStage = choose(language) if choose else tts
    return chosen


class OneLanguage:
    """A ``TtsStage`` whose language becomes known on the way; its ``voice`` may be exchanged."""

    def __init__(self, tts: TtsStage, language: str) -> None:
        self.language = language
        self.voice = tts

    @property
    def rate(self) -> int:
        return self.voice.rate

    @property
    def voices(self) -> Sequence[str]:
        return self.voice.voices

    def synthesize(
        self, text: str, voice: str, speed: float, work: Work, attempt: int = 0
    ) -> AsyncGenerator[Pcm, None]:
        """In the language that is known now."""
        tts = spoken_in(self.voice, self.language)
        return tts.synthesize(text, voice, speed, work, attempt)


class Spoken:
    """What one voice speaks, and what it was asked for in vain; that is told once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def choose(self, language: str, languages: Sequence[str]) -> str:
        """``language`` if it is one of ``languages``; else empty."""
        if not language or language in languages:
            return language
        if language not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(language)
            log.warning(
                "The voice does not speak %r; it reads it as if it did (it speaks: %s). "
                "Choose another voice in `tts`, or set conversation.language",
                language[:20],
                ", ".join(languages),
            )
        return ""


@dataclass(slots=True, eq=False)
class Stages:
    """All that a session needs to hear, think and speak. One of them may be exchanged by another
    of its kind; ``leases`` are held by those who need the same ones for longer than one call."""

    vad: VadStage
    turn: TurnStage
    stt: SttStage
    llm: LlmStage
    tts: TtsStage
    leases: Leases = field(default_factory=Leases)


# --- over a worker -----------------------------------------------------------------------------


class RemoteVadStream:
    """One stream at the VAD; opened when first used, and again after an engine restart: the window
    that was lost with the old one is scored by the new one."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._remote: Remote | None = None
        self._work = Work()

    async def score(self, pcm: Pcm) -> float:
        try:
            return await self._score(pcm)
        except EngineCrashed:
            return await self._score(pcm)

    def close(self) -> None:
        if self._remote:
            self._remote.close()
            self._remote = None

    async def _score(self, pcm: Pcm) -> float:
        if self._remote is None or not self._remote.usable:
            await self._worker.back()
            self._remote = await self._worker.engine.open("open", work=self._work)
        return float(await self._remote.call("score", pcm, work=self._work))


class RemoteVad:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def window_samples(self) -> int:
        return int(self._worker.attributes["window_samples"])

    async def open(self) -> RemoteVadStream:
        return RemoteVadStream(self._worker)


class RemoteTurn:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._engine = worker.engine

    @property
    def history_seconds(self) -> float:
        return float(self._worker.attributes["history_seconds"])

    async def score(self, pcm: Pcm, text: str, work: Work) -> float:
        return float(await self._engine.call("score", pcm, text, work=work))


class RemoteSharingUtterance:
    """Of an engine that answers several who wait in one pass (``engines.SharingUtterance``)."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        partial: Partial = await self._last("feed_steps", pcm, work=work)
        return partial

    async def finish(self, work: Work) -> Transcript:
        transcript: Transcript = await self._last("finish_steps", work=work)
        return transcript

    def close(self) -> None:
        self._remote.close()

    async def _last(self, method: str, *args: Any, work: Work) -> Any:
        async with aclosing(self._remote.stream(method, *args, work=work)) as steps:
            results = [result async for result in steps]
        if not results:
            raise EngineError("The speech recogniser gave no result", why=f"{method} was empty")
        return results[-1]


class RemoteUtterance:
    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        partial: Partial = await self._remote.call("feed", pcm, work=work)
        return partial

    async def finish(self, work: Work) -> Transcript:
        transcript: Transcript = await self._remote.call("finish", work=work, cancellable=True)
        return transcript

    def close(self) -> None:
        self._remote.close()


class RemoteStt:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._engine = worker.engine

    @property
    def streams(self) -> bool:
        return bool(self._worker.attributes["streams"])

    async def open(self, language: str, partials: bool, work: Work) -> UtteranceStage:
        await self._worker.back()
        remote = await self._engine.open("open", language, partials, work=work)
        shares = self._worker.attributes.get("batches", False)
        return RemoteSharingUtterance(remote) if shares else RemoteUtterance(remote)


class RemoteConversation:
    """One conversation at the LLM; opened when first used, and again after an engine restart."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._engine = worker.engine
        self._remote: Remote | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def warm(
        self, messages: Sequence[Message], tools: Sequence[Tool], work: Work, said: str = ""
    ) -> Warmed:
        await self._back_for(work)
        remote = await self._opened(work)
        async with aclosing(remote.stream("warm", messages, tools, said, work=work)) as items:
            results: list[Warmed] = [result async for result in items]
        return results[-1] if results else Warmed()

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        sampling: Sampling,
        work: Work,
    ) -> AsyncGenerator[Delta, None]:
        remote = await self._opened(work)
        stream = remote.stream("reply", messages, tools, tool_choice, sampling, work=work)
        async with aclosing(stream) as deltas:
            async for delta in deltas:
                yield delta

    def close(self) -> None:
        """For good; an opening that is under way ends with ``Cancelled``."""
        self._closed = True
        if self._remote:
            self._remote.close()
            self._remote = None

    async def _back_for(self, work: Work) -> None:
        """Reading ahead has time: an engine that is started again finds it waiting, and has read
        the conversation when it is asked. Raises ``Cancelled``."""
        if self._worker.ready.is_set():
            return
        stopped = asyncio.Event()
        work.watch(stopped, lambda _: stopped.set() if work.cancelled else None)
        tasks = [asyncio.create_task(event.wait()) for event in (self._worker.ready, stopped)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.unwatch(stopped)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if work.cancelled:
            raise Cancelled

    async def _opened(self, work: Work) -> Remote:
        # A warm-up and a reply may come at once; they share one object.
        async with self._opening:
            if self._remote is None or not self._remote.usable:
                await self._worker.back()
                self._remote = await self._engine.open("open", work=work)
            if self._closed:
                self.close()
                raise Cancelled
            return self._remote


class RemoteLlm:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def open(self) -> RemoteConversation:
        return RemoteConversation(self._worker)


class RemoteTts:
    def __init__(self, worker: Worker, language: str = "", spoken: Spoken | None = None) -> None:
        """``language``: of all texts, ISO 639-1; empty: the engine's own."""
        self._worker = worker
        self._engine = worker.engine
        self._language = language
        self._spoken = spoken or Spoken()

    @property
    def languages(self) -> Sequence[str]:
        """What it speaks; empty where the engine does not tell."""
        return tuple(self._worker.attributes.get("languages", ()))

    def in_language(self, language: str) -> RemoteTts:
        """The same engine for text in another language."""
        return RemoteTts(self._worker, language, self._spoken)

    @property
    def rate(self) -> int:
        return int(self._worker.attributes["rate"])

    @property
    def voices(self) -> Sequence[str]:
        return tuple(self._worker.attributes["voices"])

    async def synthesize(
        self, text: str, voice: str, speed: float, work: Work, attempt: int = 0
    ) -> AsyncGenerator[Pcm, None]:
        await self._worker.back()
        named: dict[str, Any] = {"attempt": attempt} if attempt else {}
        languages = self.languages
        if languages and (language := self._spoken.choose(self._language, languages)):
            named["language"] = language
        stream = self._engine.stream("synthesize", text, voice, speed, work=work, named=named)
        async with aclosing(stream) as chunks:
            async for pcm in chunks:
                yield pcm
