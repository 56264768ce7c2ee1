"""Measures how much a sound's timbre moves. Pure.

A motor buzzes, and wind and fans hiss, with one timbre; a mouth is never still for long. A VAD
scores a buzz like a vowel, however long it lasts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.audio import LISTEN_RATE, AudioFrame, Pcm
from pipeline.hearing import tuning

_WINDOW, _HOP = 512, 256
_EDGES = np.searchsorted(np.fft.rfftfreq(_WINDOW, 1 / LISTEN_RATE), tuning.TIMBRE_EDGES_HZ)
_TAPER = np.hanning(_WINDOW)


def movement_db(pcm: Pcm, start: int) -> float | None:
    """Standard deviation of the bands' levels relative to each other, while the sound that begins
    at sample ``start`` is loud. ``None``: it is too short to tell, or not much louder than the room
    before."""
    if len(pcm) - start < tuning.TIMBRE_SAMPLES:
        return None
    frames = np.lib.stride_tricks.sliding_window_view(pcm, _WINDOW)[::_HOP] * _TAPER
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    bands = np.add.reduceat(power, _EDGES, axis=1)[:, :-1]
    smooth = np.lib.stride_tricks.sliding_window_view(bands, tuning.TIMBRE_FRAMES, axis=0).mean(-1)
    levels = 10 * np.log10(smooth + 1)
    whole = 10 * np.log10(smooth.sum(axis=1) + 1)
    first = start // _HOP
    if whole[first:].max() - np.percentile(whole, 10) < tuning.TIMBRE_CONTRAST_DB:
        return None
    loud = levels[first:][whole[first:] > whole[first:].max() - tuning.TIMBRE_LOUD_DB]
    shape = loud - loud.mean(axis=1, keepdims=True)
    return float(shape.std(axis=0).mean())


def may_be_voice(pcm: Pcm, start: int, least_db: float) -> bool:
    """Whether the timbre of the sound that begins at sample ``start`` moves as a voice's does; True
    if that cannot be told. ``least_db``: a voice's least movement, given by the VAD; 0: unknown."""
    short = len(pcm) - start < tuning.TIMBRE_SHORT_SAMPLES
    found_db = movement_db(pcm, start) if least_db else None
    return found_db is None or found_db >= least_db * (tuning.TIMBRE_SHORT if short else 1.0)


class Motor:
    """Remembers that a motor was taken for a speaker, and expects it again. A voice's timbre moves
    after the first 200 ms; a motor's never does."""

    def __init__(self, moves: Callable[[int, int], bool]) -> None:
        """``moves``: whether the timbre moves between two samples."""
        self._moves = moves
        self._turn_from: int | None = None
        self._sound_from: int | None = None
        """First sample of the sound that scores as speech now."""
        self._expected_to = 0

    def runs(self, is_sound: bool, frame: AudioFrame, turn_from: int | None) -> bool:
        """Whether the sound up to this frame may be the motor's. ``is_sound``: the frame scores as
        speech. ``turn_from``: first sample of the open turn, which is judged once it is over."""
        last_start, self._turn_from = self._turn_from if turn_from is None else None, turn_from
        if last_start is not None and not self._moves(last_start, frame.index):
            self._expected_to = frame.index + tuning.REMEMBERED_SAMPLES
        if not is_sound:
            self._sound_from = None
        elif self._sound_from is None:
            self._sound_from = frame.index
        if self._sound_from is None or turn_from is not None or frame.index >= self._expected_to:
            return False
        start = max(self._sound_from, frame.end - tuning.TIMBRE_NEWEST_SAMPLES)
        if frame.end - start < tuning.TIMBRE_SAMPLES:
            return True
        if self._moves(start, frame.end):
            return False
        self._expected_to = frame.end + tuning.REMEMBERED_SAMPLES
        return True
