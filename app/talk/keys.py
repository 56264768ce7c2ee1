"""Single keys from a terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


def has_keys() -> bool:
    """Whether stdin is a terminal."""
    streams = (sys.stdin, sys.stdout)
    return sys.platform != "win32" and all(stream and stream.isatty() for stream in streams)


@contextmanager
def key_presses(on_key: Callable[[str], None]) -> Iterator[None]:
    """Call ``on_key(character)`` on the running loop for each key; the terminal is always restored
    afterwards."""
    import termios
    import tty

    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        try:
            characters = os.read(descriptor, 64)
        except OSError:
            characters = b""
        if not characters:
            loop.remove_reader(descriptor)  # The terminal is gone; it would stay readable forever.
        for character in characters.decode(errors="ignore"):
            on_key(character)

    tty.setcbreak(descriptor, termios.TCSANOW)
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
