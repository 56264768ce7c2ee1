"""The beta dialect of the Realtime API, by renaming at the edge.

``to_ga`` turns a beta client's message into the one that a GA client would have sent, ``from_ga``
turns a server message into what a beta client expects; everything between knows GA only. Names
and shapes are those of ``openai.types.beta.realtime``. What GA has and beta has no name for
(``conversation.item.done``, idle time-outs, images) does not reach a beta client.

``temperature`` is shown as the client set it and has no effect: GA has no such field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pipeline.realtime.beta_shapes import (
    TEMPERATURE,
    BetaProblem,
    beta_item,
    beta_paths,
    beta_response,
    beta_session,
    beta_transcription_session,
    ga_item,
    ga_response,
    ga_session,
    ga_transcription_session,
)
from pipeline.realtime.wire import MAX_COMMAS, MAX_EVENT_ID_CHARS

SUBPROTOCOL = "openai-beta.realtime-v1"
"""What browsers offer, since they cannot set a header."""

_HEADER, _HEADER_VALUE = "openai-beta", "realtime=v1"

_APPEND = '"input_audio_buffer.append"'
_HEAD_CHARS = 96
"""Clients write the type first, after an ``event_id`` at most."""

_TRANSLATED = (
    "session.update",
    "transcription_session.update",
    "conversation.item.create",
    "response.create",
)
"""Client events that differ; "session.update" is part of the second one's name."""

_TYPE = '{"type":"'
"""How each of our server messages begins (``wire.encode``)."""

_RENAMED = {
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
}
_SAME = frozenset(
    {
        "conversation.item.deleted",
        "conversation.item.truncated",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
        "conversation.item.input_audio_transcription.failed",
        "input_audio_buffer.committed",
        "input_audio_buffer.cleared",
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "response.content_part.added",
        "response.content_part.done",
        "response.function_call_arguments.delta",
        "rate_limits.updated",
        "reachy_voice.timeline",
        "reachy_voice.response.held",
        "reachy_voice.response.went_on",
    }
)

Event = dict[str, Any]


def wants_beta(headers: Mapping[str, str], subprotocols: Iterable[str]) -> bool:
    """Whether an upgrade request asks for the beta dialect."""
    given = ",".join(value for name, value in headers.items() if name.lower() == _HEADER)
    features = {feature.strip().lower() for feature in given.split(",")}
    return _HEADER_VALUE in features or SUBPROTOCOL in subprotocols


class BetaDialect:
    """The translator of one connection.

    ``new_id(prefix)`` makes unique ids of letters, digits and underscores.
    """

    def __init__(self, new_id: Callable[[str], str]) -> None:
        self._new_id = new_id
        self._conversation_id = new_id("conv")
        self._temperature: float = TEMPERATURE
        self._asked_temperature: float | None = None
        """Of the update that is on its way; it counts once that is accepted."""
        self._handlers: dict[str, Callable[[Event], list[Event]]] = {
            "session.created": self._session_created,
            "session.updated": self._session_updated,
            "conversation.item.added": self._item_created,
            "conversation.item.retrieved": self._with_item,
            "response.output_item.added": self._with_item,
            "response.output_item.done": self._with_item,
            "response.created": self._with_response,
            "response.done": self._with_response,
            "response.function_call_arguments.done": self._arguments_done,
            "error": self._error,
        }

    # --- from the client ---------------------------------------------------------------------

    def to_ga(self, text: str) -> str | list[str]:
        """The GA text of one client message, or what to reply to one that makes no sense.

        Whatever cannot be read comes back as it is: the GA side refuses it. Nothing is raised.
        Long messages may be translated in a thread, one at a time.
        """
        if _APPEND in text[:_HEAD_CHARS] or not any(kind in text for kind in _TRANSLATED):
            return text
        if text.count(",") > MAX_COMMAS:
            return text
        try:
            event = json.loads(text)
            if not isinstance(event, dict) or event.get("type") not in _TRANSLATED:
                return text
            return json.dumps(self._ga_event(event), separators=(",", ":"))
        except BetaProblem as problem:
            return [self._refusal(problem, event.get("event_id"))]
        except (ValueError, ArithmeticError, RecursionError):
            return text

    def _ga_event(self, event: Event) -> Event:
        match event["type"]:
            case "session.update":
                session, self._asked_temperature = ga_session(event.get("session"))
                return {**event, "session": session}
            case "transcription_session.update":
                session = ga_transcription_session(event.get("session"))
                return {**event, "type": "session.update", "session": session}
            case "conversation.item.create":
                return {**event, "item": ga_item(event.get("item"))}
            case _:
                if event.get("response") is None:
                    return event
                return {**event, "response": ga_response(event["response"])}

    def _refusal(self, problem: BetaProblem, event_id: object) -> str:
        named = isinstance(event_id, str) and len(event_id) <= MAX_EVENT_ID_CHARS
        error = {
            "type": "invalid_request_error",
            "code": problem.code,
            "message": problem.message,
            "param": problem.param,
            "event_id": event_id if named else None,
        }
        return _encode({"type": "error", "event_id": self._new_id("event"), "error": error})

    # --- to the client -----------------------------------------------------------------------

    def from_ga(self, text: str) -> list[str]:
        """The beta texts for one server message: none, one, or two."""
        kind = _type_of(text)
        if kind in _SAME:
            return [text]
        if (beta := _RENAMED.get(kind)) is not None:
            return [f"{_TYPE}{beta}{text[len(_TYPE) + len(kind) :]}"]
        handle = self._handlers.get(kind)
        if handle is None:
            return []
        return [_encode(event) for event in handle(json.loads(text))]

    def _session_created(self, event: Event) -> list[Event]:
        conversation = {"id": self._conversation_id, "object": "realtime.conversation"}
        created = {"type": "conversation.created", "event_id": self._new_id("event")}
        return [
            {**event, "session": beta_session(event["session"], self._temperature)},
            {**created, "conversation": conversation},
        ]

    def _session_updated(self, event: Event) -> list[Event]:
        session = event["session"]
        if session["type"] == "transcription":
            shown = beta_transcription_session(session)
            return [{**event, "type": "transcription_session.updated", "session": shown}]
        if self._asked_temperature is not None:
            self._temperature = self._asked_temperature
        return [{**event, "session": beta_session(session, self._temperature)}]

    def _item_created(self, event: Event) -> list[Event]:
        return self._with_item({**event, "type": "conversation.item.created"})

    def _with_item(self, event: Event) -> list[Event]:
        return [{**event, "item": beta_item(event["item"])}]

    def _with_response(self, event: Event) -> list[Event]:
        response = beta_response(event["response"], self._temperature)
        if response["conversation_id"] is not None:
            response["conversation_id"] = self._conversation_id
        return [{**event, "response": response}]

    def _arguments_done(self, event: Event) -> list[Event]:
        return [{name: value for name, value in event.items() if name != "name"}]

    def _error(self, event: Event) -> list[Event]:
        error = event["error"]
        said = {
            name: beta_paths(error[name])
            for name in ("param", "message")
            if isinstance(error.get(name), str)
        }
        return [{**event, "error": {**error, **said}}]


def _type_of(text: str) -> str:
    return text[len(_TYPE) : text.index('"', len(_TYPE))]


def _encode(event: Event) -> str:
    return json.dumps(event, separators=(",", ":"), allow_nan=False)
