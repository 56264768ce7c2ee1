"""Shared by all parts of one session: its engines, settings, bus and tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.bus import Bus
from pipeline.commands import SessionConfig
from pipeline.engines.stages import Stages
from pipeline.events import Refused
from pipeline.settings import Endpointing, Lexicon, SessionSettings, lexicon_of


@dataclass(slots=True, eq=False)
class SessionContext:
    """``config`` is replaced when the client configures its session. ``tasks`` end with the
    session. ``new_id(prefix)`` returns a fresh id such as ``item_…``."""

    stages: Stages
    config: SessionConfig
    settings: SessionSettings
    bus: Bus
    tasks: asyncio.TaskGroup
    new_id: Callable[[str], str]

    @property
    def endpointing(self) -> Endpointing:
        """The YAML's endpointing, overridden by the client's turn detection."""
        ours, asked = self.settings.endpointing, self.config.turn_detection
        return asked.over(ours) if asked else ours

    @property
    def lexicon(self) -> Lexicon:
        """The lexicon of the session's language."""
        return lexicon_of(self.settings.lexicons, self.config.language)

    def refuse(
        self, event_id: str | None, code: str, message: str, param: str | None = None
    ) -> None:
        """Tell the client that a command cannot be carried out."""
        self.bus.publish(Refused(event_id, code, message, param))
