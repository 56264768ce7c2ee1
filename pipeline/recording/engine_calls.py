"""Engines whose every call is written down: what for, when it began and ended, and its result.

Arguments are kept as a key only (``plain.key_of``), since a replay makes them again:

    {"kind": "call", "at": 1.25, "call": 6, "of": "turn.score", "key": "...", "began": 1.2, ...}
    {"kind": "call", "at": 1.3, "call": 7, "of": "llm.reply", "key": "..."}      a stream begins,
    {"kind": "item", "at": 1.4, "call": 7, "item": {"is": "TextDelta", ...}}     gives something,
    {"kind": "done", "at": 1.9, "call": 7}                                       and ends

What ends otherwise has an ``error``, or ``left``: the caller had stopped waiting. ``at_once``: the
caller did not even wait for the event loop. Engine time has lines of its own, because it is booked
when the engine is done, which may be before or after the caller is:

    {"kind": "cost", "at": 1.8, "call": 7, "engine_s": 0.4}
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from pipeline.errors import PromptTooLong, ReachyVoiceError
from pipeline.recording.plain import to_plain
from pipeline.recording.taped_stages import Question
from pipeline.work import Cancelled, Work

T = TypeVar("T")


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

    def __init__(self, log: Log, asked: Question, work: Work) -> None:
        self.work = CallWork(work)
        self.work.on_cost = self._cost
        self._log = log
        self._asked = asked
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
        asked, number = self._asked, self._number
        self._log.write(
            "call", self._began, lambda: {"call": number, "of": asked.of, "key": asked.key()}
        )

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
        asked, result = self._asked, self._result
        began = round(self._began, 6)

        def fields() -> dict[str, Any]:
            given = {"began": began, "result": to_plain(result)}
            return {"of": asked.of, "key": asked.key(), **given, **told}

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


def error_to_plain(error: BaseException) -> dict[str, Any]:
    """What an engine raised. Of errors that are no messages for people, the kind only."""
    told: dict[str, Any] = {"error": type(error).__name__}
    if isinstance(error, PromptTooLong):
        return {**told, "given": [error.prompt_tokens, error.limit_tokens]}
    if isinstance(error, ReachyVoiceError) and not isinstance(error, Cancelled):
        return {**told, "what": error.what, "why": error.why, "fix": error.fix}
    return told


class Recorder:
    """Asks the engines, and writes down each call and what it gives."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def one(
        self,
        asked: Question,
        work: Work,
        ask: Callable[[Work], Awaitable[T]],
        otherwise: T | None = None,
    ) -> T:
        with Call(self._log, asked, work) as call:
            result = await ask(call.work)
            call.result(result)
        return result

    async def opened(self, asked: Question, work: Work, ask: Callable[[Work], Awaitable[T]]) -> T:
        with Call(self._log, asked, work) as call:
            return await ask(call.work)

    async def stream(
        self, asked: Question, work: Work, ask: Callable[[Work], AsyncGenerator[T, None]]
    ) -> AsyncGenerator[T, None]:
        with Call(self._log, asked, work) as call:
            call.stream()
            async with aclosing(ask(call.work)) as items:
                async for item in items:
                    call.item(item)
                    yield item
