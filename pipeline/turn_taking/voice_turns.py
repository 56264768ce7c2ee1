"""The user's turns by voice: from turn signals to committed speech.

At the first silent frames an attempt begins (``pipeline.turn_taking.attempts``). When the user goes
on, it dies unseen. When the turn has ended, the speech is committed and the reply's gate opens.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.bus import Bus
from pipeline.engines.contract import Transcript
from pipeline.engines.stages import Stages
from pipeline.events import (
    SpeechPaused,
    SpeechRejected,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TranscriptPartial,
)
from pipeline.hearing.listening import Listener
from pipeline.hearing.recognition import Recognition
from pipeline.hearing.stable_words import StableWords
from pipeline.hearing.turn_signals import Ended, Paused, Resumed, Signal, Started
from pipeline.settings import BargeIn, Endpointing, Speculation
from pipeline.turn_taking.attempts import Attempts, Said, Speaker
from pipeline.turn_taking.overlaps import Overlaps
from pipeline.turn_taking.user_turn import Attempt, UserTurn


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
        speculation: Speculation,
        barge_in: BargeIn,
    ) -> None:
        self._session = session
        self._listener = listener
        self._stages = stages
        self._bus = bus
        self._tasks = tasks
        self._new_id = new_id
        self._attempts = Attempts(
            *(session, listener, stages, bus, tasks, speculation),
            on_read=self._read,
            on_judged=self._judged,
            on_ended=self._commit,
        )
        self._overlaps = Overlaps(session, listener, bus, tasks, barge_in, self._announce)
        self._language = ""
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
    def suspecting(self) -> bool:
        """Whether the next sound decides if there is speech: an answer or a turn waits for it."""
        return self._overlaps.suspecting or self._listener.undecided

    @property
    def ending(self) -> bool:
        """Whether a turn that has ended waits to be committed."""
        return bool(self._ending)

    def configure(
        self, endpointing: Endpointing, language: str, *, wants_reply: bool, partials: bool
    ) -> None:
        self._attempts.endpointing = endpointing
        self._attempts.wants_reply = wants_reply
        self._language = language
        self._partials = partials
        last = [self._turn.attempt] if self._turn and self._turn.attempt else []
        for attempt in (*self._ending, *last):
            attempt.wants_reply = attempt.wants_reply and wants_reply

    async def hear(self, pcm: Pcm) -> None:
        """Take samples at ``LISTEN_RATE``."""
        async for signals in self._listener.hear(pcm):
            self._follow(signals)
            if self._turn and self._turn.attempt is None:
                self._feed(self._turn, self._listener.heard_end)
                self._overlaps.follow(self._turn)
            elif self._turn is None:
                self._overlaps.suspect()

    def claim(self) -> None:
        """Whoever speaks now is meant to be answered."""
        if self._turn:
            self._overlaps.claim(self._turn)

    def take(self) -> UserTurn | None:
        """The client ends the turn itself: hand the open utterance over, all its audio fed."""
        self._follow(self._listener.admit())
        turn, self._turn = self._turn, None
        self._listener.forget_turn()
        self._overlaps.suspect()
        if turn:
            self._overlaps.claim(turn)
            self._attempts.discard(turn)
            self._feed(turn, self._listener.heard_end)
            self._closed_to = self._listener.heard_end
            self._stopped(turn.item_id, self._closed_to)
        return turn

    def take_ended(self) -> list[UserTurn]:
        """Hand turns over that have ended and are not committed yet, oldest first."""
        turns = list(self._ending.values())
        for attempt, turn in self._ending.items():
            self._overlaps.claim(turn)
            self._tell_stop(attempt)
            self._attempts.stop(attempt)
        self._ending.clear()
        return turns

    def drop(self) -> None:
        """Forget an open utterance; nothing of it is committed, nor comes back as padding."""
        turn, self._turn = self._turn, None
        self._listener.forget_turn()
        self._overlaps.suspect()
        self._closed_to = self._listener.heard_end
        if turn is None:
            return
        self._attempts.discard(turn)
        turn.recognising.cancel()
        if not self._overlaps.drop(turn):
            self._stopped(turn.item_id, self._listener.heard_end)

    def drop_ended(self) -> None:
        """Forget turns that have ended and are not committed yet, too."""
        for attempt, turn in list(self._ending.items()):
            if self._overlaps.drop(turn):
                del self._ending[attempt]
                self._attempts.stop(attempt)
                turn.recognising.cancel()
        for turn in self.take_ended():
            turn.recognising.cancel()

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
        padding = self._attempts.endpointing.prefix_padding_ms * LISTEN_RATE // 1000
        start = max(signal.start - padding, self._closed_to, 0)
        item_id = self._new_id("item")

        def on_words(words: str, known: StableWords) -> None:
            if turn.weighing:
                turn.untold += words
                return
            if words:
                self._tell_words(turn, words)
            if turn is self._turn:
                self._attempts.hear_words(turn, words, known)

        wanted = self._partials or self._attempts.wants_partials
        recognition = Recognition(self._stages, self._language, on_words if wanted else None)
        task = self._tasks.create_task(recognition.run())
        turn = self._turn = UserTurn(item_id, start, start, recognition, task, signal.start)
        if not self._overlaps.begin(turn):
            self._announce(turn)

    def _stopped(self, item_id: str, end: int) -> None:
        self._bus.publish(SpeechStopped(item_id, _ms(end), self._session.said_from_deg))

    def _announce(self, turn: UserTurn) -> None:
        """Somebody speaks; told as soon as it is known."""
        before = list(itertools.takewhile(lambda a: a is not turn.attempt, self._ending))
        for attempt in before:
            # What was weighed when somebody goes on to speak belongs to what they say.
            self._overlaps.claim(self._ending[attempt])
            self._tell_stop(attempt)
        self._bus.publish(SpeechStarted(turn.item_id, _ms(turn.start), self._session.direction_deg))
        self._tell_words(turn, "")
        if turn.attempt:
            self._tell_pause(turn.item_id, turn.attempt.speech_end)
        if self._session.speech_started():
            # A turn before that still waits for its transcript is answered with this one.
            for attempt in before:
                attempt.superseded = True

    def _tell_words(self, turn: UserTurn, words: str) -> None:
        """Those, and what was heard while it was weighed."""
        words, turn.untold = turn.untold + words, ""
        if words and self._partials:
            self._bus.publish(TranscriptPartial(turn.item_id, words))

    def _pause(self, signal: Paused) -> None:
        if self._turn:
            if not self._turn.weighing:
                self._tell_pause(self._turn.item_id, signal.speech_end)
            self._feed(self._turn, signal.end)
            self._attempts.begin(self._turn, signal, next(reversed(self._ending), None))

    def _tell_pause(self, item_id: str, speech_end: int) -> None:
        silence_ms = _ms(self._listener.heard_end - speech_end)
        self._bus.publish(SpeechPaused(item_id, _ms(speech_end), silence_ms))

    def _resume(self, signal: Resumed) -> None:
        if self._turn is None:
            return
        if not self._turn.weighing:
            self._bus.publish(SpeechResumed(self._turn.item_id, _ms(signal.start)))
        self._attempts.resumed(self._turn, signal)
        self._overlaps.resumed(self._turn)

    def _read(self, turn: UserTurn, attempt: Attempt) -> None:
        if turn.attempt is attempt:
            self._overlaps.read(turn, None if attempt.error else attempt.said)

    def _judged(self, turn: UserTurn, attempt: Attempt, wait_ms: int) -> None:
        if turn is self._turn:
            self._follow(self._listener.judge(wait_ms))

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
            self._stopped(attempt.item_id, attempt.end)

    def _commit(self, turn: UserTurn, attempt: Attempt, said: Said) -> None:
        turn.recognising.cancel()
        if self._overlaps.end(turn, said.text if isinstance(said, Transcript) else None):
            del self._ending[attempt]
            self._closed()
            return
        del self._ending[attempt]
        self._tell_stop(attempt)
        if isinstance(said, Transcript) and not said.text:
            self._bus.publish(SpeechRejected(turn.item_id, attempt.engine_seconds))
            self._closed()
            return
        guess = attempt.guess
        if guess:
            guess.committed = True
        self._session.commit_speech(turn.item_id, said, turn.audio)
        answers = attempt.wants_reply and not attempt.superseded
        if not answers or not self._session.fits(attempt):
            self._attempts.discard_answer(attempt)
        if answers:
            self._session.answer(attempt)
        elif attempt.wants_reply:
            self._session.answer_later(attempt)

    def _closed(self) -> None:
        """What was heard was no turn."""
        if self._turn is None and not self._ending:
            self._session.noise()

    def _feed(self, turn: UserTurn, end: int) -> None:
        pcm = self._listener.read(turn.fed_to, end)
        if len(pcm):
            turn.recognition.append(pcm)
            turn.pieces.append(pcm)
            turn.fed_to = end


def _ms(index: int) -> int:
    return index * 1000 // LISTEN_RATE
