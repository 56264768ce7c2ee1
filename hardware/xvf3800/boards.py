"""The boards with an XVF3800 that are known by their USB ids."""

from __future__ import annotations

from typing import Literal

Board = Literal["reachy", "seeed"]

USB_IDS: dict[tuple[int, int], Board] = {
    (0x38FB, 0x1001): "reachy",
    (0x2886, 0x001A): "seeed",
}
"""Vendor and product -> board, in order of preference. Early units of Reachy Mini with a firmware
before 2.1 have Seeed's ids, and Seeed's parameters."""

BOARD_NAMES: dict[Board, str] = {
    "reachy": "Reachy Mini Audio",
    "seeed": "ReSpeaker XVF3800",
}

SOUND_NAMES = ("Reachy Mini Audio", "reSpeaker", "XVF3800")
"""Parts of the names under which their sound devices appear; letters of either case."""


def is_array_name(name: str) -> bool:
    """Whether a sound device of this name is an XVF3800."""
    return any(part.lower() in name.lower() for part in SOUND_NAMES)


def version_of(firmware: str) -> tuple[int, ...]:
    """``"2.1.4"`` -> ``(2, 1, 4)``; empty for a version that is not known."""
    parts = firmware.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()
