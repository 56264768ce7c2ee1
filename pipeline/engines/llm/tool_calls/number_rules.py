"""GBNF for numbers within bounds.

A number is written with digits, and at most six behind the point, without an exponent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

ANY_INTEGER = '"-"? ("0" | [1-9] [0-9]{0,14})'
ANY_NUMBER = f'{ANY_INTEGER} ("." [0-9]{{1,6}})?'

_MOST_DIGITS = 15
"""In front of the point: what a double holds exactly."""
_LONGEST = 30
"""Of whole numbers with a bound that long."""
_LEAST_DECIMALS, _MOST_DECIMALS = 2, 6


def integers(low: float | None, high: float | None) -> str | None:
    """Whole numbers from ``low`` to ``high``, both included. ``None`` if there are none."""
    digits = max(_MOST_DIGITS, *(_digits(bound) for bound in (low, high)))
    least, most = _scaled(low, 0, ROUND_CEILING, digits), _scaled(high, 0, ROUND_FLOOR, digits)
    return _between(least, most, 0, digits)


def multiples(
    low: float | None, high: float | None, step: float, limit: int
) -> Sequence[int | float]:
    """Multiples of ``step`` from ``low`` to ``high``; nothing if there are more than ``limit``."""
    if low is None or high is None or step <= 0 or not math.isfinite(low + high + step):
        return []
    unit = Decimal(str(step))
    if (Decimal(str(high)) - Decimal(str(low))) / unit > limit:
        return []
    first = int((Decimal(str(low)) / unit).to_integral_value(ROUND_CEILING))
    last = int((Decimal(str(high)) / unit).to_integral_value(ROUND_FLOOR))
    found = [unit * n for n in range(first, last + 1)]
    return [int(n) if n == n.to_integral_value() else float(n) for n in found]


def numbers(
    low: float | None, high: float | None, *, above: bool = False, below: bool = False
) -> str | None:
    """Numbers from ``low`` to ``high``. ``above``, ``below``: that bound itself is not one.

    ``None`` if there are none with so many decimals.
    """
    decimals = max(_LEAST_DECIMALS, *(_decimals(bound) for bound in (low, high)))
    least = _scaled(low, decimals, ROUND_CEILING)
    most = _scaled(high, decimals, ROUND_FLOOR)
    if above and least is not None and low is not None:
        least += _is_on_grid(low, decimals)
    if below and most is not None and high is not None:
        most -= _is_on_grid(high, decimals)
    return _between(least, most, decimals)


def some_multiples(
    low: float | None, high: float | None, step: float, limit: int
) -> Sequence[int | float]:
    """So many multiples of ``step``, at a bound where there is one, else around zero."""
    span = step * (limit - 1)
    if low is not None:
        return multiples(low, low + span, step, limit)
    if high is not None:
        return multiples(high - span, high, step, limit)
    return multiples(-span / 2, span / 2, step, limit)


def _digits(bound: float | None) -> int:
    """Of a whole number; those of the clock in nanoseconds have 19."""
    return min(_LONGEST, Decimal(str(bound or 0)).adjusted() + 1)


def _decimals(bound: float | None) -> int:
    if bound is None:
        return 0
    exponent = Decimal(str(bound)).normalize().as_tuple().exponent
    return min(_MOST_DECIMALS, max(0, -int(exponent)))


def _scaled(
    bound: float | None, decimals: int, rounding: str, digits: int = _MOST_DIGITS
) -> int | None:
    """In units of the last decimal; ``None`` if a number of ours never gets there."""
    if bound is None:
        return None
    value = Decimal(str(bound))
    limit = Decimal(10) ** digits
    if abs(value) >= limit:
        value = limit.copy_sign(value)
    return int(value.scaleb(decimals).to_integral_value(rounding))


def _is_on_grid(bound: float, decimals: int) -> int:
    value = Decimal(str(bound)).scaleb(decimals)
    return int(value == value.to_integral_value())


def _between(
    low: int | None, high: int | None, decimals: int, digits: int = _MOST_DIGITS
) -> str | None:
    """Both in units of the last decimal, and included."""
    limit = 10 ** (digits + decimals) - 1
    low = -limit if low is None else max(low, -limit)
    high = limit if high is None else min(high, limit)
    options = []
    if low < 0 and low <= high:
        negative = " | ".join(_positive(max(1, -high), -low, decimals))
        options.append(f'"-" ({negative})')
    if high >= 0 and low <= high:
        options += _positive(max(0, low), high, decimals)
    return " | ".join(options) or None


def _positive(low: int, high: int, decimals: int) -> Iterator[str]:
    """One expression for each number of digits in front of the point."""
    unit = 10**decimals
    for digits in range(len(str(low // unit)), len(str(high // unit)) + 1):
        least = max(low, 10 ** (digits - 1) * unit if digits > 1 else 0)
        most = min(high, 10**digits * unit - 1)
        width = digits + decimals
        yield _Digits(digits).between(f"{least:0{width}}", f"{most:0{width}}", 0)


class _Digits:
    """Writes the digits of a number one by one, ``whole`` of them in front of the point."""

    def __init__(self, whole: int) -> None:
        self._whole = whole

    def between(self, low: str, high: str, at: int) -> str:
        """The digits from position ``at`` on. ``low``, ``high``: the least and the greatest
        that they may be; digits that are left out behind the point are zeros."""
        if not low:
            return ""
        if not low.strip("0") and not high.strip("9"):
            return self._any(len(low), at)
        digits = " | ".join(self._first(low, high, at))
        return self._pointed(f"({digits})", at, optional=not low.strip("0"))

    def _first(self, low: str, high: str, at: int) -> Iterator[str]:
        first, last = int(low[0]), int(high[0])
        zeros, nines = "0" * (len(low) - 1), "9" * (len(low) - 1)
        if first == last:
            yield self._then(str(first), low[1:], high[1:], at)
            return
        if low[1:] != zeros:
            yield self._then(str(first), low[1:], nines, at)
            first += 1
        whole_last = high[1:] == nines
        if first <= (between := last if whole_last else last - 1):
            yield self._then(f"{first}-{between}", zeros, nines, at)
        if not whole_last:
            yield self._then(str(last), zeros, high[1:], at)

    def _then(self, digits: str, low: str, high: str, at: int) -> str:
        return f"[{digits}] {self.between(low, high, at + 1)}".strip()

    def _any(self, count: int, at: int) -> str:
        before = max(0, self._whole - at)
        behind = count - before
        text = f"[0-9]{{{before}}}" if before else ""
        if not behind:
            return text
        if at > self._whole:
            return f"[0-9]{{0,{behind}}}"
        return f'{text} ("." [0-9]{{1,{behind}}})?'.strip()

    def _pointed(self, digits: str, at: int, *, optional: bool) -> str:
        """Put the point in front of the first decimal; decimals that are zeros may be missing."""
        if at < self._whole:
            return digits
        pointed = f'("." {digits})' if at == self._whole else digits
        return f"{pointed}?" if optional else pointed
