"""Where the data of one call ends, in a text that is still being written. Sans-I/O."""

from __future__ import annotations

import re

from pipeline.engines.llm.tool_calls.gemma import QUOTE
from pipeline.engines.llm.tool_calls.syntax import Syntax


class CallData:
    """Finds the end of one call's data, reading every character about once."""

    def __init__(self, syntax: Syntax, start: int = 0) -> None:
        self._json = syntax.values == "json"
        self._close = syntax.close.strip()
        self._quote = '"' if self._json else QUOTE
        marks = [re.escape(mark) for mark in (self._quote, "{", "}", self._close) if mark]
        self._mark = re.compile("|".join([r"\\."] * self._json + marks), re.DOTALL)
        self._overlap = max(2, len(self._quote), len(self._close)) - 1
        self._at = start
        self._level = 0
        self.deepest = 0
        """The most braces that were open at once."""
        self.quoted = False
        """Whether the text so far ends inside quotes."""
        self.whole = False
        """Whether the data ended with a complete object."""

    def end(self, text: str) -> int | None:
        """Where the data ends in ``text``, the whole text so far; ``None`` if it has not ended."""
        for match in self._mark.finditer(text, self._at):
            self._at = match.end()
            mark = match.group()
            if mark == self._quote:
                self.quoted = not self.quoted
            elif self.quoted or mark.startswith("\\"):
                continue
            elif mark == self._close:
                return match.start()
            else:
                self._level += 1 if mark == "{" else -1
                self.deepest = max(self.deepest, self._level)
                if self._level <= 0:
                    self.whole = self._level == 0
                    return self._at
        self._at = max(self._at, len(text) - self._overlap)
        return None
