"""Where the program's own files are: ``config/`` and, for setup, the lock files."""

from __future__ import annotations

from pathlib import Path

_IN_WHEEL = Path(__file__).resolve().parent / "files"
IS_INSTALLED = _IN_WHEEL.is_dir()
"""Whether this comes from a wheel, which contains the files, or from a checkout."""
ROOT = _IN_WHEEL if IS_INSTALLED else _IN_WHEEL.parents[1]
