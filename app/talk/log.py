"""Warnings of the log, on the screen of ``talk``: its terminal shows nothing else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from app.talk.state import TalkState


class _OnScreen(logging.Handler):
    def __init__(self, state: TalkState) -> None:
        super().__init__(logging.WARNING)
        self._state = state

    def emit(self, record: logging.LogRecord) -> None:
        self._state.say(record.getMessage())


@contextmanager
def into(state: TalkState) -> Iterator[None]:
    """Have warnings said on the screen meanwhile."""
    handler, log = _OnScreen(state), logging.getLogger()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
