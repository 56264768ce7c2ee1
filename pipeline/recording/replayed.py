"""Engines that give what a recording holds, when it was given there.

A replay that follows the recording gets each result at its recorded time. One that asks *what if*
(other settings) gets it after the time that it took. Calls are found by what they are for, so the
same question has the same answer, whenever it is asked.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from pipeline import errors
from pipeline.engines.stages import Stages
from pipeline.engines.word_scale import WordScale
from pipeline.errors import EngineError, PromptTooLong, ReachyVoiceError
from pipeline.recording.reading import LATE_S, HeldCall, HeldSession
from pipeline.recording.taped_stages import Question, taped_stages
from pipeline.work import Cancelled, Work

T = TypeVar("T")


@dataclass(slots=True)
class _Answers:
    """The calls with one key, in their order. The last is given again and again."""

    waiting: deque[HeldCall] = field(default_factory=deque)

    def take(self) -> HeldCall:
        return self.waiting.popleft() if len(self.waiting) > 1 else self.waiting[0]

    def prefer_whole(self) -> None:
        """Forget those that were given up, if another one was not."""
        if whole := [call for call in self.waiting if call.whole]:
            self.waiting = deque(whole)


class Player:
    """Finds calls, and waits until their results are due. Used on a virtual loop."""

    def __init__(self, held: HeldSession, *, what_if: bool) -> None:
        self.stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why the replay cannot go on, as soon as it cannot."""
        self.otherwise = 0
        """How many calls were asked something else than in the recording."""
        self.engine = _NoEngine(**held.engines)
        self._taken: set[int] = set()
        self._what_if = what_if
        self._last_s = held.end_s - LATE_S
        self._calls: defaultdict[tuple[str, str], _Answers] = defaultdict(_Answers)
        self._began_at = asyncio.get_running_loop().time()
        for call in held.calls:
            self._calls[call.of, call.key].waiting.append(call)
        for answers in self._calls.values() if what_if else ():
            answers.prefer_whole()

    @property
    def now(self) -> float:
        """Seconds since the session began."""
        return asyncio.get_running_loop().time() - self._began_at

    def find(self, of: str, key: str) -> HeldCall | None:
        """The call that is for this; ``None`` if there was none.

        A replay that follows the recording takes one that was made at the same time for something
        else, and counts it: a word more or less of an interrupted answer may have been heard."""
        call: HeldCall | None = None
        if answers := self._calls.get((of, key)):
            call = answers.take()
        elif of in _ASKED and not self._what_if:
            call = self._made_now(of)
            self.otherwise += call is not None
        if call:
            self._taken.add(id(call))
        return call

    def _made_now(self, of: str) -> HeldCall | None:
        near = [
            call
            for (kind, _), answers in self._calls.items()
            for call in answers.waiting
            if kind == of and id(call) not in self._taken and abs(call.began - self.now) < LATE_S
        ]
        return min(near, key=lambda call: abs(call.began - self.now), default=None)

    def lacks(self, call: HeldCall) -> bool:
        """Whether its end is needed and not held."""
        return self._what_if and not call.whole

    async def stop(self, why: str) -> None:
        """The recording does not hold what is needed: the caller waits for ever."""
        # What was under way when the recording ended is missing, and no riddle.
        if self.now < self._last_s and not self.stopped.done():
            self.stopped.set_result(f"After {self.now:.3f} s {why}")
        await asyncio.get_running_loop().create_future()

    async def due(self, call: HeldCall, began: float, at: float, work: Work) -> None:
        """Wait until what ``call`` gave at ``at`` is due. Raises ``Cancelled`` as engines do."""
        if self._what_if:
            await self._after(began + at - call.began - self.now, work)
        elif (left_s := at - self.now) > 0:
            await asyncio.sleep(left_s)
        elif not call.at_once:
            await asyncio.sleep(0)

    async def _after(self, seconds: float, work: Work) -> None:
        cancelled = asyncio.Event()
        work.watch(cancelled, lambda changed: cancelled.set() if changed.cancelled else None)
        try:
            if not work.cancelled:
                async with asyncio.timeout(max(0.0, seconds)):
                    await cancelled.wait()
            raise Cancelled
        except TimeoutError:
            pass
        finally:
            work.unwatch(cancelled)

    async def one(
        self,
        asked: Question,
        work: Work,
        ask: Callable[[Work], Awaitable[T]],
        otherwise: T | None = None,
    ) -> T:
        """What a call gave that gives one thing. Raises what it raised."""
        call = self.find(asked.of, asked.key())
        # Nothing of a warm-up is in an answer: one that was given up there costs no time here.
        if call is None or (asked.of == "llm.warm" and self.lacks(call)):
            return await self._unknown(asked) if otherwise is None else otherwise
        return cast(T, await self._given(call, work))

    async def opened(self, asked: Question, work: Work, ask: Callable[[Work], Awaitable[T]]) -> T:
        """After the time that it took."""
        if call := self.find(asked.of, asked.key()):
            await self._given(call, work)
        return cast(T, self.engine)

    async def stream(
        self, asked: Question, work: Work, ask: Callable[[Work], AsyncGenerator[T, None]]
    ) -> AsyncGenerator[T, None]:
        """What a call gave, one after the other. Raises what it raised."""
        call = self.find(asked.of, asked.key()) or await self._unknown(asked)
        began = self.now
        self._book(call, began, work)
        for at, value in call.items:
            await self.due(call, began, at, work)
            yield value
        await self.end(call, began, work)

    async def _unknown(self, asked: Question) -> Any:
        about = asked.about if len(asked.about) <= 60 else f"{asked.about[:60]} ..."
        await self.stop(_UNKNOWN[asked.of].format(about=about))

    async def _given(self, call: HeldCall, work: Work) -> Any:
        began = self.now
        self._book(call, began, work)
        for at, value in call.items:
            if not call.at_once:
                await self.due(call, began, at, work)
            return value
        await self.end(call, began, work)
        raise AssertionError("a call ends with a result or an error")

    def _book(self, call: HeldCall, began: float, work: Work) -> None:
        """Have engine time booked when it was, whatever becomes of the call."""
        shift_s = began - call.began if self._what_if else 0.0
        for at, seconds in call.costs:
            if call.at_once:
                work.engine_seconds += seconds
            else:
                after_s = max(0.0, at + shift_s - self.now)
                work.job_began()
                asyncio.get_running_loop().call_later(after_s, work.job_ended, seconds)

    async def end(self, call: HeldCall, began: float, work: Work) -> None:
        """Wait for the end of a call, and raise its error if it had one. What was given up in the
        recording does not end."""
        given_up = self.lacks(call) or call.left
        if call.ended is not None:
            await self.due(call, began, call.ended, work)
        if given_up and self._what_if:
            await self._after(LATE_S, work)  # here it may be given up a little later
            await self.stop(
                f"the end of {_WHAT[call.of]} is needed. The recording does not hold it: it was "
                f"given up there."
            )
        if given_up or call.ended is None:
            await asyncio.get_running_loop().create_future()
        if call.error:
            raise _error(call.error)


