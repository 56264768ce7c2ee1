"""Engines that give what a recording holds, when it was given there.

A replay that follows the recording gets each result at its recorded time. One that asks *what if*
(other settings) gets it after the time that it took. Calls are found by what they are for, so the
same question has the same answer, whenever it is asked.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline import errors
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import Delta, Partial, Transcript, Warmed
from pipeline.engines.stages import Stages
from pipeline.errors import EngineError, PromptTooLong, ReachyVoiceError
from pipeline.messages import Message, Sampling, SpeechRequest, Tool, ToolChoice
from pipeline.recording.plain import HeardSoFar, key_of, spoken_key
from pipeline.recording.reading import LATE_S, HeldCall, HeldSession
from pipeline.work import Cancelled, Work


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

    async def due(self, call: HeldCall, began: float, at: float, work: Work | None) -> None:
        """Wait until what ``call`` gave at ``at`` is due. Raises ``Cancelled`` as engines do."""
        if self._what_if:
            await self._after(began + at - call.began - self.now, work)
        elif (left_s := at - self.now) > 0:
            await asyncio.sleep(left_s)
        elif not call.at_once:
            await asyncio.sleep(0)

    async def _after(self, seconds: float, work: Work | None) -> None:
        if work is None:
            await asyncio.sleep(max(0.0, seconds))
            return
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

    async def one(self, call: HeldCall, work: Work | None) -> Any:
        """What a call gave that gives one thing. Raises what it raised."""
        began = self.now
        self._book(call, began, work)
        for at, value in call.items:
            if not call.at_once:
                await self.due(call, began, at, work)
            return value
        await self.end(call, began, work)
        raise AssertionError("a call ends with a result or an error")

    async def stream(self, call: HeldCall, work: Work) -> AsyncGenerator[Any, None]:
        """What a call gave, one after the other. Raises what it raised."""
        began = self.now
        self._book(call, began, work)
        for at, value in call.items:
            await self.due(call, began, at, work)
            yield value
        await self.end(call, began, work)

    def _book(self, call: HeldCall, began: float, work: Work | None) -> None:
        """Have engine time booked when it was, whatever becomes of the call."""
        if work is None:
            return
        shift_s = began - call.began if self._what_if else 0.0
        for at, seconds in call.costs:
            if call.at_once:
                work.engine_seconds += seconds
            else:
                after_s = max(0.0, at + shift_s - self.now)
                work.job_began()
                asyncio.get_running_loop().call_later(after_s, work.job_ended, seconds)

    async def end(self, call: HeldCall, began: float, work: Work | None) -> None:
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


# --- the engines -------------------------------------------------------------------------------


class ReplayedVadStream:
    def __init__(self, player: Player) -> None:
        self._player = player
        self._heard = HeardSoFar()

    async def score(self, pcm: Pcm) -> float:
        self._heard.feed(pcm)
        if call := self._player.find("vad.score", self._heard.key):
            return float(await self._player.one(call, None))
        await self._player.stop(
            "voice activity of other audio is needed than was recorded."
            " Another version may have heard an echo otherwise."
        )
        raise AssertionError

    def close(self) -> None:
        pass


class ReplayedVad:
    def __init__(self, player: Player, window_samples: int) -> None:
        self._player = player
        self.window_samples = window_samples

    async def open(self) -> ReplayedVadStream:
        if call := self._player.find("vad.open", ""):
            await self._player.one(call, None)
        return ReplayedVadStream(self._player)


class ReplayedTurn:
    def __init__(self, player: Player, history_seconds: float) -> None:
        self._player = player
        self.history_seconds = history_seconds

    async def score(self, pcm: Pcm, text: str, work: Work) -> float:
        if call := self._player.find("turn.score", key_of(pcm, text)):
            return float(await self._player.one(call, work))
        await self._player.stop(
            f"the turn detector is asked about {_words(text)}. The recording holds no such call."
        )
        raise AssertionError


class ReplayedUtterance:
    def __init__(self, player: Player) -> None:
        self._player = player
        self._heard = HeardSoFar()
        self._samples = 0
        self._partial = Partial()

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        self._heard.feed(pcm)
        self._samples += len(pcm)
        # Pieces may be cut otherwise here, where a feed was a little earlier or later.
        if call := self._player.find("stt.feed", self._heard.key):
            self._partial = await self._player.one(call, work)
        return self._partial

    async def finish(self, work: Work) -> Transcript:
        if call := self._player.find("stt.finish", self._heard.key):
            transcript: Transcript = await self._player.one(call, work)
            return transcript
        await self._player.stop(
            f"the transcript of {self._samples / LISTEN_RATE:.2f} s of speech is needed. The "
            f"recording holds none of exactly that range: it was cut otherwise there."
        )
        raise AssertionError

    def close(self) -> None:
        pass


class ReplayedStt:
    def __init__(self, player: Player, streams: bool) -> None:
        self._player = player
        self.streams = streams

    async def open(self, language: str, partials: bool, work: Work) -> ReplayedUtterance:
        if call := self._player.find("stt.open", key_of(language, partials)):
            await self._player.one(call, work)
        return ReplayedUtterance(self._player)


class ReplayedConversation:
    def __init__(self, player: Player) -> None:
        self._player = player

    async def warm(
        self, messages: Sequence[Message], tools: Sequence[Tool], work: Work, said: str = ""
    ) -> Warmed:
        # Nothing of it is in an answer, so one that the recording does not hold costs no time.
        call = self._player.find("llm.warm", key_of(tuple(messages), tuple(tools), said))
        if call is None or self._player.lacks(call):
            return Warmed()
        warmed: Warmed = await self._player.one(call, work)
        return warmed

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        sampling: Sampling,
        work: Work,
    ) -> AsyncGenerator[Delta, None]:
        call = self._player.find(
            "llm.reply", key_of(tuple(messages), tuple(tools), tool_choice, sampling)
        )
        if call is None:
            asked = messages[-1].content if messages else ""
            await self._player.stop(
                f"the language model is asked to answer {_words(asked)}. The recording holds no "
                f"answer to exactly that conversation."
            )
            raise AssertionError
        async for delta in self._player.stream(call, work):
            yield delta

    def close(self) -> None:
        pass


class ReplayedLlm:
    def __init__(self, player: Player) -> None:
        self._player = player

    def open(self) -> ReplayedConversation:
        return ReplayedConversation(self._player)


class ReplayedTts:
    def __init__(self, player: Player, rate: int, voices: Sequence[str]) -> None:
        self._player = player
        self.rate = rate
        self.voices = voices

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        call = self._player.find("tts.synthesize", spoken_key(request))
        if call is None:
            await self._player.stop(f"{_words(request.text)} is to be said. It was not said there.")
            raise AssertionError
        async for pcm in self._player.stream(call, work):
            yield pcm


def _words(text: str) -> str:
    return f'"{text}"' if len(text) <= 60 else f'"{text[:60]} ..."'


def replayed_stages(held: HeldSession, player: Player) -> Stages:
    """Engines that give what ``held`` holds."""
    engines = held.engines
    return Stages(
        ReplayedVad(player, engines["window_samples"]),
        ReplayedTurn(player, engines["history_seconds"]),
        ReplayedStt(player, engines["streams"]),
        ReplayedLlm(player),
        ReplayedTts(player, engines["rate"], tuple(engines["voices"])),
    )
