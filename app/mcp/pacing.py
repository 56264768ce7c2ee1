"""How much an MCP server may send, and how it is read."""

from __future__ import annotations

import asyncio
import re

from app.access.limits import TokenBucket

MOST_BYTES = 8 * 2**20
"""Largest answer or event: two pictures of 3 MiB, in base64."""
BYTES_PER_S, BURST_BYTES = 2 * 2**20, 2 * MOST_BYTES
LINE_BYTES = 8192
"""Each line counts as this many bytes more, because a message of 30 bytes takes as long as one of
some thousand. At most 256 messages a second are read in the long run."""
MOST_COMMAS = 100_000
"""Most commas in one message: the SDK blocks the event loop 0.1 ms for each tool in a list."""
_HALVES = re.compile(
    rb"\\u(?<!\\\\u)[dD](?:[89abAB]\w\w(?!\\u[dD][c-fC-F])|"
    rb"(?<!\\u[dD][89abAB]\w\w\\u[dD])[c-fC-F]\w\w)"
)


def whole_letters(data: bytes) -> bytes:
    """Replace halves of letters, which JavaScript leaves where it cuts a text, and with which the
    SDK reads no message."""
    return _HALVES.sub(rb"\\ufffd", data)


class Pacing:
    """The pace of reading one stream. Data left unread holds the server back at the other end."""

    def __init__(self) -> None:
        self._bucket: TokenBucket | None = None
        self._commas = 0
        """Commas since the last line began."""

    async def wait(self, data: bytes) -> None:
        """Wait until ``data`` may be read. Raises ``ValueError`` if a line has too many parts."""
        now = asyncio.get_running_loop().time()
        bucket = self._bucket = self._bucket or TokenBucket(BYTES_PER_S, BURST_BYTES, now)
        await asyncio.sleep(bucket.take(now, len(data) + LINE_BYTES * data.count(b"\n")))
        self._commas += data.count(b",")
        if self._commas > MOST_COMMAS:
            raise ValueError(f"a message has more than {MOST_COMMAS} parts")
        if b"\n" in data:
            self._commas = data.count(b",", data.rindex(b"\n"))
