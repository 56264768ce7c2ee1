"""What a client was sent, on the samples of its microphone's stream. Pure: times are given."""

from __future__ import annotations

from collections import deque

import numpy as np

from pipeline.audio import LISTEN_RATE, AudioHistory, Pcm

_BUCKET_S = 10.0
_BUCKETS = 3
"""Half a minute: two clocks part by 3 ms in it, at 100 ppm."""
_UNHEARD_SAMPLES = 120 * LISTEN_RATE
_LATE_S = 1.0
"""A stream that is so much later than ever has had a pause."""


class MicrophoneClock:
    """Which sample of a microphone's stream arrives at a moment of the loop's clock.

    Pieces arrive late, never early, so those that were least late tell."""

    def __init__(self) -> None:
        self._offsets_s: deque[tuple[float, float]] = deque(maxlen=_BUCKETS)
        """Begin of each bucket, and the least of ``now - end`` in it."""

    def arrived(self, end: int, now: float) -> bool:
        """All samples before ``end`` have arrived. True if there was a pause before them: what
        ``index`` said meanwhile was wrong."""
        offset_s = now - end / LISTEN_RATE
        paused = bool(self._offsets_s) and offset_s > self._offset_s + _LATE_S
        if paused:
            self._offsets_s.clear()
        if not self._offsets_s or now - self._offsets_s[-1][0] > _BUCKET_S:
            self._offsets_s.append((now, offset_s))
        began, least_s = self._offsets_s[-1]
        self._offsets_s[-1] = began, min(least_s, offset_s)
        return paused

    def index(self, now: float) -> int:
        """The sample that arrives now, if it is not late; 0 as long as none has."""
        return max(0, round((now - self._offset_s) * LISTEN_RATE)) if self._offsets_s else 0

    @property
    def _offset_s(self) -> float:
        return min(offset_s for _, offset_s in self._offsets_s)


class SentSound:
    """Sound at 16 kHz as a player plays it that begins at once and never pauses."""

    def __init__(self, kept_samples: int) -> None:
        """``kept_samples`` of what is past can be read."""
        self._past = AudioHistory(kept_samples)
        self._ahead: deque[tuple[int, Pcm]] = deque()
        """What is not past, by its first sample."""
        self._end = 0
        self.last_sound = -kept_samples
        """End of the newest sound that is past."""

    @property
    def end(self) -> int:
        """Index behind all that was sent."""
        return self._end

    def send(self, pcm: Pcm, at: int) -> None:
        """More leaves when sample ``at`` arrives, and is played behind what was sent before.
        Forgotten if nothing has been heard for minutes."""
        if at - self._past.end > _UNHEARD_SAMPLES:
            self.forget()
            return
        start = max(at, self._end, self._past.end)
        self._ahead.append((start, pcm))
        self._end = start + len(pcm)

    def forget(self) -> None:
        """Nothing is known of what is played from now on."""
        self._ahead.clear()
        self._end = self._past.end

    def cut(self, at: int) -> None:
        """The player is flushed: nothing that it would play from ``at`` on is heard."""
        while self._ahead and self._ahead[-1][0] >= at:
            self._ahead.pop()
        if self._ahead:
            start, pcm = self._ahead[-1]
            self._ahead[-1] = start, pcm[: at - start]
        self._end = min(self._end, max(at, self._past.end))

    def pass_to(self, end: int) -> None:
        """All before ``end`` is past."""
        while self._ahead and self._ahead[0][0] < end:
            start, pcm = self._ahead.popleft()
            self._pass_silence(start)
            now = end - self._past.end
            self._past.append(pcm[:now])
            self.last_sound = self._past.end
            if len(pcm) > now:
                self._ahead.appendleft((end, pcm[now:]))
        self._pass_silence(end)

    def read(self, start: int, end: int) -> Pcm:
        """Samples ``start`` to ``end``, which are past; silence where nothing is kept."""
        known = self._past.read(start, end)
        silent = np.zeros(end - start - len(known), np.int16)
        return np.concatenate((silent, known)) if len(silent) else known

    def _pass_silence(self, to: int) -> None:
        if to > self._past.end:
            self._past.append(np.zeros(to - self._past.end, np.int16))
