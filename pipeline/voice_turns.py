"""The user's turns by voice: from turn signals to committed speech.

At the first silent frames an ``Attempt`` begins: the final transcript first, then the reply
behind its gate and beside it the turn detector, whose probability sets how long to wait. When the
user goes on, the attempt dies unseen. When the turn has ended, the speech is committed and the
gate opens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from pipeline.audio import LISTEN_RATE, Pcm, Recording
from pipeline.engines import Cancelled, Transcript
from pipeline.errors import EngineError, ReachyVoiceError
from pipeline.events import (
    Bus,
    SpeculationDiscarded,
    SpeechPaused,
    SpeechRejected,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TranscriptPartial,
    TurnJudged,
)
from pipeline.listening import Listener
from pipeline.reply import Reply
from pipeline.stages import Stages
from pipeline.turns import Ended, Endpointing, Paused, Resumed, Signal, Started
from pipeline.utterance import Attempt, Recognition, UserTurn
from pipeline.work import Priority, Work


class Speaker(Protocol):
    """What a voice turn asks of its session."""

    def speech_started(self) -> bool:
        """Somebody speaks. If that interrupts, replies end, and True is returned."""
        ...

    def begin_reply(self, said: str, attempt: Attempt) -> Reply | None:
        """A reply behind a shut gate to what was said; ``None`` while another one is given."""
        ...

    def commit_speech(
        self, item_id: str, said: Transcript | ReachyVoiceError, audio: Recording
    ) -> None:
        """The utterance becomes an item of the conversation."""
        ...

    def answer(self, attempt: Attempt) -> None:
        """Open the gate of the attempt's reply, or start one now."""
        ...


