"""Removes the notes about sounds that Whisper writes among the words, or in place of them."""

from __future__ import annotations

import re
import unicodedata

from pipeline.messages import has_words

_NOTE = re.compile(
    r"\[[^\]]*\]|(?<!\b\w)\((?![\d +./-]*\))[^)]*\)|(?<!\b\w)\*(?!\s*\d+\s*\*)[^*]*\*"
    r"|［[^］]*］|（(?![\d +./-]*）)[^）]*）|【[^】]*】|〔[^〕]*〕"
    r"|[♪♫🎵🎶][^♪♫🎵🎶]*[♪♫🎵🎶]?|<\|[^|]*\|>|</?\w+>"
)
"""What Whisper writes for sounds other than speech: ``[BLANK_AUDIO]``, ``(music)``; and marks of
other recognisers that some servers leave in: ``<|en|><|NEUTRAL|>``, ``<unk>``, ``</s>``. Numbers
and formulas are words: ``(555) 123-4567``, ``5 * 3 * 2``, ``f(x)``."""


def without_notes(text: str) -> str:
    """``text``, its accents joined to their letters, without notes about sounds other than speech;
    empty if no word is left."""
    words = " ".join(_NOTE.sub(" ", unicodedata.normalize("NFC", text)).split())
    return words if has_words(words) else ""
