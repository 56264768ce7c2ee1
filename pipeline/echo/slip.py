"""Finds gaps in playback, after which the echo's delay jumps further than the filter can follow.

An underrun inserts silence into what the loudspeaker plays, a skip drops sound; the reference shows
neither. The filter still knows the room, so the echo it expects is right except for its time. The
jump is the shift with which the expected echo explains the microphone's sound. Pure; numpy; works
only when a filter that had learned its room suddenly fails.
"""

from __future__ import annotations

import numpy as np

from pipeline.echo import tuning
from pipeline.echo.kalman import BLOCK, Samples

FARTHEST = 480
"""Samples (30 ms) either way."""
_HELD = tuning.SLIP_COMPARED + FARTHEST
_SIZE = 2048
_LEAST_POWER = 1e-7
"""Power of the expected echo (-70 dBFS) below which nothing can be concluded."""


class SlipFinder:
    """Watches one filter."""

    def __init__(self) -> None:
        self._microphone: Samples = np.zeros(_HELD, np.float32)
        self._echo: Samples = np.zeros(_HELD, np.float32)
        self._residual = self._all = 0.0
        self._long_residual, self._long_all = _LEAST_POWER, 0.0
        self._middle_residual = self._middle_all = 0.0
        self._candidate: tuple[int, int] = (0, 0)
        self._loud_blocks = 0
        self._failing_blocks = 0

    def look(self, microphone: Samples, echo: Samples, residual: Samples) -> int | None:
        """Take the next block. Returns the samples by which the echo comes later (negative:
        earlier) since some moment within the last 80 ms, or None."""
        for history, block in ((self._microphone, microphone), (self._echo, echo)):
            history[:-BLOCK] = history[BLOCK:]
            history[-BLOCK:] = block
        if float(echo @ echo) <= _LEAST_POWER * BLOCK:
            self._candidate = (0, 0)
            return None
        fails = self._fails
        self._failing_blocks = self._failing_blocks + 1 if fails else 0
        self._note(float(residual @ residual), float(microphone @ microphone))
        if not (fails and self._works):
            self._candidate = (0, 0)
            return None
        return self._agree(displacement(self._microphone, self._echo))

    @property
    def _fails(self) -> bool:
        return self._residual > tuning.SLIP_FAILS * self._all

    @property
    def _works(self) -> bool:
        learnt = self._loud_blocks > tuning.SLIP_LEARNT_BLOCKS
        return learnt and self._long_residual < tuning.SLIP_WORKS * self._long_all

    def _note(self, residual: float, all_power: float) -> None:
        self._loud_blocks += 1
        self._residual += tuning.SLIP_SHORT * (residual - self._residual)
        self._all += tuning.SLIP_SHORT * (all_power - self._all)
        self._middle_residual += tuning.SLIP_MIDDLE * (residual - self._middle_residual)
        self._middle_all += tuning.SLIP_MIDDLE * (all_power - self._middle_all)
        if self._failing_blocks == 0 or self._failing_blocks > tuning.SLIP_FAILING_BLOCKS:
            self._long_residual += tuning.SLIP_LONG * (residual - self._long_residual)
            self._long_all += tuning.SLIP_LONG * (all_power - self._long_all)

    @property
    def doubts(self) -> bool:
        """Whether the filter should not learn from the next block."""
        return 0 < self._failing_blocks <= tuning.SLIP_DOUBT_BLOCKS and self._works

    @property
    def lost(self) -> bool:
        """Whether the filter makes the echo louder and must start over."""
        long_enough = (
            self._failing_blocks > tuning.SLIP_LOST_BLOCKS
            and self._loud_blocks > tuning.SLIP_LEARNT_BLOCKS
        )
        return long_enough and self._middle_residual > tuning.SLIP_LOST * self._middle_all

    @property
    def explained(self) -> float:
        """Share of the microphone's power that the filter removes, over 1 s; 0 after a change."""
        return 1 - self._middle_residual / self._middle_all if self._middle_all else 0.0

    @property
    def suspects(self) -> bool:
        """Whether the newest block looks like the result of a gap."""
        return self._candidate[1] > 0

    def start_again(self) -> None:
        """Start over after a change of timing."""
        self._residual = self._all = 0.0
        self._middle_residual = self._middle_all = 0.0
        self._failing_blocks = 0
        self._candidate = (0, 0)

    def _agree(self, by: int | None) -> int | None:
        if by is None:
            self._candidate = (0, 0)
            return None
        before, times = self._candidate
        times = times + 1 if abs(by - before) <= tuning.SLIP_SAME else 1
        self._candidate = (by, times)
        return by if times >= tuning.SLIP_AGREE else None


def displacement(heard: Samples, expected: Samples) -> int | None:
    """Samples by which ``expected`` must come later to explain the newest of ``heard``, or None.

    Both float32, shape ``(1280,)``, over the same time. At the right shift the two are equal, so
    the power of their difference decides, not their correlation alone.
    """
    later = _explained(heard, expected, heard_moves=False)
    earlier = _explained(expected, heard, heard_moves=True)
    by, share = int(later.argmax()), float(later.max())
    if earlier.max() > share:
        by, share = -int(earlier.argmax()), float(earlier.max())
    if (
        abs(by) < tuning.SLIP_LEAST_SLIP
        or share < tuning.SLIP_EXPLAINED
        or share < float(later[0]) + tuning.SLIP_BETTER
    ):
        return None
    return by


def _explained(fixed: Samples, moving: Samples, heard_moves: bool) -> Samples:
    """For each shift of 0 to ``FARTHEST`` samples: the share of the power heard that disappears
    when ``moving``, taken that much earlier, is subtracted from the newest of ``fixed``."""
    newest = fixed[FARTHEST:]
    spectrum = np.fft.rfft(moving, _SIZE) * np.fft.rfft(newest, _SIZE).conj()
    products = np.fft.irfft(spectrum, _SIZE)[: FARTHEST + 1][::-1]
    sums = np.concatenate((np.zeros(1), np.cumsum(np.square(moving, dtype=np.float64))))
    moved_power = (sums[tuning.SLIP_COMPARED :] - sums[: -tuning.SLIP_COMPARED])[::-1]
    fixed_power = np.full(FARTHEST + 1, float(np.dot(newest, newest)))
    heard, echo = (moved_power, fixed_power) if heard_moves else (fixed_power, moved_power)
    share: Samples = ((2 * products - echo) / (heard + 1e-9)).astype(np.float32)
    return share
