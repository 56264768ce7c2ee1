"""What echo scenes are judged by without a session: a rule to compare with, and two windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pipeline.echo.detector import Evidence

WINDOWS = 2
"""Of 32 ms, in a row."""


class Rule(Protocol):
    """Whether one window is somebody's.

    Speech scores (0 to 1) of the residual and of the post-filtered residual, and the likelihood
    ratio (0 to 15) of the block that ended with them.
    """

    def holds(self, residual_score: float, post_filtered_score: float, llr: float) -> bool: ...


@dataclass(frozen=True, slots=True)
class RuleD:
    """Everybody must agree."""

    speech: float = 0.5
    llr: float = 2.0

    def holds(self, residual_score: float, post_filtered_score: float, llr: float) -> bool:
        return min(residual_score, post_filtered_score) > self.speech and llr > self.llr


class Interruption:
    """Follows one stream, window by window of the VADs."""

    def __init__(self, rule: Rule | None = None, windows: int = WINDOWS) -> None:
        self._rule = rule or Evidence()
        self._windows = windows
        self._in_a_row = 0

    def feed(self, residual_score: float, post_filtered_score: float, llr: float) -> bool:
        """The next window; whether somebody speaks now."""
        holds = self._rule.holds(residual_score, post_filtered_score, llr)
        self._in_a_row = self._in_a_row + 1 if holds else 0
        return self._in_a_row >= self._windows

    def reset(self) -> None:
        """What was heard before does not count any more."""
        self._in_a_row = 0
