"""Queues speech for the client's track, and reports what becomes of it. Without I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from pipeline.audio import EMPTY, Pcm, Resampler

RATE = 48_000
"""Opus in WebRTC, in Hz (RFC 7587)."""
FRAME_SAMPLES = RATE // 50
"""20 ms, one packet."""
SILENCE: Pcm = np.zeros(FRAME_SAMPLES, np.int16)

OutputState = Literal["started", "stopped", "cleared"]


class _Speech:
    """The rest of one reply's sound."""

    def __init__(self, reply_id: str, rate: int) -> None:
        self.reply_id = reply_id
        self.started = False
        self.ended = False
        self._pcm = EMPTY
        self._resampler = Resampler(rate, RATE)

    @property
    def due(self) -> bool:
        """Whether a frame can be played: the last may be short."""
        return len(self._pcm) >= FRAME_SAMPLES or (self.ended and len(self._pcm) > 0)

    def add(self, pcm: Pcm) -> None:
        self._pcm = np.concatenate((self._pcm, self._resampler.feed(pcm)))

    def end(self) -> None:
        self.ended = True
        self._pcm = np.concatenate((self._pcm, self._resampler.flush()))

    def frame(self) -> Pcm:
        frame, self._pcm = self._pcm[:FRAME_SAMPLES], self._pcm[FRAME_SAMPLES:]
        return np.concatenate((frame, SILENCE[len(frame) :]))


class OutputQueue:
    """Plays one reply after the other. It holds the audio that the session sends ahead:
    ``playback.lead_ms``, or a whole answer if speech does not interrupt."""

    def __init__(self, tell: Callable[[str, OutputState], None]) -> None:
        """``tell(reply_id, state)`` reports each change of a reply's speech."""
        self._tell = tell
        self._speeches: deque[_Speech] = deque()
        self._dropped: set[str] = set()
        """Replies still in progress whose speech is dropped."""

    @property
    def plays(self) -> bool:
        """Whether speech is not played to its end yet."""
        return bool(self._speeches)

    def say(self, reply_id: str, pcm: Pcm, rate: int) -> None:
        """Queue more speech of a reply."""
        if reply_id in self._dropped:
            return
        speech = self._speech(reply_id)
        if speech is None:
            speech = _Speech(reply_id, rate)
            self._speeches.append(speech)
        speech.add(pcm)

    def end(self, reply_id: str) -> None:
        """The reply has nothing more to say."""
        self._dropped.discard(reply_id)
        if speech := self._speech(reply_id):
            speech.end()

    def cut(self, reply_id: str) -> None:
        """The reply was cancelled."""
        if speech := self._speech(reply_id):
            self._speeches.remove(speech)
            self._clear(speech)
        self._dropped.discard(reply_id)

    def clear(self) -> Sequence[str]:
        """Drop all speech, including the rest of replies in progress; returns those dropped."""
        speeches, self._speeches = self._speeches, deque()
        for speech in speeches:
            self._clear(speech)
        return [speech.reply_id for speech in speeches]

    def take(self) -> Pcm:
        """The next frame, ``FRAME_SAMPLES`` at ``RATE``."""
        while self._speeches:
            speech = self._speeches[0]
            if speech.due:
                if not speech.started:
                    speech.started = True
                    self._tell(speech.reply_id, "started")
                return speech.frame()
            if not speech.ended:
                break
            self._speeches.popleft()
            if speech.started:
                self._tell(speech.reply_id, "stopped")
        return SILENCE

    def _speech(self, reply_id: str) -> _Speech | None:
        return next((each for each in self._speeches if each.reply_id == reply_id), None)

    def _clear(self, speech: _Speech) -> None:
        if not speech.ended:
            self._dropped.add(speech.reply_id)
        if speech.started:
            self._tell(speech.reply_id, "cleared")
