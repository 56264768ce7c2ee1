"""Whether the robot listens, and what it has heard when it begins to. Pure.

Asleep, the gate notes where the newest utterances are; it has no sound. When the robot is called,
it hands on their signals, as if the robot had been awake: the sound is still in the listener's
history, so no word after the call is lost. Positions are sample indexes, times seconds of one
clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.conversation.memory import Wakefulness
from pipeline.hearing.turn_taker import Signal, TurnEnd, TurnPause, TurnResume, TurnStart
from pipeline.waking import tuning


@dataclass(slots=True, eq=False)
class SleepUtterance:
    """Speech heard asleep, from its start to a silence. ``floor``: end of what was said before."""

    start: int
    floor: int
    pause: TurnPause | None = None
    """The pause that it is in, or has ended in."""
    end: TurnEnd | None = None
    read_to: int = 0
    """Sample up to which its words have been taken to be read."""
    reading: bool = False
    """Whether they are being read."""

    @property
    def words_end(self) -> int | None:
        """Up to where its first words can be read: to its pause, at most two seconds; ``None``: not
        yet, or not again."""
        most = self.start + tuning.FIRST_WORDS
        end = min(self.pause.end, most) if self.pause else most
        return end if end > self.read_to else None

    @property
    def signals(self) -> list[Signal]:
        """What the turns must know of it."""
        later = (each for each in (self.pause, self.end) if each)
        return [TurnStart(self.start), *later]


class WakingCall(NamedTuple):
    """What the turns must know when the robot is called. ``floor``: nothing before it counts."""

    signals: Sequence[Signal] = ()
    floor: int = 0


NOT_CALLED = WakingCall()


class WakeGate:
    """Of one session."""

    def __init__(self, wakefulness: Wakefulness, follow_up_s: float, reads_words: bool) -> None:
        """``wakefulness``: lasts longer than the session. ``reads_words``: an utterance waits for
        its first words to be read."""
        self.asleep = True
        self._wakefulness = wakefulness
        self._follow_up_s = follow_up_s
        self._reads_words = reads_words
        self._utterances: deque[SleepUtterance] = deque(maxlen=tuning.MOST_UTTERANCES)
        self._spoken_to = 0
        """End of the newest speech."""

    # -- asleep

    @property
    def listening(self) -> bool:
        """Whether somebody speaks, or has spoken and may have called."""
        return bool(self._utterances)

    def hear(self, signals: Sequence[Signal]) -> None:
        """Take signals of the listener."""
        for signal in signals:
            if isinstance(signal, TurnStart):
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
        """The oldest utterance with first words that were not read, and can be."""
        for each in self._utterances:
            if (end := each.words_end) and end <= heard_end:
                each.read_to, each.reading = end, True
                return each
        return None

    def dismiss(self, utterance: SleepUtterance) -> None:
        """It did not begin with a call, as far as it was read."""
        utterance.reading = False
        whole = utterance.read_to >= utterance.start + tuning.FIRST_WORDS
        if (whole or utterance.end) and utterance in self._utterances:
            self._utterances.remove(utterance)

    def forget(self) -> None:
        """Nothing that was heard asleep counts any more."""
        self._utterances.clear()

    def call(self, utterance: SleepUtterance) -> WakingCall:
        """Somebody has called, at the beginning of ``utterance``: it counts, and all that
        followed."""
        kept = list(self._utterances)
        kept = kept[kept.index(utterance) :] if utterance in kept else []
        return WakingCall([signal for each in kept for signal in each.signals], utterance.floor)

    def call_at(self, end: int) -> WakingCall:
        """The same for a call, or a touch, at about sample ``end``: what was said long before it
        does not count."""
        newest = self._utterances[-1] if self._utterances else None
        if newest is None or newest.end:
            return NOT_CALLED
        first = end - tuning.LONGEST_CALL
        if newest.start < first:
            newest.start = newest.floor = first
        return self.call(newest)

    # -- asleep or awake

    def wake(self, now: float) -> None:
        self.asleep = False
        self.forget()
        self.renew(now)

    def renew(self, since: float, patience_s: float = 0.0) -> None:
        """Somebody may go on from ``since`` on; ``patience_s``: for at least so long."""
        if not self.asleep:
            self._wakefulness.until = since + max(self._follow_up_s, patience_s)

    def expire(self, now: float) -> None:
        """Nobody is expected to go on."""
        self._wakefulness.until = now

    def stay_awake(self) -> None:
        """Until ``sleep``."""
        self.asleep, self._wakefulness.until = False, math.inf

    def sleep(self) -> None:
        self.asleep, self._wakefulness.until = True, -math.inf
        self.forget()

    @property
    def until(self) -> float:
        """When it falls asleep if nobody goes on."""
        return self._wakefulness.until
