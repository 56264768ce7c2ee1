"""Splits a model's output into speech, calls and the rest while it is being written.

Sans-I/O. The result does not depend on how the text is cut into pieces.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pipeline.engines.contract import TextDelta, ToolCall
from pipeline.engines.llm.tool_calls import foreign
from pipeline.engines.llm.tool_calls.bare import BareCall, may_open, opens
from pipeline.engines.llm.tool_calls.call_data import CallData
from pipeline.engines.llm.tool_calls.schema_check import fitted
from pipeline.engines.llm.tool_calls.syntax import BLOCKS, ENDS, THOUGHTS, Syntax
from pipeline.messages import Tool

log = logging.getLogger("reachy_voice.llm")

Part = TextDelta | ToolCall

_SEPARATORS = " \t\r\n;,"
"""Characters allowed between two calls."""
_NEVER = "\0"
"""No model writes it. Closes what follows the end of a turn."""
_MOST_HELD = 50_000
"""Longest text held back while waiting for a call without marks to end, in characters."""
_MOST_AT_ONCE = 4096
"""Most characters per step, as each brace in held-back text may cost that many steps."""
_State = Literal["speech", "object", "foreign", "block", "call", "closing"]
"""``object``: possibly a call without marks; ``foreign``: one in another family's spelling;
``block``: thoughts, or other text that is not spoken; ``closing``: after a call's data, before its
closing mark."""


class CallParser:
    """One answer of a model that writes calls in ``syntax``.

    Speech passes at once; only the possible beginning of a mark and trailing white space are held
    back. A call comes out when its data is complete, if it calls one of ``tools`` and fits its
    schema; otherwise it is dropped, and the log says why.
    """

    def __init__(
        self,
        syntax: Syntax,
        tools: Sequence[Tool],
        *,
        bare: bool = True,
        thought_end: str = "",
    ) -> None:
        """With ``bare``, a call may lack its marks (``pipeline.engines.llm.tool_calls.bare``). Such
        text is held back while it may be a call, at the start of an answer and after another call
        with the list or fence around it; if it turns out not to be, it becomes speech, unchanged.
        ``thought_end`` is set if the answer begins inside a thought, which this mark closes."""
        self._syntax = syntax
        self._schemas: Mapping[str, Mapping[str, Any]] = {t.name: t.parameters for t in tools}
        self._may_be_bare = bare
        marks = [syntax.marker, *syntax.other_markers, *["{"] * bare]
        self._mark = re.compile("|".join(map(re.escape, marks)))
        self._beginnings = frozenset(m[:n] for m in marks for n in range(1, len(m)))
        self._longest = max(map(len, self._beginnings))
        self._state: _State = "block" if thought_end else "speech"
        self._block_end = thought_end
        self._buffer = ""
        self._space = ""
        self.has_spoken = False
        """Whether there were words since the beginning or the last call."""
        self._spelling = syntax
        """Syntax of the current call."""
        self._data = CallData(syntax)
        self._bare = BareCall((), "{")
        self._foreign = ""
        """The mark of a call in another family's spelling."""
        self._closers: list[str] = []
        """Ends of the list and fence around the last call without marks."""
        self.calls = 0
        """How many calls have come out."""
        self.rest = ""
        """Required text after the latest marker, up to the function's name; or after the name of a
        call without marks, up to its arguments."""
        self.closed_thought = ""
        """The mark that has closed a thought in which the answer began, if any."""
        self._may_close = True
        """Whether a closing mark can be that of a thought in which the answer began."""

    @property
    def in_call(self) -> bool:
        """Whether a call has begun and its closing mark has not been read."""
        return self._state in ("call", "closing")

    @property
    def named(self) -> bool:
        """Whether this may be a call without marks, read exactly up to the end of its name."""
        return self._state == "object" and self._bare.named

    @property
    def begun(self) -> bool:
        return self.in_call or self.named

    @property
    def in_text(self) -> bool:
        """Whether the parser is inside a quoted text of a call."""
        return self._state == "call" and self._data.quoted

    def feed(self, text: str, *, pause: bool = False) -> list[Part]:
        """The parts that ``text`` adds. ``pause``: stop reading once a call has ``begun``."""
        parts: list[Part] = []
        for start in range(0, len(text) or 1, _MOST_AT_ONCE):
            self._buffer += text[start : start + _MOST_AT_ONCE]
            self._read(parts, pause=pause)
        return parts

    def drop_unread(self) -> str:
        """Remove the text after the point where a call has ``begun``, and return it."""
        at = self._bare.at if self.named else 0
        unread, self._buffer = self._buffer[at:], self._buffer[:at]
        return unread

    def begin(self) -> str:
        """Force a call to begin. Returns its text up to the name."""
        self._enter_call(self._syntax)
        self._buffer = self._syntax.rest
        return self._syntax.begin

    def commit(self) -> str:
        """Commit to the ``named`` object being a call. Returns the tool's name."""
        self._buffer = self._buffer[self._bare.start :]
        self._closers = [*self._bare.closers, *self._closers]
        self._enter_call(self._syntax.bare)
        return self._bare.name

    def finish(self) -> list[Part]:
        """The remaining parts at the end of the answer. An unfinished mark is not speech, unless it
        is a single character."""
        parts: list[Part] = []
        while self._state == "object":
            self._release(parts)
            self._read(parts)
        waits = self._may_be_bare and not self.has_spoken and self._may_open
        if self._state == "speech" and (len(self._buffer) == 1 or waits):
            self._say(self._buffer, parts)
        elif self._state in ("call", "foreign"):
            log.warning("Ignoring a tool call that was cut off")
        self._buffer = ""
        return parts

    def suspects(self, text: str) -> bool:
        """Whether ``text`` would begin a call, or two or more characters of a mark; before the
        first word and in a new line, one."""
        if self._state not in ("speech", "object"):
            return False
        probe = copy.copy(self)
        probe._bare, probe._closers = copy.deepcopy(self._bare), [*self._closers]
        probe.feed(text, pause=True)
        is_line = probe.has_spoken and "\n" not in probe._space
        waits = probe._state in ("speech", "object") and len(probe._buffer) > is_line
        return probe.in_call or waits or probe._state == "foreign"

    # --- states

    def _read(self, parts: list[Part], *, pause: bool = False) -> None:
        while not (pause and self.begun) and self._step(parts, pause):
            pass

    def _step(self, parts: list[Part], pause: bool) -> bool:
        """Make one step. Returns whether there is more to do."""
        match self._state:
            case "speech":
                return self._speech(parts)
            case "object":
                return self._object(parts, pause)
            case "foreign":
                return self._foreign_call(parts)
            case "block":
                return self._block()
            case "call":
                return self._call(parts)
            case "closing":
                return self._closing()

    def _speech(self, parts: list[Part]) -> bool:
        if self._may_be_bare and not self.has_spoken:
            self._skip_closers()
            if opens(self._buffer):
                self._enter_object()
                return True
            if foreign.opens_python(self._buffer, self._schemas):
                self._enter(foreign.PYTHON)
                return True
            if self._may_open or self._closes:
                return False
        match = self._mark.search(self._buffer)
        if match is None:
            overlap = self._begun_mark()
            self._say(self._buffer[: len(self._buffer) - overlap], parts)
            self._buffer = self._buffer[len(self._buffer) - overlap :]
            return False
        self._say(self._buffer[: match.start()], parts)
        self._buffer = self._buffer[match.end() :]
        self._enter(match.group())
        return True

    def _begun_mark(self) -> int:
        """How many characters at the end may be the beginning of a mark."""
        lengths = range(min(self._longest, len(self._buffer)), 0, -1)
        return next((n for n in lengths if self._buffer[-n:] in self._beginnings), 0)

    def _object(self, parts: list[Part], pause: bool) -> bool:
        end = self._bare.end(self._buffer, pause=pause)
        if end is None and len(self._buffer) <= _MOST_HELD:
            return False
        call: ToolCall | str = "it has other members"
        if end is not None and end >= 0:
            call = self._check(self._syntax.bare.read(self._buffer[self._bare.start : end]))
        if isinstance(call, str):
            self._release(parts)
            return True
        self._buffer = self._buffer[end:]
        self._closers = [*self._bare.closers, *self._closers]
        self._state = "speech"
        self._give(call, parts)
        return True

    def _foreign_call(self, parts: list[Part]) -> bool:
        end = foreign.end(self._buffer, self._foreign)
        if end is None:
            return False
        self._state = "speech"
        if not end:  # a list of objects may follow
            self.has_spoken = False
        else:
            for read in foreign.read(self._buffer[:end], self._foreign, self._schemas):
                self._take(read, parts)
        self._buffer = self._buffer[end:]
        return True

    def _block(self) -> bool:
        before, end, after = self._buffer.partition(self._block_end)
        if not end:
            self._buffer = before[-len(self._block_end) :]
            return False
        self._buffer = after
        self._state = "speech"
        self._close_thought(end)
        return True

    def _call(self, parts: list[Part]) -> bool:
        if (inner := self._buffer.lstrip()).startswith(foreign.FUNCTION):
            self._buffer = inner.removeprefix(foreign.FUNCTION)
            self._enter(foreign.FUNCTION)
            return True
        end = self._data.end(self._buffer)
        if end is None:
            return False
        if self._data.whole:
            self._take(self._spelling.read(self._buffer[:end].lstrip("[ \r\n\t")), parts)
        else:
            log.warning("Ignoring a malformed tool call")
        self._buffer = self._buffer[end:]
        self._state = "closing" if self._spelling.close else "speech"
        return True

    def _closing(self) -> bool:
        """Look for the closing mark, or the next call, as a model may forget the mark, or write
        several calls between two marks."""
        rest = self._buffer.lstrip(_SEPARATORS)
        if rest.startswith("{") and self._syntax.values == "json":
            self._buffer = rest
            self._enter_call(self._syntax)
            return True
        close = self._syntax.close.strip()
        at = self._buffer.find(close)
        begins = self._buffer.find(self._syntax.marker)
        if begins >= 0 and (at < 0 or begins < at):
            self._buffer = self._buffer[begins:]
            self._state = "speech"
            return True
        if at < 0:
            longest = max(len(close), len(self._syntax.marker))
            # Only what comes first may be another call.
            self._buffer = rest and _NEVER + rest[1 - longest :]
            return False
        self._buffer = self._buffer[at + len(close) :]
        self._state = "speech"
        return True

    # --- others

    def _enter(self, mark: str) -> None:
        if mark == self._syntax.marker:
            self._enter_call(self._syntax)
            self.rest = self._syntax.rest
        elif mark in BLOCKS or mark in ENDS:
            self._state, self._block_end = "block", BLOCKS.get(mark, _NEVER)
            self._may_close = False
        elif mark in (foreign.LIST, foreign.FUNCTION, foreign.PYTHON):
            self._state, self._foreign = "foreign", mark
        elif mark == "{":
            self._buffer = mark + self._buffer
            self._enter_object()
        else:
            self._close_thought(mark)

    def _close_thought(self, mark: str) -> None:
        if self._may_close and mark in THOUGHTS.values():
            self.closed_thought = mark

    def _enter_call(self, spelling: Syntax) -> None:
        self._state = "call"
        self._spelling = spelling
        self._data = CallData(spelling)

    def _enter_object(self) -> None:
        self._state = "object"
        self._bare = BareCall(self._schemas, self._buffer)
        self.rest = self._syntax.bare.middle.removeprefix('"')

    def _release(self, parts: list[Part]) -> None:
        """The held-back text is not a call, but a call may begin after its first character."""
        self._state = "speech"
        self._say(self._buffer[:1], parts)
        self._buffer = self._buffer[1:]

    def _skip_closers(self) -> None:
        """After a call without marks, skip separators and the ends of its list and fence."""
        while True:
            self._space, self._buffer = "", self._buffer.lstrip(self._separators)
            matches = [i for i, end in enumerate(self._closers) if self._buffer.startswith(end)]
            if not matches:
                return
            self._buffer = self._buffer[len(self._closers[matches[0]]) :]
            del self._closers[: matches[0] + 1]

    @property
    def _may_open(self) -> bool:
        """Whether the held-back text may become a call without marks."""
        return may_open(self._buffer) or foreign.may_open_python(self._buffer, self._schemas)

    @property
    def _closes(self) -> bool:
        """Whether the held-back text may end the last call's list or fence."""
        return any(end.startswith(self._buffer) for end in self._closers)

    @property
    def _separators(self) -> str | None:
        return _SEPARATORS if self.calls else None

    def _say(self, text: str, parts: list[Part]) -> None:
        text = self._space + text
        if not self.has_spoken:
            text = text.lstrip(self._separators)
        speech = text.rstrip()
        self._space = text[len(speech) :]
        if speech:
            self.has_spoken = True
            if parts and isinstance(last := parts[-1], TextDelta):
                parts[-1] = TextDelta(last.text + speech)
            else:
                parts.append(TextDelta(speech))

    def _take(self, read: foreign.Read, parts: list[Part]) -> None:
        call = self._check(read)
        if isinstance(call, str):
            log.warning("Ignoring a tool call: %s", call)
        else:
            self._give(call, parts)

    def _check(self, read: foreign.Read) -> ToolCall | str:
        """The call, or why it is rejected."""
        if read is None:
            return "it is malformed"
        name, arguments = read
        if name not in self._schemas:
            return "there is no such tool"
        meant = fitted(arguments, self._schemas[name])
        text = None if meant is None else _json(meant)
        if text is None:
            return f"its arguments do not fit the schema of {name}"
        return ToolCall(name, text)

    def _give(self, call: ToolCall, parts: list[Part]) -> None:
        self.calls += 1
        self.has_spoken, self._space = False, ""
        parts.append(call)


def _json(arguments: Mapping[str, Any]) -> str | None:
    """Standard JSON text; ``None`` if JSON cannot express it, e.g. an infinity."""
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, RecursionError):  # a lone surrogate is a ValueError, too
        return None
    return text
