"""Means, shares and percentiles with 95 % intervals, resampled by source.

Scenes that share a voice and its words are one source: they are drawn together or not at all, so
the number of independent sources determines the width of an interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_DRAWS = 2000
_LOW, _HIGH = 2.5, 97.5


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95 % interval; ``None`` without data. ``n`` values from ``sources``
    independent sources."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    sources: int


class Bootstrap:
    """Draws sources with replacement. All figures use the same draws, so figures of one bootstrap
    can be compared draw by draw."""

    def __init__(self, sources: Sequence[str], seed: int = 0) -> None:
        """``sources``: every source, in any order, repeats allowed."""
        self.names = sorted(set(sources))
        self._index = {name: at for at, name in enumerate(self.names)}
        count = max(1, len(self.names))
        rng = np.random.default_rng(seed)
        resamples = rng.multinomial(count, np.full(count, 1 / count), size=_DRAWS)
        self.counts: Floats = np.vstack((np.ones(count), resamples)).astype(np.float64)
        """How often each source was drawn, shape ``(1 + _DRAWS, sources)``; row 0: the data."""

    def of(self, sources: Sequence[str]) -> NDArray[np.intp]:
        """The column of each source in ``counts``."""
        return np.array([self._index[name] for name in sources], dtype=np.intp)

    def sums(self, values: Sequence[float] | Floats, sources: Sequence[str]) -> Floats:
        """The sum of the values in each draw, shape ``(1 + _DRAWS,)``."""
        per_source = np.zeros(max(1, len(self.names)))
        np.add.at(per_source, self.of(sources), np.asarray(values, dtype=np.float64))
        totals: Floats = self.counts @ per_source
        return totals

    def mean(self, values: Sequence[float], sources: Sequence[str]) -> Estimate:
        """The mean of numbers, or the share of ``True``."""
        ones = np.ones(len(values))
        return self.ratio(values, ones, sources)

    def ratio(
        self,
        parts: Sequence[float] | Floats,
        wholes: Sequence[float] | Floats,
        sources: Sequence[str],
    ) -> Estimate:
        """The sum of ``parts`` over the sum of ``wholes``."""
        over, under = self.sums(parts, sources), self.sums(wholes, sources)
        return interval(quotient(over, under), len(sources), len(set(sources)))

    def percentile(self, values: Sequence[float], q: float, sources: Sequence[str]) -> Estimate:
        """The least value that ``q`` percent of them do not exceed."""
        if not len(values):
            return Estimate(None, None, None, 0, 0)
        return interval(self.percentiles(values, q, sources), len(values), len(set(sources)))

    def percentiles(self, values: Sequence[float], q: float, sources: Sequence[str]) -> Floats:
        """The percentile in each draw, shape ``(1 + _DRAWS,)``, for comparing draw by draw."""
        order = np.argsort(np.asarray(values), kind="stable")
        weights = self.counts[:, self.of(sources)[order]].cumsum(axis=1)
        targets = np.maximum(weights[:, -1:] * q / 100 - 1e-9, 1e-9)
        result: Floats = np.asarray(values, dtype=np.float64)[order][
            (weights < targets).sum(axis=1) % len(order)
        ]
        result[weights[:, -1] == 0] = np.nan
        return result


def quotient(over: Floats, under: Floats) -> Floats:
    """Element by element; NaN where ``under`` is 0."""
    result: Floats = np.divide(over, under, out=np.full(over.shape, np.nan), where=under > 0)
    return result


def interval(draws: Floats, n: int, sources: int) -> Estimate:
    """The estimate from the figure itself (element 0) and its draws."""
    finite = draws[1:][np.isfinite(draws[1:])]
    if not np.isfinite(draws[0]) or not len(finite):
        return Estimate(None, None, None, n, sources)
    low, high = np.percentile(finite, [_LOW, _HIGH])
    return Estimate(float(draws[0]), float(low), float(high), n, sources)
