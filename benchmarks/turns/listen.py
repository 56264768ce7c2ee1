"""Checks with a recogniser that a cut in a clip lies between two words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness.acoustics import Signal, to_pcm
from benchmarks.harness.scene import PauseKind
from benchmarks.turns.clips import Clip, WordBoundary
from benchmarks.wer import word_errors, words
from pipeline.audio import LISTEN_RATE
from pipeline.engines.stt import moonshine
from pipeline.work import NEVER

_AROUND = np.zeros(LISTEN_RATE * 150 // 1000, dtype=np.float32)
_HESITANT = frozenset({"um", "uh", "er", "erm", "hmm", "hm"})
_OPENERS = frozenset({"well", "so", "now"})


class Sides(NamedTuple):
    before: str
    after: str


class ClipRecogniser:
    """Moonshine, which always returns the same text for the same audio."""

    def __init__(self, weights: Path) -> None:
        self._stt = moonshine.build(moonshine.MoonshineOptions(), weights)

    def hear(self, signal: Signal) -> str:
        """The words in ``signal``, padded with 150 ms of silence."""
        stream = self._stt.open("en", False)
        stream.feed(to_pcm(np.concatenate([_AROUND, signal, _AROUND])))
        return stream.finish(NEVER).text

    def sides(self, signal: Signal, at: int) -> Sides:
        """The words before and after sample ``at``."""
        return Sides(self.hear(signal[:at]), self.hear(signal[at:]))

    def surviving(self, clip: Clip) -> tuple[WordBoundary, ...]:
        """The borders of ``clip`` at which a cut keeps its words as intelligible as the whole.

        One more word may be wrong, because a short piece gives a recogniser little context; two
        with a filler, which recognisers tend to drop.
        """
        text = _without_hesitation(clip.text)
        whole = word_errors(text, _without_hesitation(self.hear(clip.signal))).errors
        borders = []
        for border in clip.borders:
            sides = self.sides(clip.signal, border.at)
            errors = word_errors(text, _without_hesitation(f"{sides.before} {sides.after}")).errors
            allowance = 2 if border.kind == "filler" else 1
            both = words(sides.after) and (words(sides.before) or border.kind == "filler")
            if both and errors <= whole + allowance:
                borders.append(border)
        return tuple(borders)


def _without_hesitation(text: str) -> str:
    return " ".join(word for word in words(text) if word not in _HESITANT)


def likely_token_after(text: str, sides: Sides) -> tuple[int, int]:
    """The most likely number of ``text``'s tokens before the cut, and the number of words heard
    wrong on both sides then. Each side has at least one token."""
    tokens = text.split()
    best = (0, len(tokens) + 1)
    for count in range(1, len(tokens)):
        before, after = " ".join(tokens[:count]), " ".join(tokens[count:])
        errors = word_errors(before, sides.before).errors + word_errors(after, sides.after).errors
        if errors < best[1]:
            best = (count, errors)
    return best


def border_kind(text: str, tokens: int) -> PauseKind:
    """The kind of pause at the border after the first ``tokens`` tokens of ``text``."""
    before = text.split()[:tokens]
    last = before[-1]
    if last[-1] in ".!?":
        return "sentence"
    plain = re.sub(r"\W", "", last).lower()
    opens = tokens == 1 or before[-2][-1] in ",.!?"
    if plain in _HESITANT or (opens and plain in _OPENERS):
        return "filler"
    return "clause" if last[-1] in ",;:-" else "word"
