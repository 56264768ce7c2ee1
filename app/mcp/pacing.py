"""How much an MCP server may send, and how fast it is read."""

from __future__ import annotations

import asyncio

from app.access.limits import TokenBucket

MOST_BYTES = 8 * 2**20
"""Of one answer or event: two pictures of 3 MiB, in base64."""
BYTES_PER_S, BURST_BYTES = 2 * 2**20, 2 * MOST_BYTES
LINE_BYTES = 8192
"""A line counts as so many more: a message of 30 bytes takes as long as one of some thousand. Of
messages without end, 256 a second are read."""
MOST_COMMAS = 100_000
"""Of one message: the SDK takes 0.1 ms for each tool in a list, in which nothing else can run."""


class Pacing:
    """Of one stream. What is not read yet holds the server back, at the other end."""

    def __init__(self) -> None:
        self._bucket: TokenBucket | None = None
        self._commas = 0
        """Since the last line began."""

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
