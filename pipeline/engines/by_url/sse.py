"""Extracts the data of server-sent events from bytes that may be split anywhere. Sans-I/O.

The format is defined in section 9.2 of the HTML standard; only ``data`` fields matter here.
"""

from __future__ import annotations

import re

MOST_BYTES = 4 * 1024 * 1024
"""Limit for one event; far above even a whole answer in one event."""

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
_BOM = b"\xef\xbb\xbf"


class TooLong(ValueError):
    """An event that never ends."""


class EventReader:
    """One stream."""

    def __init__(self) -> None:
        self._buffer = b""
        self._data: list[str] = []
        self._bytes = 0
        self._began = False

    def feed(self, piece: bytes) -> list[str]:
        """The events that ``piece`` completes. Raises ``TooLong``."""
        self._buffer += piece
        if not self._began and len(self._buffer) >= len(_BOM):
            self._began = True
            self._buffer = self._buffer.removeprefix(_BOM)
        *lines, self._buffer = _LINE_END.split(self._buffer)
        events = [event for line in lines if (event := self._line(line)) is not None]
        if self._bytes + len(self._buffer) > MOST_BYTES:
            raise TooLong(f"an event of more than {MOST_BYTES} bytes")
        return events

    def finish(self) -> list[str]:
        """Events completed by the end of the stream: some servers omit the last empty line."""
        last, self._buffer = self._buffer.rstrip(b"\r"), b""
        events = (self._line(last), self._line(b""))
        return [event for event in events if event is not None]

    def _line(self, line: bytes) -> str | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
            self._bytes += len(value)
        return None

    def _dispatch(self) -> str | None:
        event = "\n".join(self._data) if self._data else None
        self._data, self._bytes = [], 0
        return event
