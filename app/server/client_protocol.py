"""The protocol of one client: in the dialect that it speaks, and as its address asks for it.

Knows no socket. Long frames are read in a thread.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.commands import Command, SessionConfig
from pipeline.events import Event
from pipeline.realtime import wire
from pipeline.realtime.beta import BetaDialect, wants_beta
from pipeline.realtime.protocol import RealtimeConnection
from pipeline.realtime.session_config import SessionDefaults
from pipeline.realtime.wire import WireError

LARGE_MESSAGE_CHARS = 256 * 1024
"""Longer messages (images, whole recordings) are decoded in a thread."""


class ClientProtocol:
    """``RealtimeConnection`` behind the beta dialect, if the client asks for that.

    ``query`` may hold ``model``, ``intent=transcription``, and our own ``timings=true``,
    ``turn_records=true`` and ``holds=true``.
    """

    def __init__(
        self,
        defaults: SessionDefaults,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        subprotocols: Sequence[str],
        given: Mapping[str, Any] | None = None,
    ) -> None:
        """``given``: the session fields of a client secret, in the GA dialect. Its maker decides
        the kind of session, and the model unless the address names one."""
        self._given = given = given or {}
        model = query.get("model") or given.get("model")
        kind = given.get("type") or query.get("intent")
        new_id = id_source()
        self._ga = RealtimeConnection(
            replace(
                defaults,
                model=model if model and isinstance(model, str) else defaults.model,
                transcription=kind == "transcription",
            ),
            new_id,
            time.time,
            timings=query.get("timings") == "true",
            turn_records=query.get("turn_records") == "true",
            holds=query.get("holds") == "true",
        )
        self._beta = BetaDialect(new_id) if wants_beta(headers, subprotocols) else None
        self._replies: list[str] = []
        """Of the dialect itself."""

    @property
    def config(self) -> SessionConfig:
        """The effective settings."""
        return self._ga.config

    def begin(self) -> list[Command]:
        """Configure the session as the client secret says, if there is one."""
        if not self._given:
            return []
        return self._ga.receive(wire.encode({"type": "session.update", "session": self._given}))

    async def receive(self, frame: str | bytes) -> list[Command]:
        """One frame of the client."""
        large = len(frame) > LARGE_MESSAGE_CHARS
        if self._beta and isinstance(frame, str):
            read = self._beta.to_ga
            ga = await asyncio.to_thread(read, frame) if large else read(frame)
            if not isinstance(ga, str):
                self._replies += ga
                return []
            frame = ga
        if not large:
            return self._ga.receive(frame)
        try:
            message = await asyncio.to_thread(wire.parse, frame)
        except WireError as error:
            self._ga.refuse(error)
            return []
        return self._ga.receive_parsed(message)

    def refuse(self, code: str, message: str) -> None:
        """Queue an ``error`` event that is about no message."""
        self._ga.refuse(WireError(code, message))

    def apply(self, event: Event) -> None:
        """Queue what the client must hear of ``event``."""
        self._ga.apply(event)

    def messages_to_send(self) -> list[str]:
        """Texts in their order; each is handed out once."""
        messages = self._ga.messages_to_send()
        if self._beta:
            messages = [text for ga in messages for text in self._beta.from_ga(ga)]
            messages += self._replies
            self._replies = []
        return messages


def id_source() -> Callable[[str], str]:
    """Ids that are unique among all connections, and cheap."""
    base = secrets.token_hex(8)
    numbers = itertools.count()
    return lambda prefix: f"{prefix}_{base}{next(numbers):x}"
