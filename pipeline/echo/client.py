"""Sound sent to a client, on its microphone's sample clock; and the rooms of returning clients.
Pure: the caller passes times."""

from __future__ import annotations

from collections import OrderedDict, deque

import numpy as np

from pipeline.audio import LISTEN_RATE, Pcm, Resampler
from pipeline.echo.path import EchoMemory, EchoPath, Reference

_BUCKET_S = 10.0
_BUCKETS = 3
"""Half a minute, in which two clocks drift apart by 3 ms at 100 ppm."""
_LATE_S = 1.0
_PAUSED_S = 0.5
"""A stream this late that stays late has paused. Audio that was only delayed arrives in a burst."""


class MicrophoneClock:
    """Which sample of a microphone's stream arrives at a moment of the loop's clock.

    Audio may arrive late but never early, so the least late pieces set the clock."""

    def __init__(self) -> None:
        self._offsets_s: deque[tuple[float, float]] = deque(maxlen=_BUCKETS)
        """Start of each bucket, and the least ``now - end`` in it."""
        self._is_guess = False
        self._late_since: float | None = None

    def arrived(self, end: int, now: float) -> int:
        """All samples before ``end`` have arrived. Returns the correction of ``index`` in samples
        from now on: negative after a pause, usually 0."""
        offset_s = now - end / LISTEN_RATE
        move = 0
        if self._is_guess or self._paused(offset_s, now):
            move = round((self._offset_s - offset_s) * LISTEN_RATE)
            self._offsets_s.clear()
            self._is_guess = False
        if not self._offsets_s or now - self._offsets_s[-1][0] > _BUCKET_S:
            self._offsets_s.append((now, offset_s))
        began, least_s = self._offsets_s[-1]
        self._offsets_s[-1] = began, min(least_s, offset_s)
        return move

    def index(self, now: float) -> int:
        """The sample that arrives now if it is on time. Until samples arrive, the first call counts
        as the arrival of sample 0."""
        if not self._offsets_s:
            self._offsets_s.append((now, now))
            self._is_guess = True
        return max(0, round((now - self._offset_s) * LISTEN_RATE))

    def _paused(self, offset_s: float, now: float) -> bool:
        if not self._offsets_s or offset_s <= self._offset_s + _LATE_S:
            self._late_since = None
            return False
        if self._late_since is None:
            self._late_since = now
        if now - self._late_since < _PAUSED_S:
            return False
        self._late_since = None
        return True

    @property
    def _offset_s(self) -> float:
        return min(offset_s for _, offset_s in self._offsets_s)


class SentSound(Reference):
    """Sound that a remote client plays: everything sent to it, as it arrives, without gaps.
    Times are seconds of the loop's clock."""

    plays_on = False
    """Each answer is aligned anew."""

    def __init__(self, kept_samples: int) -> None:
        super().__init__(kept_samples)
        self._kept_samples = kept_samples
        self._clock = MicrophoneClock()
        self._resampler = Resampler(LISTEN_RATE, LISTEN_RATE)
        self._ahead: deque[tuple[int, Pcm]] = deque()
        """Sound not yet played, with the index of its first sample."""
        self.end = 0
        """Index after everything sent."""

    def sent(self, pcm: Pcm, rate: int, now: float) -> None:
        """Audio is sent, int16 mono at ``rate`` Hz."""
        if rate != self._resampler.from_rate:
            self._resampler = Resampler(rate, LISTEN_RATE)
        self.send(self._resampler.feed(pcm), self._clock.index(now))

    def flushed(self, now: float) -> None:
        """The client drops what it has not played."""
        self.cut(self._clock.index(now))

    def arrives(self, end: int, now: float) -> None:
        if move := self._clock.arrived(end, now):
            self.move(move)

    def send(self, pcm: Pcm, at: int) -> None:
        """Audio is sent when sample ``at`` arrives, and played after what was sent before.

        While a microphone sends nothing, sound never becomes past; old sound is dropped here."""
        while self._ahead and _end(self._ahead[0]) < at - self._kept_samples:
            self._ahead.popleft()
        start = max(at, self.end, self._past.end)
        self._ahead.append((start, pcm))
        self.end = start + len(pcm)

    def cut(self, at: int) -> None:
        """The player is flushed: it plays nothing from sample ``at`` on."""
        while self._ahead and self._ahead[-1][0] >= at:
            self._ahead.pop()
        if self._ahead:
            start, pcm = self._ahead[-1]
            self._ahead[-1] = start, pcm[: at - start]
        self.end = min(self.end, max(at, self._past.end))

    def move(self, by: int) -> None:
        """Move all sound not yet played by ``by`` samples; negative: earlier, and what would then
        be past counts as played while the microphone was off."""
        pieces, self._ahead = self._ahead, deque()
        for start, pcm in pieces:
            early = max(0, self._past.end - start - by)
            if early < len(pcm):
                self._ahead.append((start + by + early, pcm[early:]))
        self.end = _end(self._ahead[-1]) if self._ahead else self._past.end

    def pass_to(self, end: int) -> None:
        while self._ahead and self._ahead[0][0] < end:
            start, pcm = self._ahead.popleft()
            self._pass_silence(start)
            now = end - self._past.end
            self._past.append(pcm[:now])
            self.last_sound = self._past.end
            if len(pcm) > now:
                self._ahead.appendleft((end, pcm[now:]))
        self._pass_silence(end)

    def _pass_silence(self, to: int) -> None:
        if to > self._past.end:
            self._past.append(np.zeros(to - self._past.end, np.int16))


class ClientEcho(EchoPath[SentSound]):
    """A remote client's echo path. Times are seconds of the loop's clock."""

    reference_type = SentSound

    def sent(self, pcm: Pcm, rate: int, now: float) -> None:
        """An answer's audio is sent, int16 mono at ``rate`` Hz."""
        self._reference.sent(pcm, rate, now)

    def flushed(self, now: float) -> None:
        """The client drops what it has not played."""
        self._reference.flushed(now)


MOST_ROOMS = 16
"""About 90 kB each."""


class Rooms:
    """The most recent rooms, by the place that a client connects from."""

    def __init__(self) -> None:
        self._rooms: OrderedDict[str, EchoMemory] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rooms)

    def of(self, place: str) -> EchoMemory | None:
        return self._rooms.get(place)

    def keep(self, place: str, room: EchoMemory | None) -> None:
        """Keep nothing if the place is unknown or the echo is gone."""
        if not place or room is None:
            self._rooms.pop(place, None)
            return
        self._rooms[place] = room
        self._rooms.move_to_end(place)
        if len(self._rooms) > MOST_ROOMS:
            self._rooms.popitem(last=False)


def _end(piece: tuple[int, Pcm]) -> int:
    start, pcm = piece
    return start + len(pcm)
