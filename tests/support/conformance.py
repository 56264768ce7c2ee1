"""Records server events and checks them against ``openai``'s types and the order that the API
promises.

Stricter than any client: no coercion, and no unknown field except those named here.
``invariants.Conversation`` checks the order.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated, Any, get_args, get_origin

from openai.types.realtime import realtime_server_event
from openai.types.realtime.realtime_session_create_response import RealtimeSessionCreateResponse
from openai.types.realtime.realtime_transcription_session_create_response import (
    RealtimeTranscriptionSessionCreateResponse,
)
from pydantic import BaseModel

from tests.support.invariants import Conversation

ANSWER_ONLY = {"id", "object", "expires_at"}
"""The SDK types a session in ``session.updated`` as a request; upstream sends these too."""

OUR_FIELDS = {
    "input_audio_buffer.speech_started": {"direction_deg"},
    "input_audio_buffer.speech_stopped": {"direction_deg"},
}
"""Our extra fields, present only with a microphone array."""

OURS = {
    "reachy_voice.timeline",
    "reachy_voice.response.held",
    "reachy_voice.response.went_on",
    "reachy_voice.asleep",
    "reachy_voice.speaker",
    "reachy_voice.awake",
}
"""Our extra events, sent only on request."""


def _event_types(union: Any) -> dict[str, type[BaseModel]]:
    if get_origin(union) is Annotated:
        union = get_args(union)[0]
    return {get_args(t.model_fields["type"].annotation)[0]: t for t in get_args(union)}


EVENT_TYPES = _event_types(realtime_server_event.RealtimeServerEvent)


class Recorder:
    """Collects one connection's events; ``record`` fails on the first that does not conform.

    ``whole``: everything comes from a real session, so every id must have been announced. A
    recorder that starts after ``session.created`` does not check the order.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self.events: list[dict[str, Any]] = []
        self._ids: set[str] = set()
        self._conversation: Conversation | None = Conversation(whole=whole)
        self._whole = whole
        self._told: Counter[str] | None = None

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def sent(self, text: str) -> None:
        """Note a client event: an error may name each sent ``event_id`` once, and no other."""
        if self._told is None:
            self._told = Counter()
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(event, dict) and isinstance(event_id := event.get("event_id"), str):
            self._told[event_id] += 1

    def record(self, text: str) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(text)
        assert len(text) < 2**20, "default clients refuse frames of 1 MiB"
        assert event["event_id"] not in self._ids, "event ids are unique"
        self._ids.add(event["event_id"])
        self.events.append(event)
        if event["type"] in OURS:
            return event
        check(event)
        if event["type"] == "error":
            self._check_error(event["error"])
        if len(self.events) == 1 and event["type"] != "session.created" and not self._whole:
            self._conversation = None
        if self._conversation:
            self._conversation.follow(event)
        return event

    def finish(self) -> None:
        """Call when all is idle: fails if anything opened was not closed."""
        if self._conversation:
            self._conversation.finish()

    def _check_error(self, error: dict[str, Any]) -> None:
        assert error["message"], "an error says what is wrong"
        if self._told is not None and (event_id := error["event_id"]) is not None:
            self._told[event_id] -= 1
            assert self._told[event_id] >= 0, f"one error for each bad event: {event_id}"


def check(event: dict[str, Any]) -> None:
    """Check one event by itself against the types."""
    shape = EVENT_TYPES[event["type"]]
    plain = _with_standard_rates(event)
    model = shape.model_validate_json(json.dumps(plain), strict=True)
    _no_extras(model, event["type"])
    if "session" in event:
        _check_session(plain["session"])


def _check_session(session: dict[str, Any]) -> None:
    answer: BaseModel
    text = json.dumps(session)
    if session["type"] == "transcription":
        answer = RealtimeTranscriptionSessionCreateResponse.model_validate_json(text, strict=True)
    else:
        answer = RealtimeSessionCreateResponse.model_validate_json(text, strict=True)
    _no_extras(answer, "session", allowed={"parallel_tool_calls", "reasoning"})


def _no_extras(value: object, path: str, allowed: set[str] | None = None) -> None:
    if isinstance(value, list):
        for at, element in enumerate(value):
            _no_extras(element, f"{path}[{at}]")
    if not isinstance(value, BaseModel):
        return
    if allowed is None:
        allowed = ANSWER_ONLY if path.endswith(".session") else OUR_FIELDS.get(path, set())
    extras = set(value.model_extra or ()) - allowed
    assert not extras, f"{path} has fields that the API does not know: {extras}"
    for name in type(value).model_fields:
        _no_extras(getattr(value, name), f"{path}.{name}")


def _with_standard_rates(value: Any) -> Any:
    """The one exception: 16 and 8 kHz PCM, where the types allow only 24 kHz."""
    if isinstance(value, list):
        return [_with_standard_rates(element) for element in value]
    if not isinstance(value, dict):
        return value
    changed = {name: _with_standard_rates(element) for name, element in value.items()}
    if changed.get("type") == "audio/pcm" and changed.get("rate") in (16000, 8000):
        changed["rate"] = 24000
    return changed
