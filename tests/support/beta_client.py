"""A client of the sans-I/O protocol that speaks the beta dialect, for tests."""

from __future__ import annotations

import itertools
import json
from typing import Any

from pipeline.commands import Command, Configure
from pipeline.realtime.beta import BetaDialect
from pipeline.realtime.protocol import RealtimeConnection
from tests.support.conformance import Recorder
from tests.support.protocol_client import DEFAULTS


class BetaClient:
    """One connection through the translator; whatever it is sent must be strict beta."""

    def __init__(self) -> None:
        numbers = itertools.count()

        def new_id(prefix: str) -> str:
            return f"{prefix}_{next(numbers)}"

        self.dialect = BetaDialect(new_id)
        self.protocol = RealtimeConnection(DEFAULTS, new_id, lambda: 1_000.5)
        self.recorder = Recorder("beta")

    def sent(self) -> list[dict[str, Any]]:
        return self.translated(*self.protocol.messages_to_send())

    def translated(self, *ga: str) -> list[dict[str, Any]]:
        texts = [text for message in ga for text in self.dialect.from_ga(message)]
        return [self.recorder.record(text) for text in texts]

    def shows(self, type: str, **fields: Any) -> list[dict[str, Any]]:
        """What becomes of one GA event."""
        event = {"type": type, "event_id": f"event_x{len(self.recorder.events)}", **fields}
        return self.translated(json.dumps(event, separators=(",", ":")))

    def send(self, type: str, **fields: Any) -> list[Command]:
        ga = self.dialect.to_ga(json.dumps({"type": type, **fields}))
        assert isinstance(ga, str), ga
        return self.protocol.receive(ga)

    def updated(self, **session: Any) -> tuple[dict[str, Any], Any]:
        (command,) = self.send("session.update", session=session)
        (event,) = self.sent()
        assert event["type"] == "session.updated", event
        assert isinstance(command, Configure)
        return event["session"], command.config

    def refused(self, type: str, **fields: Any) -> dict[str, Any]:
        """The error, whether the translator makes it or the GA side."""
        text = json.dumps({"type": type, "event_id": "mine", **fields})
        ga = self.dialect.to_ga(text)
        if isinstance(ga, str):
            assert self.protocol.receive(ga) == []
            (event,) = self.sent()
        else:
            (event,) = [self.recorder.record(reply) for reply in ga]
        assert event["type"] == "error"
        assert event["error"]["event_id"] == "mine"
        error: dict[str, Any] = event["error"]
        return error
