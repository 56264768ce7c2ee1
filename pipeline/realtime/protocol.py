"""The OpenAI Realtime API over a WebSocket, as a state machine without I/O.

``receive`` turns one client message into commands for the session, ``apply`` turns one pipeline
event into server messages, and ``messages_to_send`` hands those out. The conversation lives in
``pipeline.chat``; this holds the effective session and the responses that are open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from pipeline.commands import (
    AddItem,
    AppendAudio,
    CancelResponse,
    ClearAudio,
    Command,
    CommitAudio,
    Configure,
    CreateResponse,
    DeleteItem,
    ResponseOptions,
    SessionConfig,
    TruncateItem,
)
from pipeline.events import (
    Event,
    InputCleared,
    InputCommitted,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemTruncated,
    Refused,
    ReplyAudio,
    ReplyFinished,
    ReplyItemFinished,
    ReplyItemStarted,
    ReplyStarted,
    ReplyText,
    SpeechStarted,
    SpeechStopped,
    Timeline,
    TranscriptFailed,
    TranscriptReady,
)
from pipeline.realtime import schema, wire
from pipeline.realtime.items import item_from_wire, item_to_wire
from pipeline.realtime.response_options import response_options
from pipeline.realtime.responses import Response
from pipeline.realtime.session_config import EffectiveSession, SessionDefaults
from pipeline.realtime.wire import ClientMessage, WireError

_TRANSCRIPTION = "conversation.item.input_audio_transcription"


class RealtimeConnection:
    """One client's connection.

    ``new_id(prefix)`` makes unique ids of letters, digits and underscores. ``now`` is the wall
    clock in seconds. ``timings`` adds the event ``reachy_voice.timeline``, which strict clients
    would refuse.
    """

    def __init__(
        self,
        defaults: SessionDefaults,
        new_id: Callable[[str], str],
        now: Callable[[], float],
        timings: bool = False,
    ) -> None:
        self._new_id = new_id
        self._timings = timings
        self._outbox: list[str] = []
        self._session = EffectiveSession(defaults, new_id("sess"), now())
        self._conversation_id = new_id("conv")
        self._responses: dict[str, Response] = {}
        self._handlers: dict[str, Callable[[ClientMessage], list[Command]]] = {
            wire.APPEND: self._append,
            "input_audio_buffer.commit": self._commit,
            "input_audio_buffer.clear": self._clear,
            "session.update": self._update_session,
            "conversation.item.create": self._create_item,
            "conversation.item.delete": self._delete_item,
            "conversation.item.truncate": self._truncate_item,
            "conversation.item.retrieve": self._retrieve_item,
            "response.create": self._create_response,
            "response.cancel": self._cancel_response,
            "output_audio_buffer.clear": self._clear_output,
        }
        self._send("session.created", session=self._session.shown())

    @property
    def config(self) -> SessionConfig:
        """The effective settings, for the session to begin with."""
        return self._session.config()

    def messages_to_send(self) -> list[str]:
        """JSON texts in their order; each is handed out once."""
        messages, self._outbox = self._outbox, []
        return messages

    # --- from the client ---------------------------------------------------------------------

    def receive(self, text: str | bytes) -> list[Command]:
        """One frame. A problem becomes one ``error`` event; nothing is raised."""
        try:
            message = wire.parse(text)
        except WireError as error:
            self.refuse(error)
            return []
        return self.receive_parsed(message)

    def receive_parsed(self, message: ClientMessage) -> list[Command]:
        """``receive`` for a frame that ``wire.parse`` has read elsewhere."""
        try:
            handle = self._handlers.get(message.type)
            if handle is None:
                raise self._unknown_type(message.type)
            return handle(message)
        except WireError as error:
            error.event_id = message.event_id
            self.refuse(error)
            return []

    def refuse(self, error: WireError) -> None:
        """Queue an ``error`` event."""
        self._error(error.code, error.message, error.param, error.event_id)

    def _append(self, message: ClientMessage) -> list[Command]:
        return [AppendAudio(message.pcm, self._session.input_rate)] if len(message.pcm) else []

    def _commit(self, message: ClientMessage) -> list[Command]:
        schema.read(schema.ClientEvent, message.body)
        return [CommitAudio(message.event_id)]

    def _clear(self, message: ClientMessage) -> list[Command]:
        schema.read(schema.ClientEvent, message.body)
        return [ClearAudio(message.event_id)]

    def _update_session(self, message: ClientMessage) -> list[Command]:
        self._session.update(schema.read(schema.SessionUpdate, message.body).session)
        self._send("session.updated", session=self._session.shown())
        return [Configure(self._session.config())]

    def _create_item(self, message: ClientMessage) -> list[Command]:
        event = schema.read(schema.ItemCreate, message.body)
        item = item_from_wire(event.item, self._new_id, self._session.input_rate, "item")
        return [AddItem(item, event.previous_item_id, message.event_id)]

    def _delete_item(self, message: ClientMessage) -> list[Command]:
        event = schema.read(schema.ItemDelete, message.body)
        return [DeleteItem(event.item_id, message.event_id)]

    def _truncate_item(self, message: ClientMessage) -> list[Command]:
        event = schema.read(schema.ItemTruncate, message.body)
        return [
            TruncateItem(event.item_id, event.content_index, event.audio_end_ms, message.event_id)
        ]

    def _retrieve_item(self, message: ClientMessage) -> list[Command]:
        # This code, because clients that match errors take it as harmless.
        raise WireError(
            "item_retrieve_invalid_item_id",
            "Retrieving items is not supported yet.",
            param="item_id",
        )

    def _create_response(self, message: ClientMessage) -> list[Command]:
        given = schema.read(schema.ResponseCreate, message.body).response
        options = response_options(given, self._session, self._new_id) if given else None
        return [CreateResponse(options or ResponseOptions(), message.event_id)]

    def _cancel_response(self, message: ClientMessage) -> list[Command]:
        event = schema.read(schema.ResponseCancel, message.body)
        return [CancelResponse(event.response_id, message.event_id)]

    def _clear_output(self, message: ClientMessage) -> list[Command]:
        raise WireError(
            "invalid_value",
            "'output_audio_buffer.clear' is for WebRTC; over a WebSocket, use 'response.cancel' "
            "and 'conversation.item.truncate'.",
            param="type",
        )

    def _unknown_type(self, kind: str) -> WireError:
        known = list(self._handlers)
        return WireError(
            "invalid_value",
            f"Invalid value at 'type': there is no client event '{kind[:64]}'."
            f"{schema.nearest(kind, known)} Supported are: {', '.join(known)}.",
            param="type",
        )

    # --- from the pipeline -------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Queue what the client must hear of ``event``; internal events say nothing."""
        match event:
            case ReplyAudio():
                if response := self._responses.get(event.reply_id):
                    self._outbox.extend(response.speak(event, self._new_event_id))
            case ReplyText():
                if response := self._responses.get(event.reply_id):
                    response.write(event, self._send)
            case ReplyStarted() | ReplyItemStarted() | ReplyItemFinished() | ReplyFinished():
                self._apply_reply(event)
            case Timeline():
                if self._timings:
                    self._send_timeline(event)
            case Refused():
                self._error(event.code, event.message, event.param, event.event_id)
            case TranscriptReady() | TranscriptFailed():
                if self._session.transcribes:
                    self._apply_transcript(event)
            case ItemAdded() | ItemDone() | ItemDeleted() | ItemTruncated():
                self._apply_item(event)
            case _:
                self._apply_input(event)

    def _apply_reply(
        self, event: ReplyStarted | ReplyItemStarted | ReplyItemFinished | ReplyFinished
    ) -> None:
        if isinstance(event, ReplyStarted):
            voice = self._session.shown_voice(event.voice)
            started = Response(event, self._conversation_id, voice)
            self._responses[event.reply_id] = started
            started.start(self._send)
        elif response := self._responses.get(event.reply_id):
            match event:
                case ReplyItemStarted():
                    response.start_item(event, self._send)
                case ReplyItemFinished():
                    response.finish_item(event, self._send)
                case ReplyFinished():
                    del self._responses[event.reply_id]
                    response.finish(event, self._send)

    def _apply_transcript(self, event: TranscriptReady | TranscriptFailed) -> None:
        where = {"item_id": event.item_id, "content_index": 0}
        if isinstance(event, TranscriptFailed):
            error = {
                "type": "server_error",
                "code": "transcription_failed",
                "message": event.message,
                "param": None,
            }
            self._send(f"{_TRANSCRIPTION}.failed", **where, error=error)
            return
        if event.text:
            self._send(f"{_TRANSCRIPTION}.delta", **where, delta=event.text)
        usage = {"type": "duration", "seconds": event.seconds}
        self._send(f"{_TRANSCRIPTION}.completed", **where, transcript=event.text, usage=usage)

    def _apply_item(self, event: ItemAdded | ItemDone | ItemDeleted | ItemTruncated) -> None:
        match event:
            case ItemAdded() | ItemDone():
                kind = "added" if isinstance(event, ItemAdded) else "done"
                place = {"previous_item_id": event.previous_item_id}
                self._send(f"conversation.item.{kind}", **place, item=item_to_wire(event.item))
            case ItemDeleted():
                self._send("conversation.item.deleted", item_id=event.item_id)
            case ItemTruncated():
                self._send("conversation.item.truncated", **asdict(event))

    def _apply_input(self, event: Event) -> None:
        match event:
            case SpeechStarted():
                when = {"audio_start_ms": event.audio_ms, "item_id": event.item_id}
                self._send("input_audio_buffer.speech_started", **when)
            case SpeechStopped():
                when = {"audio_end_ms": event.audio_ms, "item_id": event.item_id}
                self._send("input_audio_buffer.speech_stopped", **when)
            case InputCommitted():
                self._send("input_audio_buffer.committed", **asdict(event))
            case InputCleared():
                self._send("input_audio_buffer.cleared")

    # --- outbox ------------------------------------------------------------------------------

    def _send(self, kind: str, **fields: Any) -> None:
        message = {"type": kind, "event_id": self._new_event_id(), **fields}
        self._outbox.append(wire.encode(message))

    def _new_event_id(self) -> str:
        return self._new_id("event")

    def _send_timeline(self, event: Timeline) -> None:
        moments: Mapping[str, Any] = asdict(event)
        stages = {f"{stage}_ms": at for stage, at in moments.items() if stage != "reply_id"}
        self._send("reachy_voice.timeline", response_id=event.reply_id, **stages)

    def _error(self, code: str, message: str, param: str | None, event_id: str | None) -> None:
        error = {
            "type": "invalid_request_error",
            "code": code,
            "message": message,
            "param": param,
            "event_id": event_id,
        }
        self._send("error", error=error)
