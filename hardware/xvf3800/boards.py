"""The known boards with an XVF3800, by USB id."""

from __future__ import annotations

import re
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

SOUND_NAMES = ("reachy mini audio", "respeaker", "xvf3800")
"""Parts of the sound devices' names, in lower case: Pollen's, Seeed's and XMOS's kits."""


def is_array_name(name: str) -> bool:
    """Whether a sound device of this name is an XVF3800."""
    return any(part in name.lower() for part in SOUND_NAMES)


def same_array(microphone: str, speaker: str) -> bool:
    """Whether these names, listed at the same time, belong to one XVF3800. Windows lists it as two:
    ``Echo Cancelling Speakerphone (Reachy Mini Audio)`` and ``Speakers (...)``."""
    return is_array_name(microphone) and _unit(microphone) == _unit(speaker)


def _unit(name: str) -> str:
    """The part that Windows puts in brackets, numbered if there are two; else the whole name."""
    role = re.fullmatch(r"[^(]* \((.*)\)", name)
    return role[1] if role and is_array_name(role[1]) else name


def version_of(firmware: str) -> tuple[int, ...]:
    """``"2.1.4"`` -> ``(2, 1, 4)``; empty for an unknown version."""
    parts = firmware.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()
