"""From where somebody speaks, as a microphone array hears it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Direction:
    """``azimuth_deg``: 0 to 360, where 0 is the array's left, 90 its front (a linear array cannot
    tell it from the back) and 180 its right. ``speech``: whether the array hears speech now.
    ``energy``: of the speech in the chosen beam, 0 for none, in the array's own unit."""

    azimuth_deg: float
    speech: bool
    energy: float = 0.0
