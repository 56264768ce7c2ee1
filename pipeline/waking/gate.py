"""Holds back the signals of speech heard asleep until the robot is called. Pure.

The gate keeps the positions of the newest utterances, but no sound. When the robot is called, it
hands on their signals as if the robot had been awake. The sound is still in the listener's history,
so no word after the call is lost. Positions are sample indexes, times seconds of one clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.conversation.memory import Memory
from pipeline.hearing.turn_taker import Signal, TurnEnd, TurnPause, TurnResume, TurnStart
from pipeline.waking import tuning


@dataclass(slots=True, eq=False)
class SleepUtterance:
    """Speech heard asleep, from its start to a silence."""

    start: int
    floor: int
    """Where earlier speech ended."""
    pause: TurnPause | None = None
    """The present or last pause; ``None`` while speech goes on."""
    end: TurnEnd | None = None
    read_to: int = 0
    """Sample up to which its first words were transcribed, or are being transcribed."""
    reading: bool = False
    """Whether they are being transcribed."""

    @property
    def words_end(self) -> int | None:
        """Where its first words end: at its pause, after two seconds at most; ``None``: they were
        transcribed up to there already."""
        most = self.start + tuning.FIRST_WORDS_SAMPLES
        end = min(self.pause.end, most) if self.pause else most
        return end if end > self.read_to else None

    @property
    def signals(self) -> list[Signal]:
        """Its signals, as the listener gave them."""
        later = (each for each in (self.pause, self.end) if each)
        return [TurnStart(self.start), *later]


class WakingCall(NamedTuple):
    """The signals to hand on when the robot is called."""

    signals: Sequence[Signal] = ()
    floor: int = 0
    """Nothing before it counts."""


NOT_CALLED = WakingCall()


class WakeGate:
    """The gate of one session."""

    def __init__(self, memory: Memory, follow_up_s: float, reads_words: bool) -> None:
        """``memory`` outlives the session. ``reads_words``: utterances are kept until their
        first words were transcribed."""
        self.asleep = True
        self._dismissed = False
        """Whether the follow-up time was cut short and nobody has spoken since."""
        self._memory = memory
        self._follow_up_s = follow_up_s
        self._reads_words = reads_words
        self._utterances: deque[SleepUtterance] = deque(maxlen=tuning.MOST_UTTERANCES)
        self._spoken_to = 0
        """End of the newest speech."""

    # -- asleep

    @property
    def awaits_call(self) -> bool:
        """Whether an utterance is kept that may begin with a call."""
        return bool(self._utterances)

    def hear(self, signals: Sequence[Signal]) -> None:
        """Take the listener's next signals."""
        for signal in signals:
            if isinstance(signal, TurnStart):
                if self._utterances and not self._utterances[-1].end:  # it was background
                    self.hear([TurnPause(signal.start, signal.start), TurnEnd(signal.start)])
                self._utterances.append(SleepUtterance(signal.start, self._spoken_to))
                continue
            if isinstance(signal, TurnPause):
                self._spoken_to = signal.speech_end
            newest = self._utterances[-1] if self._utterances else None
            if newest is None:
                continue
            match signal:
                case TurnPause():
                    newest.pause = signal
                case TurnResume():
                    newest.pause = None
                case TurnEnd():
                    newest.end = signal
                    if not (self._reads_words and (newest.reading or newest.words_end)):
                        self._utterances.pop()

    def unread(self, heard_end: int) -> SleepUtterance | None:
        """Claim the oldest utterance whose first words are complete and not transcribed yet."""
        for each in self._utterances:
            if (end := each.words_end) and end <= heard_end:
                each.read_to, each.reading = end, True
                return each
        return None

    def dismiss(self, utterance: SleepUtterance) -> None:
        """Drop an utterance that does not begin with a call, unless more of it is to come."""
        utterance.reading = False
        whole = utterance.read_to >= utterance.start + tuning.FIRST_WORDS_SAMPLES
        if (whole or utterance.end) and utterance in self._utterances:
            self._utterances.remove(utterance)

    def forget(self) -> None:
        """Drop everything heard asleep."""
        self._utterances.clear()

    def call(self, utterance: SleepUtterance) -> WakingCall:
        """``utterance`` begins with a call: return its signals and all that followed."""
        kept = list(self._utterances)
        kept = kept[kept.index(utterance) :] if utterance in kept else []
        return WakingCall([signal for each in kept for signal in each.signals], utterance.floor)

    def call_at(self, end: int) -> WakingCall:
        """The same for a call, or a touch, that ended at about sample ``end``; speech long before
        does not count."""
        newest = self._utterances[-1] if self._utterances else None
        if newest is None or newest.end:
            return NOT_CALLED
        first = end - tuning.LONGEST_CALL_SAMPLES
        if newest.start < first:
            newest.start = newest.floor = first
        return self.call(newest)

    # -- asleep or awake

    def wake(self, now: float) -> None:
        self.asleep = self._dismissed = False
        self.forget()
        self.renew(now)

    def renew(self, since: float, patience_s: float = 0.0) -> None:
        """Stay awake for the follow-up time from ``since`` on, at least for ``patience_s``, unless
        it was ended."""
        if not (self.asleep or self._dismissed):
            self._memory.awake_until = since + max(self._follow_up_s, patience_s)

    def expire(self, now: float) -> None:
        """End the follow-up time; only ``wake`` begins another one."""
        self._dismissed, self._memory.awake_until = True, now

    def stay_awake(self) -> None:
        """Be awake until ``sleep``."""
        self.asleep = self._dismissed = False
        self._memory.awake_until = math.inf

    def sleep(self) -> None:
        self.asleep, self._memory.awake_until = True, -math.inf
        self.forget()

    @property
    def until(self) -> float:
        """When the robot falls asleep if nobody speaks."""
        return self._memory.awake_until
