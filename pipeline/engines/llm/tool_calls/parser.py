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

from pipeline.engines.contract import TextDelta, ToolCall
from pipeline.engines.llm.tool_calls.bare import BareCall, Opening
from pipeline.engines.llm.tool_calls.call_data import CallData
from pipeline.engines.llm.tool_calls.schema_check import fits
from pipeline.engines.llm.tool_calls.syntax import BLOCKS, STRAY, Syntax
from pipeline.messages import Tool

log = logging.getLogger("reachy_voice.llm")

Part = TextDelta | ToolCall

_SEPARATORS = " \t\r\n;,"
"""What may stand between two calls."""
_MOST_HELD = 50_000
"""Characters that wait for the end of a call without marks."""
_MOST_AT_ONCE = 4096
"""Characters; each brace in what waits may cost as many steps."""


class _State(Enum):
    SPEECH = auto()
    BARE = auto()
    """In an object that may be a call without marks."""
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

    ``bare``: a call may stand without its marks where an answer begins, or behind another call
    (``pipeline.engines.llm.tool_calls.bare``). It is held back while it may still be one; what is
    none is speech, unchanged. ``anywhere``: and behind words, too, as calls of an unmarked syntax
    may. ``thought_end``: the answer begins inside of a thought, which ends with it.
    """

    def __init__(
        self,
        syntax: Syntax,
        tools: Sequence[Tool],
        *,
        bare: bool = True,
        anywhere: bool = False,
        thought_end: str = "",
    ) -> None:
        self._syntax = syntax
        self._schemas: Mapping[str, Mapping[str, Any]] = {t.name: t.parameters for t in tools}
        self._openers = {o.marker: o for o in syntax.openers}
        self._state = _State.BLOCK if thought_end else _State.SPEECH
        self._block_end = thought_end
        self._may_be_bare = bare
        braces = ["{"] if bare and (anywhere or syntax.unmarked) else []
        self._marks = _Marks([*self._openers, *syntax.other_markers, *braces])
        self._buffer = ""
        self._space = ""
        self._said = False
        self._calls = 0
        self._spelling = syntax
        """Of the call that is being read."""
        self._data = CallData(syntax)
        self._bare = BareCall((), Opening(""))
        self._closers: list[str] = []
        """Of the list and the fence that the last call without marks stands in."""
        self.rest = ""
        """What has to follow the opening mark that was read last, up to the function's name; or
        the name of a call without marks, up to its arguments."""

    @property
    def in_call(self) -> bool:
        """A call has begun, and its closing mark has not been read."""
        return self._state in (_State.CALL, _State.CLOSING)

    @property
    def named(self) -> bool:
        """Whether this may be a call without marks, whose name is known, and nothing behind it."""
        return self._state is _State.BARE and self._bare.named

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
        parts: list[Part] = []
        steps = {
            _State.SPEECH: self._speech,
            _State.BARE: self._object,
            _State.BLOCK: self._block,
            _State.CALL: self._call,
            _State.CLOSING: self._closing,
        }
        for start in range(0, len(text) or 1, _MOST_AT_ONCE):
            self._buffer += text[start : start + _MOST_AT_ONCE]
            while steps[self._state](parts):
                pass
        return _joined(parts)

    def begin(self) -> str:
        """A call begins, and nothing else can come. Gives how it begins, up to its name."""
        begin = self._syntax.begin
        self._enter_call(self._syntax)
        self._buffer = begin.removeprefix(self._syntax.openers[0].marker)
        return begin

    def commit(self) -> str:
        """What is ``named`` is a call, and can be nothing else. Gives the name."""
        self._buffer = self._buffer[self._bare.start :]
        self._closers = [*self._bare.closers, *self._closers]
        self._enter_call(self._syntax.bare)
        return self._bare.name

    def finish(self) -> list[Part]:
        """What is left at the end. A beginning of a mark is not speech, a single sign may be."""
        parts: list[Part] = []
        while self._state is _State.BARE:
            self._release(parts)
            parts += self.feed("")
        waits = self._may_be_bare and not self._said and Opening(self._buffer).possible
        if self._state is _State.SPEECH and (len(self._buffer) == 1 or waits):
            self._say(self._buffer, parts)
        elif self._state is _State.CALL:
            log.warning("A tool call was cut off, and is left out")
        self._buffer = ""
        return _joined(parts)

    def opens(self, text: str) -> int:
        """How many characters of ``text`` a call needs to begin, one without marks up to its name;
        -1: none begins in it."""
        if self.in_call:
            return -1
        probe = self._probe()
        for i, sign in enumerate(text):
            probe.feed(sign)
            if probe.in_call or probe.named:
                return i + 1
        return -1

    def suspects(self, text: str) -> bool:
        """Whether after ``text`` a call would have begun, or a mark of more than one sign."""
        if self._state not in (_State.SPEECH, _State.BARE):
            return False
        probe = self._probe()
        for sign in text:
            probe.feed(sign)
            if probe.in_call:
                return True
        return probe._state in (_State.SPEECH, _State.BARE) and len(probe._buffer) > 1

    def _probe(self) -> CallParser:
        probe = copy.copy(self)
        probe._bare = copy.deepcopy(self._bare)
        probe._closers = [*self._closers]
        return probe

    # --- states; each returns whether there is more to do

    def _speech(self, parts: list[Part]) -> bool:
        if self._may_be_bare and not self._said:
            self._skip_closers()
            opening = Opening(self._buffer)
            if opening.whole:
                self._enter_object(opening)
                return True
            if opening.possible or self._closes:
                return False
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

    def _object(self, parts: list[Part]) -> bool:
        end = self._bare.end(self._buffer)
        if end is None and len(self._buffer) <= _MOST_HELD:
            return False
        call: ToolCall | str = "it has other members"
        if end is not None and end >= 0:
            call = self._checked(self._syntax.bare, self._buffer[self._bare.start : end])
        if isinstance(call, str):
            self._release(parts)
            return True
        self._buffer = self._buffer[end:]
        self._closers = [*self._bare.closers, *self._closers]
        self._state = _State.SPEECH
        self._give(call, parts)
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
        self._state = _State.CLOSING if self._spelling.close else _State.SPEECH
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
            self._enter_call(self._syntax)
            self.rest = opener.rest
        elif mark in BLOCKS:
            self._state = _State.BLOCK
            self._block_end = BLOCKS[mark]
        elif mark == "{":
            self._buffer = mark + self._buffer
            self._enter_object(Opening(mark))
        else:
            assert mark in STRAY

    def _enter_call(self, spelling: Syntax) -> None:
        self._state = _State.CALL
        self._spelling = spelling
        self._data = CallData(spelling)

    def _enter_object(self, opening: Opening) -> None:
        self._state = _State.BARE
        self._bare = BareCall(self._schemas, opening)
        self.rest = self._syntax.bare.middle.removeprefix('"')

    def _release(self, parts: list[Part]) -> None:
        """What was held back is no call. Behind its first sign, one may begin."""
        self._state = _State.SPEECH
        self._say(self._buffer[:1], parts)
        self._buffer = self._buffer[1:]

    def _skip_closers(self) -> None:
        """Behind a call without marks: what separates it from the next one, or ends its list."""
        while True:
            self._space, self._buffer = "", self._buffer.lstrip(self._separators)
            closed = [i for i, end in enumerate(self._closers) if self._buffer.startswith(end)]
            if not closed:
                return
            self._buffer = self._buffer[len(self._closers[closed[0]]) :]
            del self._closers[: closed[0] + 1]

    @property
    def _closes(self) -> bool:
        """Whether what is held back may end the last call's list or fence."""
        return any(end.startswith(self._buffer) for end in self._closers)

    @property
    def _separators(self) -> str | None:
        return _SEPARATORS if self._calls else None

    def _say(self, text: str, parts: list[Part]) -> None:
        text = self._space + text
        if not self._said:
            text = text.lstrip(self._separators)
        spoken = text.rstrip()
        self._space = text[len(spoken) :]
        if spoken:
            self._said = True
            parts.append(TextDelta(spoken))

    def _take(self, data: str, parts: list[Part]) -> None:
        call = self._checked(self._spelling, data)
        if isinstance(call, str):
            log.warning("A tool call is left out: %s", call)
        else:
            self._give(call, parts)

    def _checked(self, spelling: Syntax, data: str) -> ToolCall | str:
        """The call, or why it is rejected."""
        call = spelling.read(data)
        if call is None:
            return "it is malformed"
        name, arguments = call
        if name not in self._schemas:
            return "there is no such tool"
        text = _json(arguments)
        if text is None or not fits(arguments, self._schemas[name]):
            return f"its arguments do not fit the schema of {name}"
        return ToolCall(name, text)

    def _give(self, call: ToolCall, parts: list[Part]) -> None:
        self._calls += 1
        self._said, self._space = False, ""
        parts.append(call)


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


def _json(arguments: Mapping[str, Any]) -> str | None:
    """Standard JSON text; ``None`` if there is none, e.g. for an infinity."""
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