_ASKED = ("llm.warm", "llm.reply")
"""What is asked with all that was heard before."""

_WHAT = {
    "vad.open": "a stream of voice activity",
    "vad.score": "voice activity",
    "turn.score": "a judgement of the turn detector",
    "stt.open": "a recognition",
    "stt.feed": "a partial transcript",
    "stt.finish": "a transcript",
    "llm.warm": "a warm-up of the language model",
    "llm.reply": "an answer of the language model",
    "tts.synthesize": "spoken text",
}

_UNKNOWN = {
    "vad.score": "voice activity is needed for audio that was not recorded."
    " Another version may have heard an echo differently.",
    "turn.score": 'the turn detector is asked about "{about}". The recording holds no such call.',
    "stt.finish": "the transcript of {about} of speech is needed. The recording holds none of"
    " exactly that range: the speech was cut differently there.",
    "llm.reply": 'the language model is asked to answer "{about}". The recording holds no answer to'
    " exactly that conversation.",
    "tts.synthesize": '"{about}" is to be said. It was not said there.',
}
"""Why a replay stops at a call that it does not find."""


def _error(told: Any) -> Exception:
    """What an engine raised, again."""
    name = told["error"]
    if name == "Cancelled":
        return Cancelled()
    if name == "PromptTooLong":
        return PromptTooLong(*told["given"])
    if "what" in told:
        kind = getattr(errors, name, EngineError)
        assert issubclass(kind, ReachyVoiceError)
        return kind(told["what"], why=told["why"], fix=told["fix"])
    return RuntimeError(name)


@dataclass(frozen=True, slots=True)
class _NoEngine:
    """Stands where a replay has no engine, and for what is opened on one: no call reaches it."""

    window_samples: int
    history_seconds: float
    streams: bool
    rate: int
    voices: Sequence[str]
    word_scales: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def open(self) -> Any:
        return self

    def close(self) -> None:
        pass


def replayed_stages(player: Player) -> Stages:
    """Engines that give what the recording holds."""
    engine: Any = player.engine
    scales = {key: WordScale(*each) for key, each in engine.word_scales.items()}
    return taped_stages(Stages(engine, engine, engine, engine, engine, word_scales=scales), player)
