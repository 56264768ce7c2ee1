"""Removes the notes about sounds that Whisper writes among the words, or in place of them."""

from __future__ import annotations

import re

_NOTE = re.compile(r"\[[^\]]*\]|\([^)]*\)|（[^）]*）|【[^】]*】|\*[^*]*\*|♪[^♪]*♪?|<\|[^|]*\|>")
"""What Whisper writes for sounds other than speech: ``[BLANK_AUDIO]``, ``(music)``; and marks of
other recognisers that some servers leave in: ``<|en|><|NEUTRAL|>``."""


def without_notes(text: str) -> str:
    """``text`` without notes about sounds other than speech; empty if no word is left."""
    words = " ".join(_NOTE.sub(" ", text).split())
    return words if any(character.isalnum() for character in words) else ""
