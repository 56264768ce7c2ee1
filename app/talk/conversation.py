"""What ``talk`` needs of a conversation, here or on another machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from pipeline.bus import Published
from pipeline.commands import Command


@dataclass(frozen=True, slots=True)
class Connected:
    """The conversation goes on, or begins."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The server is gone; it is tried again in ``retry_s``."""

    why: str
    retry_s: float


class Conversation(Protocol):
    """Commands in, events out. ``run`` it in a task; it lives until cancelled."""

    async def run(self) -> None:
        """Raises ``ReachyVoiceError`` where it cannot begin."""
        ...

    async def submit(self, command: Command) -> None:
        """Hand a command over; waits while too many wait already. Lost while not connected."""
        ...

    def events(self) -> AsyncIterator[Published | Connected | Disconnected]:
        """What happens, in order; for one reader."""
        ...