class VoiceTurns:
    """Follows one listener. Lives in the session's TaskGroup."""

    def __init__(
        self,
        session: Speaker,
        listener: Listener,
        stages: Stages,
        bus: Bus,
        tasks: asyncio.TaskGroup,
        new_id: Callable[[str], str],
    ) -> None:
        self._session = session
        self._listener = listener
        self._stages = stages
        self._bus = bus
        self._tasks = tasks
        self._new_id = new_id
        self._endpointing = Endpointing()
        self._language = ""
        self._wants_reply = True
        self._partials = False
        self._turn: UserTurn | None = None
        self._ending: dict[Attempt, UserTurn] = {}
        """Turns that have ended and are not committed yet, in their order."""
        self._closed_to = 0

    @property
    def open(self) -> bool:
        """Whether an utterance is open."""
        return self._turn is not None

    @property
    def ending(self) -> bool:
        """Whether a turn that has ended waits to be committed."""
        return bool(self._ending)

    def configure(
        self, endpointing: Endpointing, language: str, *, wants_reply: bool, partials: bool
    ) -> None:
        self._endpointing = endpointing
        self._language = language
        self._wants_reply = wants_reply
        self._partials = partials
        for attempt in self._ending:
            attempt.wants_reply = attempt.wants_reply and wants_reply

    async def hear(self, pcm: Pcm) -> None:
        """Take samples at ``LISTEN_RATE``."""
        async for signals in self._listener.hear(pcm):
            self._follow(signals)
            if self._turn and self._turn.attempt is None:
                self._feed(self._turn, self._listener.heard_end)

    def take(self) -> UserTurn | None:
        """The client ends the turn itself: hand the open utterance over, all its audio fed."""
        turn, self._turn = self._turn, None
        self._listener.forget_turn()
        if turn:
            self._discard_attempt(turn)
            self._feed(turn, self._listener.heard_end)
            self._closed_to = self._listener.heard_end
            self._bus.publish(SpeechStopped(turn.item_id, _ms(self._closed_to)))
        return turn

    def drop(self) -> None:
        """Forget an open utterance; nothing of it is committed, nor comes back as padding."""
        turn, self._turn = self._turn, None
        self._listener.forget_turn()
        self._closed_to = self._listener.heard_end
        if turn is None:
            return
        self._discard_attempt(turn)
        turn.recognising.cancel()
        self._bus.publish(SpeechStopped(turn.item_id, _ms(self._listener.heard_end)))

    def drop_ended(self) -> None:
        """Forget turns that have ended and are not committed yet, too."""
        for attempt, turn in self._ending.items():
            self._tell_stop(attempt)
            self._stop(attempt)
            turn.recognising.cancel()
        self._ending.clear()

    # -- signals

    def _follow(self, signals: list[Signal]) -> None:
        for signal in signals:
            match signal:
                case Started():
                    self._open(signal)
                case Paused():
                    self._pause(signal)
                case Resumed():
                    self._resume(signal)
                case Ended():
                    if self._turn:
                        self._end(self._turn)

    def _open(self, signal: Started) -> None:
        padding = self._endpointing.prefix_padding_ms * LISTEN_RATE // 1000
        start = max(signal.start - padding, self._closed_to, 0)
        item_id = self._new_id("item")

        def tell(words: str) -> None:
            self._bus.publish(TranscriptPartial(item_id, words))

        on_words = tell if self._partials else None
        recognition = Recognition(self._stages.stt, self._language, on_words)
        task = self._tasks.create_task(recognition.run())
        self._turn = UserTurn(item_id, start, start, recognition, task)
        for attempt in self._ending:
            self._tell_stop(attempt)
        self._bus.publish(SpeechStarted(item_id, _ms(start)))
        if self._session.speech_started():
            # A turn before that still waits for its transcript is answered with this one.
            for attempt in self._ending:
                attempt.wants_reply = False

    def _pause(self, signal: Paused) -> None:
        if self._turn:
            self._bus.publish(SpeechPaused(self._turn.item_id, _ms(signal.speech_end)))
            self._begin_attempt(self._turn, signal, self._wants_reply)

    def _resume(self, signal: Resumed) -> None:
        if self._turn:
            self._bus.publish(SpeechResumed(self._turn.item_id, _ms(signal.start)))
            self._discard_attempt(self._turn)

    def _end(self, turn: UserTurn) -> None:
        """The turn is over; its attempt commits it as soon as the transcript is there."""
        attempt = turn.attempt
        assert attempt
        self._turn = None
        self._ending[attempt] = turn
        self._closed_to = attempt.end
        attempt.ended.set()

    def _tell_stop(self, attempt: Attempt) -> None:
        """Once, with the commit; before it only if somebody speaks again meanwhile."""
        if not attempt.stop_told:
            attempt.stop_told = True
            self._bus.publish(SpeechStopped(attempt.item_id, _ms(attempt.end)))

    # -- attempts

    def _begin_attempt(self, turn: UserTurn, pause: Paused, wants_reply: bool) -> None:
        self._feed(turn, pause.end)
        since = (self._listener.heard_end - pause.speech_end) / LISTEN_RATE
        paused_at = asyncio.get_running_loop().time() - since
        work = Work(Priority.SPECULATIVE)
        attempt = Attempt(turn.item_id, work, pause.speech_end, pause.end, paused_at, wants_reply)
        turn.attempt = attempt
        before = next(reversed(self._ending)).task if self._ending else None
        attempt.task = self._tasks.create_task(self._attempt(turn, attempt, before))

    def _discard_attempt(self, turn: UserTurn) -> None:
        attempt, turn.attempt = turn.attempt, None
        if attempt:
            self._stop(attempt)

    def _stop(self, attempt: Attempt) -> None:
        attempt.work.cancel()
        if attempt.reply:
            attempt.reply.cancel("resumed")
        if attempt.task:
            attempt.task.cancel()
        self._bus.publish(SpeculationDiscarded(attempt.item_id, attempt.work.engine_seconds))

    async def _attempt(
        self, turn: UserTurn, attempt: Attempt, before: asyncio.Task[None] | None
    ) -> None:
        """``before``: the attempt that ended the turn before; turns are committed in order."""
        said = await self._transcript(turn, attempt)
        if before:
            await asyncio.wait({before})
        if isinstance(said, Transcript):
            attempt.said = said.text
        else:
            attempt.error = said
        if attempt.said and attempt.wants_reply:
            attempt.reply = self._session.begin_reply(attempt.said, attempt)
        async with asyncio.TaskGroup() as group:
            judging = group.create_task(self._judge(turn, attempt))
            await attempt.ended.wait()
            judging.cancel()
        self._commit(turn, attempt, said)

    async def _transcript(self, turn: UserTurn, attempt: Attempt) -> Transcript | ReachyVoiceError:
        try:
            return await turn.recognition.transcript(attempt.work)
        except ReachyVoiceError as error:
            return error
        except Cancelled:
            return EngineError("The utterance was not recognised", why="the engine is stopping")

    async def _judge(self, turn: UserTurn, attempt: Attempt) -> None:
        """Ask the turn detector once, early: a longer silence only makes it more credulous."""
        probability = 1.0
        if attempt.said:
            seconds = self._stages.turn.history_seconds
            start = max(turn.start, attempt.end - int(seconds * LISTEN_RATE))
            pcm = self._listener.read(start, attempt.end)
            try:
                probability = await self._stages.turn.score(pcm, attempt.said, attempt.work)
            except (ReachyVoiceError, Cancelled):
                return
        wait_ms = self._endpointing.wait_ms(probability)
        self._bus.publish(TurnJudged(turn.item_id, probability, wait_ms))
        if self._turn is turn and turn.attempt is attempt:
            self._follow(self._listener.judge(probability))

    def _commit(
        self, turn: UserTurn, attempt: Attempt, said: Transcript | ReachyVoiceError
    ) -> None:
        turn.recognising.cancel()
        del self._ending[attempt]
        self._tell_stop(attempt)
        if isinstance(said, Transcript) and not said.text:
            self._bus.publish(SpeechRejected(turn.item_id))
            return
        attempt.committed = True
        self._session.commit_speech(turn.item_id, said, turn.audio)
        if not attempt.wants_reply and attempt.reply:
            attempt.reply.cancel("turn_detected")
        elif attempt.wants_reply:
            self._session.answer(attempt)

    def _feed(self, turn: UserTurn, end: int) -> None:
        pcm = self._listener.read(turn.fed_to, end)
        if len(pcm):
            turn.recognition.append(pcm)
            turn.pieces.append(pcm)
            turn.fed_to = end


def _ms(index: int) -> int:
    return index * 1000 // LISTEN_RATE
