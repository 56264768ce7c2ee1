"""Calibrates a language model's probability that words are complete, per model and language.

Models differ: one ends every second sentence where another continues. So each model is tried once
on known sentences (``config/languages``), whole and cut. A logistic regression on the logarithm of
its answers yields the scale: log odds that the words are complete. If the model cannot tell the
two apart, the slope is 0 and its opinion is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

CutSentence = tuple[str, str]
"""The first part of a sentence, which cannot stand alone, and the rest of it."""
LEAST = 1e-6
"""Smaller probabilities are raised to this."""
_STEPS = 30
_LEAST_SLOPE = 0.05
"""With a smaller slope, on values of unit variance, the model cannot tell the two apart."""
_RIDGE = 1 / 32
"""Per answer. Keeps the slope finite if the model separates all sentences."""


@dataclass(frozen=True, slots=True)
class WordScale:
    slope: float
    """Applied to the probability's logarithm."""
    even: float
    """The probability that favours neither side."""

    def log_odds(self, probability: float | None) -> float | None:
        """Log odds of complete words; ``None`` if the model gave no opinion or cannot tell."""
        if probability is None or math.isnan(probability) or not self.slope:
            return None
        return self.slope * math.log(max(probability, LEAST) / self.even)


UNMEASURED = WordScale(slope=0.388, even=0.00127)
"""The English scale of SmolLM2-135M with the default adapter, used until the model has been
measured."""


def scale_of(scales: Mapping[str, WordScale], language: str) -> WordScale:
    """The scale of ``language``, or else the mean of all that were measured."""
    if language in scales:
        return scales[language]
    measured = list(scales.values())
    if not measured:
        return UNMEASURED
    slope = sum(each.slope for each in measured) / len(measured)
    even = math.exp(sum(math.log(each.even) for each in measured) / len(measured))
    return WordScale(slope, even)


def fitted(cut: Sequence[float], whole: Sequence[float]) -> WordScale:
    """The scale that best separates the model's answers on cut and whole sentences."""
    logs = np.log(np.maximum([*cut, *whole], LEAST))
    complete = np.array([0.0] * len(cut) + [1.0] * len(whole))
    ridge = _RIDGE * len(logs)
    centre, spread = float(logs.mean()), float(logs.std()) or 1.0
    x = (logs - centre) / spread
    slope = offset = 0.0
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-(slope * x + offset)))
        weight, error = p * (1 - p), complete - p
        gradient = np.array([(x * error).sum() - ridge * slope, error.sum()])
        cross = (weight * x).sum()
        curvature = [[(weight * x * x).sum() + ridge, cross], [cross, weight.sum() + 1e-9]]
        step = np.linalg.solve(curvature, gradient)
        slope, offset = slope + float(step[0]), offset + float(step[1])
    if slope < _LEAST_SLOPE:
        return WordScale(0.0, UNMEASURED.even)
    even = math.exp(centre - offset / slope * spread)
    return WordScale(float(slope / spread), even)
