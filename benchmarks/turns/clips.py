"""A clip: one speaker's dry speech with known words, and the places where it may be cut."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.harness.acoustics import Signal
from benchmarks.harness.scene import PauseKind, SceneKind


@dataclass(frozen=True)
class WordBoundary:
    """A place between two words: at sample ``at`` of the clip, after ``words`` words.

    ``seam``: two recordings meet here, or two sentences, and there is always a pause.
    """

    at: int
    kind: PauseKind
    words: int
    seam: bool = False


@dataclass(frozen=True, eq=False)
class Clip:
    name: str
    source: str
    speaker: str
    kind: SceneKind
    text: str
    signal: Signal
    """Dry speech with hardly any silence around it, 16 kHz, shape ``(n,)``."""
    borders: tuple[WordBoundary, ...] = ()
    """In order."""
    asked: str = ""
    text_by: str = "source"
    """``text_by`` and ``speaker`` are as in ``Scene``."""


@dataclass(frozen=True)
class GameLine:
    """One line of a person in a game. ``places`` are its segments in the data file, each as
    offset and size in bytes."""

    name: str
    speaker: str
    places: tuple[tuple[int, int], ...]
