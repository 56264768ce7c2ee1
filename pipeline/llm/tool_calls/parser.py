"""Takes a model's output apart while it is being written: speech, calls, and what is neither.

Sans-I/O. However the text is cut into pieces, the same speech and the same calls come out.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

from pipeline.engines import TextDelta, Tool, ToolCall
from pipeline.llm.tool_calls.gemma_values import QUOTE
from pipeline.llm.tool_calls.schema_check import fits
from pipeline.llm.tool_calls.syntax import BLOCKS, STRAY, Syntax

log = logging.getLogger("reachy_voice.llm")

Part = TextDelta | ToolCall

_SEPARATORS = " \t\r\n;,"
"""What may stand between two calls."""


class _State(Enum):
    SPEECH = auto()
    BLOCK = auto()
    """In thoughts, or in anything else that is not for others."""
    CALL = auto()
    CLOSING = auto()
    """Behind a call's data, before its closing mark."""


class CallParser:
    """One answer of a model that writes calls in ``syntax``.

    Speech passes at once; only what may be the beginning of a mark is held back, and white
    space until something follows it. A call comes out when its data is complete, if it is one
    of ``tools`` and fits its schema; otherwise it is left out, and a line in the log says why.

    ``bare``: calls without a mark of their own are calls, too. ``thought_end``: the answer begins
    inside of a thought, which ends with it.
    """

    def __init__(
        self,
        syntax: Syntax,
        tools: Sequence[Tool],
        *,
        bare: bool = True,
        thought_end: str = "",
    ) -> None:
        self._syntax = syntax
        self._schemas: Mapping[str, Mapping[str, Any]] = {t.name: t.parameters for t in tools}
        self._openers = {o.marker: o for o in syntax.openers if bare or not o.body}
        self._state = _State.BLOCK if thought_end else _State.SPEECH
        self._block_end = thought_end
        self._marks = _Marks([*self._openers, *syntax.other_markers])
        self._buffer = ""
        self._space = ""
        self._said = False
        self._calls = 0
        self._data = _Data(syntax)
        self.rest = ""
        """What has to follow the opening mark that was read last, up to the function's name."""

    @property
    def in_call(self) -> bool:
        """A call has begun, and its closing mark has not been read."""
        return self._state in (_State.CALL, _State.CLOSING)

    @property
    def in_text(self) -> bool:
        """Inside of a quoted text of a call."""
        return self._state is _State.CALL and self._data.quoted

    @property
    def calls(self) -> int:
        """How many calls have come out."""
        return self._calls

    def feed(self, text: str) -> list[Part]:
        """What ``text`` adds."""
        self._buffer += text
        parts: list[Part] = []
        steps = {
            _State.SPEECH: self._speech,
            _State.BLOCK: self._block,
            _State.CALL: self._call,
            _State.CLOSING: self._closing,
        }
        while steps[self._state](parts):
            pass
        return _joined(parts)

    def finish(self) -> list[Part]:
        """What is left at the end. A beginning of a mark is not speech, a single sign may be."""
        parts: list[Part] = []
        if self._state is _State.SPEECH and len(self._buffer) == 1:
            self._say(self._buffer, parts)
        elif self._state is _State.CALL:
            log.warning("A tool call was cut off, and is left out")
        self._buffer = ""
        return _joined(parts)

    def opens(self, text: str) -> int:
        """How many characters of ``text`` a call needs to begin; -1: none begins in it."""
        if self.in_call:
            return -1
        probe = copy.copy(self)
        for i, sign in enumerate(text):
            probe.feed(sign)
            if probe.in_call:
                return i + 1
        return -1

    def suspects(self, text: str) -> bool:
        """Whether after ``text`` a call would have begun, or a mark of more than one sign."""
        if self._state is not _State.SPEECH:
            return False
        probe = copy.copy(self)
        for sign in text:
            probe.feed(sign)
            if probe.in_call:
                return True
        return probe._state is _State.SPEECH and len(probe._buffer) > 1

    # --- states; each returns whether there is more to do

    def _speech(self, parts: list[Part]) -> bool:
        found = self._marks.find(self._buffer)
        if found is None:
            kept = self._marks.tail(self._buffer)
            self._say(self._buffer[: len(self._buffer) - kept], parts)
            self._buffer = self._buffer[len(self._buffer) - kept :]
            return False
        self._say(self._buffer[: found.start()], parts)
        self._buffer = self._buffer[found.end() :]
        self._enter(found.group())
        return True

    def _block(self, _parts: list[Part]) -> bool:
        before, end, after = self._buffer.partition(self._block_end)
        if not end:
            self._buffer = before[-len(self._block_end) :]
            return False
        self._buffer = after
        self._state = _State.SPEECH
        return True

    def _call(self, parts: list[Part]) -> bool:
        end = self._data.end(self._buffer)
        if end is None:
            return False
        if self._data.whole:
            self._take(self._buffer[:end], parts)
        else:
            log.warning("A tool call is malformed, and is left out")
        self._buffer = self._buffer[end:]
        self._state = _State.CLOSING if self._syntax.close else _State.SPEECH
        return True

    def _closing(self, _parts: list[Part]) -> bool:
        """Look for the closing mark. A model that forgets it may begin the next call."""
        close = self._syntax.close.strip()
        at = self._buffer.find(close)
        begins = min((i for o in self._openers if (i := self._buffer.find(o)) >= 0), default=-1)
        if begins >= 0 and (at < 0 or begins < at):
            self._buffer = self._buffer[begins:]
            self._state = _State.SPEECH
            return True
        if at < 0:
            longest = max(len(close), *map(len, self._openers))
            self._buffer = self._buffer[-longest:]
            return False
        self._buffer = self._buffer[at + len(close) :]
        self._state = _State.SPEECH
        return True

    # --- others

    def _enter(self, mark: str) -> None:
        if opener := self._openers.get(mark):
            self._state = _State.CALL
            self._buffer = opener.body + self._buffer
            self._data = _Data(self._syntax)
            self.rest = opener.rest
        elif mark in BLOCKS:
            self._state = _State.BLOCK
            self._block_end = BLOCKS[mark]
        else:
            assert mark in STRAY

    def _say(self, text: str, parts: list[Part]) -> None:
        text = self._space + text
        if not self._said:
            text = text.lstrip(_SEPARATORS if self._calls else None)
        spoken = text.rstrip()
        self._space = text[len(spoken) :]
        if spoken:
            self._said = True
            parts.append(TextDelta(spoken))

    def _take(self, data: str, parts: list[Part]) -> None:
        call = self._syntax.read(data)
        if call is None:
            log.warning("A tool call is malformed, and is left out")
            return
        name, arguments = call
        if name not in self._schemas:
            log.warning("A call of a tool that does not exist is left out")
            return
        text = _json(arguments)
        if text is None or not fits(arguments, self._schemas[name]):
            log.warning("A call of %s whose arguments do not fit its schema is left out", name)
            return
        self._calls += 1
        self._said, self._space = False, ""
        parts.append(ToolCall(name, text))


