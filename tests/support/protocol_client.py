"""A test client of the sans-I/O protocol; all that it receives must conform.

The functions below make the pipeline events of reply ``resp_1`` with message ``item_a``.
"""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import numpy as np

from pipeline import commands, events
from pipeline.audio import AudioFormat
from pipeline.commands import Command, SessionConfig
from pipeline.items import AudioPart, MessageItem, TextPart
from pipeline.messages import Usage
from pipeline.realtime import wire
from pipeline.realtime.protocol import RealtimeConnection
from pipeline.realtime.session_config import SessionDefaults
from tests.support.conformance import Recorder

DEFAULTS = SessionDefaults(
    model="reachy-voice",
    voice="joe",
    voices=("joe", "amy"),
    instructions="You are Reachy.",
    language="en",
)
PCM = np.arange(-120, 120, dtype=np.int16)


class Client:
    """One connection and everything that it received."""

    def __init__(self, defaults: SessionDefaults = DEFAULTS, *extras: str) -> None:
        numbers = itertools.count()
        self.protocol = RealtimeConnection(
            defaults,
            lambda prefix: f"{prefix}_{next(numbers)}",
            lambda: 1_000.5,
            {*extras},
        )
        self.recorder = Recorder()
        self.created = self.sent()

    def sent(self) -> list[dict[str, Any]]:
        return [self.recorder.record(text) for text in self.protocol.messages_to_send()]

    def send(self, type: str, **fields: Any) -> list[Command]:
        return receive(self.protocol, json.dumps({"type": type, **fields}))

    def update(self, **session: Any) -> list[Command]:
        kind = self.created[0]["session"]["type"]
        return self.send("session.update", session={"type": kind, **session})

    def updated(self, **session: Any) -> tuple[dict[str, Any], SessionConfig]:
        """The session that an accepted update shows, and what the pipeline receives."""
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


def receive(protocol: RealtimeConnection, frame: str | bytes) -> list[Command]:
    """What the server does with a frame."""
    try:
        return protocol.receive(wire.parse(frame))
    except wire.WireError as error:
        protocol.refuse(error)
        return []


def text_item(text: str = "Hello.", role: str = "user", kind: str = "input_text") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def data_url(image: bytes, kind: str = "image/jpeg") -> str:
    return f"data:{kind};base64,{base64.b64encode(image).decode()}"


def types(sent: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in sent]


# --- one reply ---------------------------------------------------------------------------------

USAGE = Usage(prompt=100, cached=80, evaluated=20, generated=7)


def message(*parts: TextPart | AudioPart, status: Any = "completed") -> MessageItem:
    return MessageItem("item_a", "assistant", parts, status)


def started(modality: commands.Modality = "audio", **changes: Any) -> events.ReplyStarted:
    fields: dict[str, Any] = {
        "reply_id": "resp_1",
        "modality": modality,
        "in_conversation": True,
        "voice": "joe",
        "format": AudioFormat(),
        "max_output_tokens": None,
        "metadata": None,
        **changes,
    }
    return events.ReplyStarted(**fields)


ITEM_STARTED = events.ReplyItemStarted("resp_1", message(status="in_progress"), 0, None)
AUDIO = events.ReplyAudio("resp_1", "item_a", 0, PCM, 24_000)


def spoken(text: str) -> events.ReplyText:
    return events.ReplyText("resp_1", "item_a", 0, text)


def item_finished(*parts: TextPart | AudioPart, status: Any = "completed") -> Any:
    return events.ReplyItemFinished("resp_1", message(*parts, status=status), 0, None)


def finished(*items: events.OutputItem, status: Any = "completed", **more: Any) -> Any:
    return events.ReplyFinished("resp_1", status, items, USAGE, **more)


def user_speaks() -> list[events.Event]:
    """A whole spoken turn, up to its commit."""
    item_id = "item_u"
    item = MessageItem(item_id, "user", (AudioPart(None, 1.2),))
    return [
        events.SpeechStarted(item_id, 320),
        events.SpeechStopped(item_id, 1700),
        events.InputCommitted(item_id, None),
        events.ItemAdded(item, None),
    ]
