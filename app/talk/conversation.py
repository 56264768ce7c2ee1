"""The conversation that ``talk`` needs, and one with the engines of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from app.compose import Assistant
from pipeline.audio import AudioFormat
from pipeline.bus import Bus, Published
from pipeline.commands import Command, SessionConfig, TurnDetection
from pipeline.hearing.client import Hearing

OUTPUT_RATE = 24_000
"""Hz; sample rate of the answers."""


@dataclass(frozen=True, slots=True)
class Connected:
    """The conversation starts, or resumes."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is lost; we reconnect."""

    why: str


class Conversation(Protocol):
    """Commands in, events out. ``run`` it in a task; it runs until cancelled."""

    async def run(self) -> None:
        """Raises ``ReachyVoiceError`` if it cannot start."""
        ...

    async def submit(self, command: Command) -> None:
        """Queue a command; waits while the queue is full. Dropped while disconnected."""
        ...

    def events(self) -> AsyncIterator[Published | Connected | Disconnected]:
        """The events in order, for one reader."""
        ...


class LocalConversation:
    """One session. The engines must be ready."""

    def __init__(self, assistant: Assistant, hearing: Hearing | None, push_to_talk: bool) -> None:
        """``hearing``: processes the microphone; ``None``: as for a remote client."""
        defaults = assistant.defaults()
        config = SessionConfig(
            instructions=defaults.instructions,
            voice=defaults.voice,
            output_format=AudioFormat(rate=OUTPUT_RATE),
            turn_detection=None if push_to_talk else TurnDetection(),
            partials=assistant.stages.stt.streams,
            language=defaults.language,
        )
        self._bus = Bus()
        self._events = self._bus.subscribe()
        self._session = assistant.session(self._bus, config, hearing=hearing)

    async def run(self) -> None:
        try:
            await self._session.run()
        finally:
            self._bus.close()

    async def submit(self, command: Command) -> None:
        await self._session.submit(command)

    async def events(self) -> AsyncIterator[Published | Connected | Disconnected]:
        yield Connected()
        async for published in self._events:
            yield published
