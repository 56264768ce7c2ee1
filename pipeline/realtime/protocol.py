"""The OpenAI Realtime API over a WebSocket, as a state machine without I/O.

``receive`` turns one client message into commands for the session, ``apply`` turns one pipeline
event into server messages, and ``messages_to_send`` returns those. The conversation lives in
``pipeline.conversation.chat``; this holds the effective session and the open responses.

Beyond the API:

- PCM may also have 16,000 or 8,000 Hz, each way; ``rate: null`` means 16,000.
- ``conversation.item.retrieved`` is sent several times for one request if the audio is too long for
  a frame of 1 MiB: each event has the item with its whole transcript and the next piece of audio.
  An answer's audio ends where it was cut. Images too large for a frame are left out.
- ``transcription.delay``, with any value, asks for partial transcripts; a transcription session
  always sends them.
- On request only, the events ``reachy_voice.timeline``, ``reachy_voice.response.held`` and
  ``.went_on``, ``reachy_voice.asleep`` and ``.awake``, ``reachy_voice.speaker`` (whose voice an
  item has). A client wakes the robot with ``reachy_voice.wake``.
- On request only, the figures of a turn record (``pipeline.turn_record``) in the metadata of
  ``response.done``: for a response whose own metadata says ``reachy_voice.turn_record: "true"``, or
  for a whole connection.
- The stages of an answer to speech, as ``speech_to_speech.turn_latency`` in the same metadata.
- A response that continues one interrupted by mistake names that one in its metadata, as
  ``reachy_voice.continues``.
- Voices and models are never refused by name, nor the limit of output tokens by size.
- ``turn_detection`` may leave out ``type``; the current one is kept.
- Items and sessions of more than 600,000 characters (without media) are refused: they would have
  to be sent back, in frames that no default client accepts. So are messages of more than 20,000
  JSON values.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
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
    RetrieveItem,
    SessionConfig,
    TruncateItem,
    WakeUp,
)
from pipeline.events import (
    Event,
    FellAsleep,
    IdleTimeout,
    InputCleared,
    InputCommitted,
    ItemAdded,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    OutputBuffer,
    Refused,
    ReplyArguments,
    ReplyAudio,
    ReplyFinished,
    ReplyHeld,
    ReplyItemFinished,
    ReplyItemStarted,
    ReplyStarted,
    ReplyText,
    ReplyWentOn,
    ServerCallBegun,
    ServerCallEnded,
    SpeechRejected,
    SpeechStarted,
    SpeechStopped,
    Timeline,
    ToolListing,
    TranscriptFailed,
    TranscriptPartial,
    TranscriptReady,
    Woke,
)
from pipeline.realtime import schema, wire
from pipeline.realtime.items import item_from_wire, item_to_wire
from pipeline.realtime.response_options import response_options
from pipeline.realtime.responses import ResponseEvents, ServerCallStream
from pipeline.realtime.retrieval import retrieved_items
from pipeline.realtime.session_config import EffectiveSession, SessionDefaults
from pipeline.realtime.shapes import nearest, read
from pipeline.realtime.tool_servers import show_listing
from pipeline.realtime.transcripts import Transcripts
from pipeline.realtime.wire import ClientMessage, WireError, invalid, samples_of
from pipeline.turn_record import TurnRecord

EXTRAS = frozenset({"timings", "turn_records", "holds", "sleep", "speakers"})
"""What a client may ask for, since strict ones would refuse it: ``reachy_voice.timeline``; the
figures of its turn record in every ``response.done``; the events when an answer is held because the
user may be speaking over it; those when the robot falls asleep or wakes; ``reachy_voice.speaker``.
"""

INTERNAL = "internal_error"
"""The code of errors whose type is ``server_error``."""

logger = logging.getLogger("reachy_voice.realtime")

_NOT_ON_A_SOCKET = "output_audio_buffer.clear"
"""Only valid over WebRTC; refused with a hint."""

_PLAIN: Mapping[str, tuple[type[schema.ClientEvent], Callable[[Any, str | None], Command]]] = {
    "input_audio_buffer.commit": (schema.ClientEvent, lambda event, id: CommitAudio(id)),
    "input_audio_buffer.clear": (schema.ClientEvent, lambda event, id: ClearAudio(id)),
    "reachy_voice.wake": (schema.ClientEvent, lambda event, id: WakeUp()),
    "conversation.item.delete": (
        schema.ItemNamed,
        lambda event, id: DeleteItem(event.item_id, id),
    ),
    "conversation.item.retrieve": (
        schema.ItemNamed,
        lambda event, id: RetrieveItem(event.item_id, id),
    ),
    "conversation.item.truncate": (
        schema.ItemTruncate,
        lambda event, id: TruncateItem(event.item_id, event.content_index, event.audio_end_ms, id),
    ),
    "response.cancel": (
        schema.ResponseCancel,
        lambda event, id: CancelResponse(event.response_id, id),
    ),
}
"""Client events that map directly to a command: shape and command."""


class RealtimeConnection:
    def __init__(
        self,
        defaults: SessionDefaults,
        new_id: Callable[[str], str],
        now: Callable[[], float],
        extras: AbstractSet[str] = frozenset(),
        on_error: Callable[[str], None] = lambda code: None,
        sends_audio: bool = True,
    ) -> None:
        """``now`` is the wall clock in seconds. ``extras``: of ``EXTRAS``."""
        self._new_id = new_id
        """``new_id(prefix)`` makes unique ids of letters, digits and underscores."""
        self._extras = extras
        self._outbox: list[str] = []
        self._session = EffectiveSession(defaults, new_id("sess"), now())
        self._conversation_id = new_id("conv")
        self._on_error = on_error
        """Gets the code of each ``error`` event."""
        self._sends_audio = sends_audio
        """Whether retrieved items include their audio."""
        self._responses: dict[str, ResponseEvents] = {}
        self._server_calls: dict[str, ServerCallStream] = {}
        """Calls of tool servers that are not over."""
        self._transcripts = Transcripts(self._send)
        self._handlers: dict[str, Callable[[ClientMessage], list[Command]]] = {
            wire.APPEND: self._append,
            "session.update": self._update_session,
            "conversation.item.create": self._create_item,
            "response.create": self._create_response,
        }
        self._send("session.created", session=self._session.shown())

    def introduction(self) -> str:
        """``session.created`` with the current settings, for a client that joins later."""
        return self._encoded("session.created", session=self._session.shown())

    @property
    def config(self) -> SessionConfig:
        """The effective settings, with which the session starts."""
        return self._session.config()

    def messages_to_send(self) -> list[str]:
        """JSON texts in order; each is returned once."""
        messages, self._outbox = self._outbox, []
        return messages

    # --- from the client ---------------------------------------------------------------------

    def configure(self, session: Mapping[str, Any]) -> list[Command]:
        """Apply these fields like a ``session.update``."""
        update = wire.encode({"type": "session.update", "session": session})
        return self.receive(wire.parse(update))

    def receive(self, message: ClientMessage) -> list[Command]:
        """Take one message. A problem becomes one ``error`` event; nothing is raised."""
        queued = len(self._outbox)
        try:
            return self._handle(message)
        except WireError as error:
            problem = error
        except Exception as error:
            problem = _internal_error(message, error)
        del self._outbox[queued:]
        problem.event_id = message.event_id
        self.refuse(problem)
        return []

    def _handle(self, message: ClientMessage) -> list[Command]:
        if handle := self._handlers.get(message.type):
            return handle(message)
        if message.type in _PLAIN:
            shape, command = _PLAIN[message.type]
            return [command(read(shape, message.body), message.event_id)]
        if message.type == _NOT_ON_A_SOCKET:
            why = f"'{_NOT_ON_A_SOCKET}' is for WebRTC; over a WebSocket, use "
            raise invalid("type", f"{why}'response.cancel' and 'conversation.item.truncate'")
        known = sorted([*self._handlers, *_PLAIN])
        raise WireError(
            "invalid_value",
            f"Invalid value at 'type': there is no client event '{message.type[:64]}'."
            f"{nearest(message.type, known)} Supported are: {', '.join(known)}.",
            param="type",
        )

    def refuse(self, error: WireError) -> None:
        """Queue an ``error`` event."""
        self._error(error.code, error.message, error.param, error.event_id)

    def _append(self, message: ClientMessage) -> list[Command]:
        format = self._session.input_format
        pcm = samples_of(message.audio, format, "audio")
        return [AppendAudio(pcm, format.rate, message.event_id)] if len(pcm) else []

    def _update_session(self, message: ClientMessage) -> list[Command]:
        self._session.update(read(schema.SessionUpdate, message.body).session)
        self._send("session.updated", session=self._session.shown())
        return [Configure(self._session.config())]

    def _create_item(self, message: ClientMessage) -> list[Command]:
        event = read(schema.ItemCreate, message.body)
        item = item_from_wire(event.item, self._new_id, self._session.input_format, "item")
        return [AddItem(item, event.previous_item_id, message.event_id)]

    def _create_response(self, message: ClientMessage) -> list[Command]:
        given = read(schema.ResponseCreate, message.body).response
        options = response_options(given, self._session, self._new_id)
        return [CreateResponse(options, message.event_id)]

    # --- from the pipeline -------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Queue the server messages for ``event``; an internal event has none."""
        match event:
            case ReplyAudio():
                if response := self._responses.get(event.reply_id):
                    response.speak(event)
            case ReplyText() | ReplyArguments():
                if response := self._responses.get(event.reply_id):
                    response.write(event)
            case ReplyStarted() | ReplyItemStarted() | ReplyItemFinished() | ReplyFinished():
                self._apply_reply(event)
            case TurnRecord():
                if response := self._responses.get(event.reply_id or ""):
                    response.note(event)
            case Timeline():
                if "timings" in self._extras:
                    self._send_timeline(event)
            case ReplyHeld() | ReplyWentOn():
                if "holds" in self._extras:
                    what = "held" if isinstance(event, ReplyHeld) else "went_on"
                    self._send(f"reachy_voice.response.{what}", response_id=event.reply_id)
            case Woke() | FellAsleep():
                if "sleep" in self._extras:
                    what = "awake" if isinstance(event, Woke) else "asleep"
                    self._send(f"reachy_voice.{what}", reason=event.why)
            case OutputBuffer():
                self._send(f"output_audio_buffer.{event.state}", response_id=event.reply_id)
            case Refused():
                self._error(event.code, event.message, event.param, event.event_id)
            case TranscriptPartial() | TranscriptReady() | TranscriptFailed():
                if self._session.transcribes:
                    self._transcripts.tell(event)
                if "speakers" in self._extras and isinstance(event, TranscriptReady):
                    self._tell_speaker(event)
            case ItemAdded() | ItemDeleted() | ItemRetrieved() | ItemTruncated():
                self._apply_item(event)
            case ToolListing():
                show_listing(event, self._send)
            case ServerCallBegun() | ServerCallEnded():
                self._apply_server_call(event)
            case SpeechRejected():
                self._transcripts.forget(event.item_id)
            case _:
                self._apply_input(event)

    def _apply_reply(
        self, event: ReplyStarted | ReplyItemStarted | ReplyItemFinished | ReplyFinished
    ) -> None:
        if isinstance(event, ReplyStarted):
            if event.reply_id in self._responses:
                return
            voice = self._session.shown_voice(event.voice)
            self._responses[event.reply_id] = ResponseEvents(
                event,
                self._conversation_id,
                voice,
                self._send,
                self._server_calls,
                tells_record="turn_records" in self._extras,
            )
        elif response := self._responses.get(event.reply_id):
            match event:
                case ReplyItemStarted():
                    response.start_item(event)
                case ReplyItemFinished():
                    response.finish_item(event)
                case ReplyFinished():
                    del self._responses[event.reply_id]
                    response.finish(event)
                    self._send("rate_limits.updated", rate_limits=[])

    def _apply_server_call(self, event: ServerCallBegun | ServerCallEnded) -> None:
        if isinstance(event, ServerCallBegun):
            if call := self._server_calls.get(event.item_id):
                call.begin()
        elif call := self._server_calls.pop(event.item.id, None):
            call.end(event.item)
            if response := self._responses.get(call.response_id):
                response.settle(event.item)

    def _apply_item(self, event: ItemAdded | ItemDeleted | ItemRetrieved | ItemTruncated) -> None:
        match event:
            case ItemAdded(hidden=True):
                pass
            case ItemAdded():
                for kind in ("added", "done"):
                    place = {"previous_item_id": event.previous_item_id}
                    self._send(f"conversation.item.{kind}", **place, item=item_to_wire(event.item))
            case ItemDeleted():
                self._send("conversation.item.deleted", item_id=event.item_id)
            case ItemRetrieved():
                formats = (self._session.input_format, self._session.output_format)
                whole = retrieved_items(event.item, *formats)
                for item in whole if self._sends_audio else [item_to_wire(event.item)]:
                    self._send("conversation.item.retrieved", item=item)
            case ItemTruncated():
                self._send("conversation.item.truncated", **asdict(event))

    def _apply_input(self, event: Event) -> None:
        match event:
            case SpeechStarted():
                start: dict[str, Any] = {"audio_start_ms": event.audio_ms, "item_id": event.item_id}
                self._send("input_audio_buffer.speech_started", **start, **_from_where(event))
            case SpeechStopped():
                end: dict[str, Any] = {"audio_end_ms": event.audio_ms, "item_id": event.item_id}
                self._send("input_audio_buffer.speech_stopped", **end, **_from_where(event))
            case InputCommitted():
                self._send("input_audio_buffer.committed", **asdict(event))
            case InputCleared():
                self._send("input_audio_buffer.cleared")
            case IdleTimeout():
                self._send("input_audio_buffer.timeout_triggered", **asdict(event))

    # --- outbox ------------------------------------------------------------------------------

    def _encoded(self, kind: str, /, **fields: Any) -> str:
        return wire.encode({"type": kind, "event_id": self._new_id("event"), **fields})

    def _send(self, kind: str, /, **fields: Any) -> None:
        self._outbox.append(self._encoded(kind, **fields))

    def _send_timeline(self, event: Timeline) -> None:
        moments: Mapping[str, Any] = asdict(event)
        stages = {f"{stage}_ms": at for stage, at in moments.items() if stage != "reply_id"}
        self._send("reachy_voice.timeline", response_id=event.reply_id, **stages)

    def _tell_speaker(self, event: TranscriptReady) -> None:
        if event.speaker is not None:
            name = event.speaker or None
            self._send("reachy_voice.speaker", item_id=event.item_id, name=name)

    def _error(self, code: str, message: str, param: str | None, event_id: str | None) -> None:
        error = {
            "type": "server_error" if code == INTERNAL else "invalid_request_error",
            "code": code,
            "message": message,
            "param": param,
            "event_id": event_id,
        }
        self._send("error", error=error)
        self._on_error(code)


def _from_where(event: SpeechStarted | SpeechStopped) -> dict[str, float]:
    return {} if event.direction_deg is None else {"direction_deg": event.direction_deg}


def _internal_error(message: ClientMessage, error: Exception) -> WireError:
    """The error for an unexpected exception, which is logged without its text, as that may repeat
    the client's words."""
    where = "".join(traceback.format_tb(error.__traceback__))
    logger.error("%s failed: %s\n%s", message.type, type(error).__name__, where)
    return WireError(INTERNAL, f"'{message.type}' failed here. See the server's log.")
