"""Checks that server events are exactly what ``openai.types.realtime`` says, and records them.

Stricter than any client: no coercion, and no field that the types do not know, except the ones
named here.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, get_args, get_origin

from openai.types.realtime import realtime_server_event
from openai.types.realtime.realtime_session_create_response import RealtimeSessionCreateResponse
from pydantic import BaseModel

ANSWER_ONLY = {"id", "object", "expires_at"}
"""The SDK types a session in ``session.updated`` as a request; upstream sends these too."""

OURS = "reachy_voice.timeline"
"""Our one extra event, sent on request only."""


def _event_types() -> dict[str, type[BaseModel]]:
    union = realtime_server_event.RealtimeServerEvent
    if get_origin(union) is Annotated:
        union = get_args(union)[0]
    return {get_args(t.model_fields["type"].annotation)[0]: t for t in get_args(union)}


EVENT_TYPES = _event_types()


class Recorder:
    """Collects one connection's events; ``record`` fails on the first that does not conform."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._ids: set[str] = set()

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def record(self, text: str) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(text)
        assert len(text) < 2**20, "default clients refuse frames of 1 MiB"
        assert event["event_id"] not in self._ids, "event ids are unique"
        self._ids.add(event["event_id"])
        if event["type"] != OURS:
            check(event)
        self.events.append(event)
        return event


def check(event: dict[str, Any]) -> None:
    shape = EVENT_TYPES[event["type"]]
    plain = _with_standard_rates(event)
    model = shape.model_validate_json(json.dumps(plain), strict=True)
    _no_extras(model, event["type"])
    if "session" in event:
        session = dict(plain["session"])
        answer = RealtimeSessionCreateResponse.model_validate_json(json.dumps(session), strict=True)
        _no_extras(answer, "session", allowed={"parallel_tool_calls", "reasoning"})


def _no_extras(value: object, path: str, allowed: set[str] | None = None) -> None:
    if isinstance(value, list):
        for at, element in enumerate(value):
            _no_extras(element, f"{path}[{at}]")
    if not isinstance(value, BaseModel):
        return
    if allowed is None:
        allowed = ANSWER_ONLY if path.endswith(".session") else set()
    extras = set(value.model_extra or ()) - allowed
    assert not extras, f"{path} has fields that the API does not know: {extras}"
    for name in type(value).model_fields:
        _no_extras(getattr(value, name), f"{path}.{name}")


def _with_standard_rates(value: Any) -> Any:
    """The one named exception: 16 and 8 kHz PCM, where the types know 24 kHz only."""
    if isinstance(value, list):
        return [_with_standard_rates(element) for element in value]
    if not isinstance(value, dict):
        return value
    changed = {name: _with_standard_rates(element) for name, element in value.items()}
    if changed.get("type") == "audio/pcm" and changed.get("rate") in (16000, 8000):
        changed["rate"] = 24000
    return changed
