"""Where tests find files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
Weights = Callable[[str], Path]
"""The fixture ``weights``: the directory of a catalogue entry."""
