"""What a language model's probability that words are complete is worth, for one model and language.

Models differ: one ends every second sentence where another goes on. So each model is asked once
about sentences that are known (``config/languages``), whole and cut. A logistic regression on the
logarithm of its answers gives the scale: log odds for the words being complete. Where the model
cannot tell, the slope is 0, and its opinion counts for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeline.messages import Message
from pipeline.work import Priority, Work

if TYPE_CHECKING:
    from pipeline.engines.stages import LlmStage

CutSentence = tuple[str, str]
"""The part of a sentence after which more must follow, and the rest of it."""
LEAST = 1e-4
"""Smaller probabilities count as this."""
_FEWEST = 8
"""Opinions on as many cut and whole sentences make a scale."""
_STEPS = 30
_LEAST_SLOPE = 0.05
"""With less, on values of unit variance, the model cannot tell."""
_RIDGE = 1.0
"""Keeps the slope finite where all sentences are told apart."""


@dataclass(frozen=True, slots=True)
class WordScale:
    """``even``: the probability that counts for neither side; ``slope``: on its logarithm."""

    slope: float
    even: float

    def log_odds(self, probability: float | None) -> float | None:
        """That the words are complete; ``None`` if the model was not asked, or cannot tell."""
        if probability is None or not self.slope:
            return None
        return self.slope * math.log(max(probability, LEAST) / self.even)


UNMEASURED = WordScale(slope=0.78, even=0.014)
"""SmolLM2-135M's, in English: until a model was asked."""


def scale_of(scales: Mapping[str, WordScale], language: str) -> WordScale:
    """That of ``language``, or else what those that were measured have in common."""
    if language in scales:
        return scales[language]
    known = list(scales.values())
    if not known:
        return UNMEASURED
    slope = sum(each.slope for each in known) / len(known)
    even = math.exp(sum(math.log(each.even) for each in known) / len(known))
    return WordScale(slope, even)


async def measure(
    llm: LlmStage, sentences: Sequence[CutSentence], instructions: str
) -> WordScale | None:
    """``None`` if the model has no opinion. Raises what the model raises."""
    told = (Message("system", instructions),)
    cut: list[float] = []
    whole: list[float] = []
    conversation = llm.open()
    try:
        for beginning, rest in sentences:
            for said, found in ((beginning, cut), (f"{beginning} {rest}", whole)):
                warmed = await conversation.warm(told, (), Work(Priority.WARM_UP), said)
                if warmed.end_probability is not None:
                    found.append(warmed.end_probability)
    finally:
        conversation.close()
    return fitted(cut, whole) if min(len(cut), len(whole)) >= _FEWEST else None


def fitted(cut: Sequence[float], whole: Sequence[float]) -> WordScale:
    """The scale on which these probabilities tell the two apart best. Both have the same weight."""
    found = np.log(np.maximum([*cut, *whole], LEAST))
    complete = np.array([0.0] * len(cut) + [1.0] * len(whole))
    centre, spread = float(found.mean()), float(found.std()) or 1.0
    x = (found - centre) / spread
    slope = offset = 0.0
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-(slope * x + offset)))
        weight = p * (1 - p)
        gradient = np.array([(x * (complete - p)).sum() - _RIDGE * slope, (complete - p).sum()])
        cross = (weight * x).sum()
        curvature = [[(weight * x * x).sum() + _RIDGE, cross], [cross, weight.sum() + 1e-9]]
        step = np.linalg.solve(curvature, gradient)
        slope, offset = slope + float(step[0]), offset + float(step[1])
    if slope < _LEAST_SLOPE:
        return WordScale(0.0, UNMEASURED.even)
    even = math.exp(centre - offset / slope * spread)
    return WordScale(float(slope / spread), even)
