"""The engines of a worker, as the session sees them: each call becomes a job of the worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from pipeline.audio import Pcm
from pipeline.engines.contract import (
    Delta,
    Partial,
    SttInfo,
    Transcript,
    TtsInfo,
    TurnInfo,
    VadInfo,
    Warmed,
)
from pipeline.engines.stages import Spoken, UtteranceStage
from pipeline.errors import EngineCrashed, EngineError
from pipeline.messages import Message, Sampling, SpeechRequest, Tool, ToolChoice
from pipeline.work import Cancelled, Work
from pipeline.workers.worker import Remote, Worker


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
            self._remote = await self._worker.engine.open("open", work=self._work)
        return float(await self._remote.call("score", pcm, work=self._work))


class RemoteVad:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def window_samples(self) -> int:
        return self._worker.info_as(VadInfo).window_samples

    async def open(self) -> RemoteVadStream:
        return RemoteVadStream(self._worker)


class RemoteTurn:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._engine = worker.engine

    @property
    def history_seconds(self) -> float:
        return self._worker.info_as(TurnInfo).history_seconds

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
        return self._worker.info_as(SttInfo).streams

    async def open(self, language: str, partials: bool, work: Work) -> UtteranceStage:
        remote = await self._engine.open("open", language, partials, work=work)
        shares = self._worker.info_as(SttInfo).batches
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
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._engine = worker.engine
        self._spoken = Spoken()

    @property
    def rate(self) -> int:
        return self._worker.info_as(TtsInfo).rate

    @property
    def voices(self) -> Sequence[str]:
        return self._worker.info_as(TtsInfo).voices

    def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        language = self._spoken.choose(request.language, self._worker.info_as(TtsInfo).languages)
        return self._engine.stream("synthesize", replace(request, language=language), work=work)
