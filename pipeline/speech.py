"""From text deltas to what is spoken: the first clause early, then longer pieces.

The first piece is what the listener waits for, so it ends at the first comma, or after a few
words; later pieces are sentences, because whole sentences sound better. Markdown, links, code
and emoji are for eyes and are not spoken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

FIRST_MIN_WORDS = 2
FIRST_MAX_WORDS = 8
LATER_MAX_WORDS = 40

_CLAUSE_END = re.compile(r"[,;:.!?…]+[\"')\]]*\s+|\n+")
_SENTENCE_END = re.compile(r"[.!?…]+[\"')\]]*\s+|\n+")
_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|vs|etc|e\.g|i\.e|No)|\b[A-Z]|^\s*\d{1,2})\.\s*$"
)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE_BLOCK = re.compile(r"```.*?(?:```|$)", re.DOTALL)
_LINE_MARK = re.compile(r"^\s*(?:#{1,6}\s+|[-*+•]\s+|>\s+)", re.MULTILINE)
_EMPHASIS = re.compile(r"(\*\*|__|~~|`|(?<!\w)[*_]|[*_](?!\w))")
_SYMBOLS = re.compile(
    "[\U0001f000-\U0001faff\U00002600-\U000027bf\U00002b00-\U00002bff\U0000fe0f\U0000200d\U000020e3]"
)


class SpeechChunker:
    """Collects deltas and gives out pieces to speak. Deterministic for any split of the text."""

    def __init__(self) -> None:
        self._held = ""
        self._first = True

    def feed(self, text: str) -> Iterator[str]:
        """Yield every piece that is now complete."""
        self._held += text
        while piece := self._take():
            yield piece

    def flush(self) -> Iterator[str]:
        """Yield what is left at the end of the answer."""
        rest, self._held = self._held.strip(), ""
        if rest:
            yield rest

    def _take(self) -> str:
        end = self._find_end()
        if end is None:
            return ""
        piece, self._held = self._held[:end], self._held[end:]
        if not piece.strip():
            return self._take()
        self._first = False
        return piece.strip()

    def _find_end(self) -> int | None:
        border = _CLAUSE_END if self._first else _SENTENCE_END
        for match in border.finditer(self._held):
            before = self._held[: match.end()]
            if _ABBREVIATION.search(before):
                continue
            if self._first and len(before.split()) < FIRST_MIN_WORDS and "," in match.group():
                continue
            return match.end()
        return self._word_limit_end()

    def _word_limit_end(self) -> int | None:
        limit = FIRST_MAX_WORDS if self._first else LATER_MAX_WORDS
        words = list(re.finditer(r"\S+\s+", self._held))
        return words[limit - 1].end() if len(words) >= limit else None


def speakable(text: str) -> str:
    """``text`` without what is only for eyes; empty if nothing remains to be said."""
    text = _CODE_BLOCK.sub(" ", text)
    text = _LINK.sub(r"\1", text)
    text = _LINE_MARK.sub("", text)
    text = _EMPHASIS.sub("", text)
    text = _SYMBOLS.sub("", text)
    text = re.sub(r"\s+", " ", text).strip()
    return text if re.search(r"\w", text) else ""
