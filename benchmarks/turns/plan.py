"""Chooses clips for scenes, their pauses and their noise: all seeded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeVar

import numpy as np

from benchmarks.harness.acoustics import at_speed
from benchmarks.harness.energy import silences
from benchmarks.turns.clips import Clip, WordBoundary
from benchmarks.turns.compose import Conditions
from benchmarks.turns.splice import Cut
from pipeline.audio import LISTEN_RATE

PAUSES_S = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0)
SENTENCE_PAUSES_S = (0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0)
SNRS_DB = (20.0, 10.0, 0.0)
SNR_SHARE = 0.15
"""Share of the scenes for each of ``SNRS_DB``; the others have room tone alone."""
ROOM_SHARE = 0.2
RT60_S = (0.2, 0.6)
STRETCHED_SHARE = 0.3
STRETCH = (1.3, 1.8)
_TWO_CUTS_SHARE = 0.45
_APART_S = 0.35

T = TypeVar("T")


class Deck:
    """Draws each of its values equally often, in random order."""

    def __init__(self, values: Sequence[float], rng: np.random.Generator) -> None:
        self._values = values
        self._rng = rng
        self._rest: list[float] = []

    def draw(self) -> float:
        if not self._rest:
            self._rest = [self._values[int(i)] for i in self._rng.permutation(len(self._values))]
        return self._rest.pop()


class Pauses:
    """Draws the cuts of clips, one after the other."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._lengths = Deck(PAUSES_S, rng)
        self._sentences = Deck(SENTENCE_PAUSES_S, rng)

    def cuts(self, clip: Clip, share: float) -> list[Cut]:
        """A cut at each seam, and with probability ``share`` at one or two more borders.

        Fillers come first, because they are few.
        """
        free = [border for border in clip.borders if not border.seam]
        count = 0
        if self._rng.random() < share:
            count = 2 if self._rng.random() < _TWO_CUTS_SHARE else 1
        borders = [border for border in clip.borders if border.seam]
        order = [free[int(index)] for index in self._rng.permutation(len(free))]
        for border in sorted(order, key=lambda border: border.kind != "filler")[:count]:
            if all(_apart(border, other) for other in borders):
                borders.append(border)
        return [self._cut(border) for border in sorted(borders, key=lambda border: border.at)]

    def _cut(self, border: WordBoundary) -> Cut:
        if border.kind == "sentence":
            return Cut(border, self._sentences.draw())
        stretch = 1.0
        if self._rng.random() < STRETCHED_SHARE:
            stretch = float(self._rng.uniform(*STRETCH))
        return Cut(border, self._lengths.draw(), stretch)


def _apart(one: WordBoundary, other: WordBoundary) -> bool:
    return abs(one.at - other.at) >= _APART_S * LISTEN_RATE


def conditions(scenes: int, rng: np.random.Generator) -> list[Conditions]:
    """The noise and room of each of ``scenes``, in the shares above, independently."""
    each = round(scenes * SNR_SHARE)
    snrs: list[float | None] = [snr for snr in SNRS_DB for _ in range(each)]
    snrs += [None] * (scenes - len(snrs))
    rooms = round(scenes * ROOM_SHARE)
    rt60s: list[float | None] = [float(rng.uniform(*RT60_S)) for _ in range(rooms)]
    rt60s += [None] * (scenes - rooms)
    first, second = rng.permutation(scenes), rng.permutation(scenes)
    return [Conditions(snrs[int(a)], rt60s[int(b)]) for a, b in zip(first, second, strict=True)]


def with_speed(clip: Clip, factor: float) -> Clip:
    """``clip`` a little faster or slower, with its borders moved to match."""
    borders = tuple(replace(border, at=round(border.at / factor)) for border in clip.borders)
    return replace(clip, signal=at_speed(clip.signal, factor), borders=borders)


def pausing_first(clips: Iterable[Clip], count: int, plain_share: float) -> list[Clip]:
    """The first ``count`` clips, at most ``plain_share`` of them without a natural pause.

    Natural pauses are rare in short lines, and the most valuable.
    """
    plain_left = round(count * plain_share)
    result: list[Clip] = []
    for clip in clips:
        pauses = bool(silences(clip.signal)) or any(border.seam for border in clip.borders)
        if not pauses and plain_left == 0:
            continue
        plain_left -= 0 if pauses else 1
        result.append(clip)
        if len(result) == count:
            break
    return result


def interleave(*groups: Sequence[T]) -> list[T]:
    """One clip of each group in turn, so that every section of the corpus has all sources."""
    return [each for row in zip_longest(*groups) for each in row if each is not None]