class _Marks:
    """Finds markers, and the beginnings of markers at the end of a text."""

    def __init__(self, markers: Sequence[str]) -> None:
        self._any = re.compile("|".join(map(re.escape, markers)))
        self._beginnings = frozenset(m[:n] for m in markers for n in range(1, len(m)))
        self._longest = max(map(len, markers)) - 1

    def find(self, text: str) -> re.Match[str] | None:
        return self._any.search(text)

    def tail(self, text: str) -> int:
        """How many signs at the end may be the beginning of a marker."""
        for length in range(min(self._longest, len(text)), 0, -1):
            if text[-length:] in self._beginnings:
                return length
        return 0


class _Data:
    """Finds the end of one call's data, looking at every sign about once."""

    def __init__(self, syntax: Syntax) -> None:
        self._json = syntax.values == "json"
        self._close = syntax.close.strip()
        self._quote = '"' if self._json else QUOTE
        marks = [re.escape(mark) for mark in (self._quote, "{", "}", self._close) if mark]
        self._mark = re.compile("|".join([r"\\."] * self._json + marks), re.DOTALL)
        self._overlap = max(2, len(self._quote), len(self._close)) - 1
        self._at = 0
        self._level = 0
        self.quoted = False
        """Whether the text so far ends inside of quotes."""
        self.whole = False
        """Whether the end that was found is that of an object."""

    def end(self, text: str) -> int | None:
        """Where the data ends in ``text``, which is all of it so far; ``None``: not yet."""
        for found in self._mark.finditer(text, self._at):
            self._at = found.end()
            mark = found.group()
            if mark == self._quote:
                self.quoted = not self.quoted
            elif self.quoted or mark.startswith("\\"):
                continue
            elif mark == self._close:
                return found.start()
            else:
                self._level += 1 if mark == "{" else -1
                if self._level <= 0:
                    self.whole = self._level == 0
                    return self._at
        self._at = max(self._at, len(text) - self._overlap)
        return None


def _json(arguments: Mapping[str, Any]) -> str | None:
    """JSON text that everybody can read; ``None`` if there is none, e.g. for an infinity."""
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, RecursionError):  # half a surrogate pair is a ValueError, too
        return None
    return text


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Neighbouring speech as one piece."""
    result: list[Part] = []
    for part in parts:
        last = result[-1] if result else None
        if isinstance(part, TextDelta) and isinstance(last, TextDelta):
            result[-1] = TextDelta(last.text + part.text)
        else:
            result.append(part)
    return result
