"""A client of the sans-I/O protocol, for tests; whatever it is sent must conform."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
from conformance import Recorder

from pipeline import commands, events
from pipeline.commands import Command, SessionConfig
from pipeline.realtime.protocol import RealtimeConnection
from pipeline.realtime.session_config import SessionDefaults

DEFAULTS = SessionDefaults(
    model="reachy-voice",
    voice="joe",
    voices=("joe", "amy"),
    instructions="You are Reachy.",
    language="en",
)
PCM = np.arange(-120, 120, dtype=np.int16)


class Client:
    """One connection and everything it was sent."""

    def __init__(self, defaults: SessionDefaults = DEFAULTS, *, timings: bool = False) -> None:
        numbers = itertools.count()
        self.protocol = RealtimeConnection(
            defaults, lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1_000.5, timings
        )
        self.recorder = Recorder()
        self.created = self.sent()

    def sent(self) -> list[dict[str, Any]]:
        return [self.recorder.record(text) for text in self.protocol.messages_to_send()]

    def send(self, type: str, **fields: Any) -> list[Command]:
        return self.protocol.receive(json.dumps({"type": type, **fields}))

    def update(self, **session: Any) -> list[Command]:
        return self.send("session.update", session={"type": "realtime", **session})

    def updated(self, **session: Any) -> tuple[dict[str, Any], SessionConfig]:
        """What an accepted update shows, and what the pipeline is told."""
        (command,) = self.update(**session)
        (event,) = self.sent()
        assert event["type"] == "session.updated", event
        assert isinstance(command, commands.Configure)
        return event["session"], command.config

    def refused(self, type: str, **fields: Any) -> dict[str, Any]:
        assert self.send(type, event_id="mine", **fields) == []
        (event,) = self.sent()
        assert event["type"] == "error", event
        assert event["error"]["event_id"] == "mine"
        assert event["error"]["type"] == "invalid_request_error"
        error: dict[str, Any] = event["error"]
        return error

    def apply(self, *happened: events.Event) -> list[dict[str, Any]]:
        for event in happened:
            self.protocol.apply(event)
        return self.sent()


def text_item(text: str = "Hello.", role: str = "user", kind: str = "input_text") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def types(sent: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in sent]
