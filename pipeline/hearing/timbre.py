"""How much a sound's timbre moves. Pure.

A motor buzzes with one timbre, as wind and fans hiss with one; a mouth is never still for long. A
VAD scores a buzz like a vowel, however long it lasts.
"""

from __future__ import annotations

import numpy as np

from pipeline.audio import LISTEN_RATE, Pcm
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
