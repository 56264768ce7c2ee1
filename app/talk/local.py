"""A conversation with the engines of this program."""

from __future__ import annotations

from collections.abc import AsyncIterator

from app.compose import Assistant
from app.talk.conversation import Connected, Disconnected
from pipeline.audio import AudioFormat
from pipeline.bus import Bus, Published
from pipeline.commands import Command, SessionConfig, TurnDetection
from pipeline.hearing.client import Hearing

OUTPUT_RATE = 24_000
"""Hz, of the answers."""


class LocalConversation:
    """One session. The engines must be ready."""

    def __init__(
        self, assistant: Assistant, hearing: Hearing | None = None, push_to_talk: bool = False
    ) -> None:
        """``hearing``: through which the microphone is heard; ``None``: as a client far away."""
        told = assistant.defaults()
        config = SessionConfig(
            instructions=told.instructions,
            voice=told.voice,
            output_format=AudioFormat(rate=OUTPUT_RATE),
            turn_detection=None if push_to_talk else TurnDetection(),
            partials=assistant.stages.stt.streams,
            language=told.language,
        )
        self._bus = Bus()
        self._events = self._bus.subscribe(lossless=True)
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
