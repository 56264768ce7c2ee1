"""The server that the latency benchmarks ask where its time goes.

    python -m benchmarks.latency.server --trace FILE [--port N] [--config F] [--set K=V]

The real server with its configured engines; it only watches. Each session's events and each call
of an engine are kept in memory and written to FILE, a JSON line each, when the server ends, so that
no turn waits for a disk. Times are seconds of ``time.monotonic``, which all processes of one
machine share. What people say is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from app.cli.models import open_cache
from app.compose import Assistant
from app.models.weights import WeightsCache
from app.server.serving import PATH, run_server
from app.settings.load import load_settings
from app.settings.model import Settings
from pipeline.audio import Pcm
from pipeline.bus import Bus, Subscription
from pipeline.commands import SessionConfig
from pipeline.conversation.memory import Memory
from pipeline.engines.contract import Delta, EndOfTurn, Partial, Transcript, Warmed
from pipeline.engines.registry import Kind
from pipeline.engines.stages import (
    ConversationStage,
    LlmStage,
    Stages,
    SttStage,
    TtsStage,
    TurnStage,
    UtteranceStage,
)
from pipeline.errors import ReachyVoiceError
from pipeline.events import (
    Event,
    ReplyAudio,
    ReplyFinished,
    ReplyStarted,
    SpeculationDiscarded,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    Timeline,
    TurnJudged,
)
from pipeline.hearing.client import Hearing
from pipeline.messages import SpeechRequest
from pipeline.session import Session
from pipeline.work import Work

_KEPT = (
    SpeechStarted,
    SpeechPaused,
    SpeechResumed,
    SpeechStopped,
    TurnJudged,
    Timeline,
    SpeculationDiscarded,
)


@dataclass(slots=True)
class StageCall:
    """One call of an engine as the session saw it, waiting in the engine's queue included.

    ``work``: calls for the same piece of work have the same number. ``first``: when its first
    result came; for a call with one result, the same as ``ended``. ``complete``: it was not
    cancelled and did not fail.
    """

    call: str
    work: int
    began: float
    first: float | None = None
    ended: float = 0.0
    complete: bool = False


@dataclass(slots=True)
class Trace:
    """Everything noted so far, in the order in which it ended."""

    clock: Callable[[], float] = time.monotonic
    rows: list[dict[str, Any]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @contextmanager
    def call(self, name: str, work: Work) -> Iterator[StageCall]:
        call = StageCall(name, self._number(work), self.clock())
        try:
            yield call
            call.complete = True
        finally:
            call.ended = self.clock()
            call.first = call.first or (call.ended if call.complete else None)
            self.rows.append(asdict(call))

    def event(self, at: float, event: Event, last_reply: str) -> str:
        """Note what matters of ``event``; of a reply's audio only the first. Returns what is
        ``last_reply`` next time: whose audio came last."""
        match event:
            case ReplyAudio(reply_id):
                if reply_id != last_reply:
                    self._add(at, event, reply_id=reply_id)
                return reply_id
            case ReplyFinished(reply_id, status):
                seconds = event.engine_seconds
                self._add(at, event, reply_id=reply_id, status=status, engine_seconds=seconds)
            case ReplyStarted(reply_id):
                self._add(at, event, reply_id=reply_id)
            case _ if isinstance(event, _KEPT):
                self._add(at, event, **asdict(event))
        return last_reply

    def _add(self, at: float, event: Event, **fields: Any) -> None:
        self.rows.append({"event": type(event).__name__, "at": at, **fields})

    def _number(self, work: Work) -> int:
        # On the object itself: an id() is used again when its object is gone.
        number: int | None = getattr(work, "traced_as", None)
        if number is None:
            number = work.traced_as = next(self._numbers)  # type: ignore[attr-defined]
        return number


# --- stages that are watched -------------------------------------------------------------------


@dataclass(slots=True)
class TracedTurn:
    stage: TurnStage
    trace: Trace

    @property
    def history_seconds(self) -> float:
        return self.stage.history_seconds

    async def score(self, pcm: Pcm, text: str, work: Work) -> float:
        with self.trace.call("turn.score", work):
            return await self.stage.score(pcm, text, work)


@dataclass(slots=True)
class TracedUtterance:
    stage: UtteranceStage
    trace: Trace

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        with self.trace.call("stt.feed", work):
            return await self.stage.feed(pcm, work)

    async def finish(self, work: Work) -> Transcript:
        with self.trace.call("stt.finish", work):
            return await self.stage.finish(work)

    def close(self) -> None:
        self.stage.close()


@dataclass(slots=True)
class TracedStt:
    stage: SttStage
    trace: Trace

    @property
    def streams(self) -> bool:
        return self.stage.streams

    async def open(self, language: str, partials: bool, work: Work) -> TracedUtterance:
        return TracedUtterance(await self.stage.open(language, partials, work), self.trace)


@dataclass(slots=True)
class TracedConversation:
    stage: ConversationStage
    trace: Trace

    async def warm(self, messages: Any, tools: Any, work: Work, said: str = "") -> Warmed:
        with self.trace.call("llm.warm", work):
            return await self.stage.warm(messages, tools, work, said)

    async def reply(
        self, messages: Any, tools: Any, tool_choice: Any, sampling: Any, work: Work
    ) -> AsyncGenerator[Delta, None]:
        stream = self.stage.reply(messages, tools, tool_choice, sampling, work)
        with self.trace.call("llm.reply", work) as call:
            async with aclosing(stream) as deltas:
                async for delta in deltas:
                    if not isinstance(delta, EndOfTurn):
                        call.first = call.first or self.trace.clock()
                    yield delta

    def close(self) -> None:
        self.stage.close()


@dataclass(slots=True)
class TracedLlm:
    stage: LlmStage
    trace: Trace

    def open(self) -> TracedConversation:
        return TracedConversation(self.stage.open(), self.trace)


@dataclass(slots=True)
class TracedTts:
    stage: TtsStage
    trace: Trace

    @property
    def rate(self) -> int:
        return self.stage.rate

    @property
    def voices(self) -> Sequence[str]:
        return self.stage.voices

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        stream = self.stage.synthesize(request, work)
        with self.trace.call("tts.synthesize", work) as call:
            async with aclosing(stream) as chunks:
                async for pcm in chunks:
                    call.first = call.first or self.trace.clock()
                    yield pcm


def traced(stages: Stages, trace: Trace) -> Stages:
    """The same engines, watched; the VAD, which is asked 31 times a second, is not."""
    return Stages(
        stages.vad,
        TracedTurn(stages.turn, trace),
        TracedStt(stages.stt, trace),
        TracedLlm(stages.llm, trace),
        TracedTts(stages.tts, trace),
    )


# --- the server --------------------------------------------------------------------------------


class TracedAssistant(Assistant):
    """Notes in ``trace`` what its sessions do."""

    def __init__(self, settings: Settings, cache: WeightsCache, trace: Trace) -> None:
        super().__init__(settings, cache)
        self._trace = trace
        self._watching: set[asyncio.Task[None]] = set()
        self.stages = traced(self.stages, trace)

    async def run(self, on_engine_ready: Callable[[Kind], None] = lambda kind: None) -> None:
        async with asyncio.TaskGroup() as self._watchers:
            await super().run(on_engine_ready)
            for task in self._watching:
                task.cancel()  # no session closes its bus

    def session(
        self,
        bus: Bus,
        config: SessionConfig,
        memory: Memory | None = None,
        place: str = "",
        hearing: Hearing | None = None,
    ) -> Session:
        self._watching.add(self._watchers.create_task(watch(self._trace, bus.subscribe())))
        return super().session(bus, config, memory, place, hearing)


async def watch(trace: Trace, events: Subscription) -> None:
    """Note one session's events until its bus is closed."""
    last_reply = ""
    async for at, event in events:
        last_reply = trace.event(at, event, last_reply)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m benchmarks.latency.server"
    )
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--config")
    parser.add_argument("--set", action="append", default=[], metavar="K=V")
    options = parser.parse_args()
    trace = Trace()
    try:
        settings = load_settings(options.config, options.set).settings
        assistant = TracedAssistant(settings, open_cache(settings), trace)

        def ready(port: int) -> None:
            print(f"Ready. ws://127.0.0.1:{port}{PATH}", file=sys.stderr, flush=True)

        asyncio.run(
            run_server(
                assistant, on_engine_ready=lambda kind: None, on_ready=ready, port=options.port
            )
        )
    except ReachyVoiceError as error:
        sys.exit(str(error))
    finally:
        lines = "".join(f"{json.dumps(row)}\n" for row in trace.rows)
        options.trace.write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
