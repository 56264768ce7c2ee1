"""A conversation with a server on another machine, over the Realtime API.

Known server messages become the events that a local session would publish; commands are sent as any
client's messages. A lost connection is made again, and our own server resumes the conversation.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from app.talk.conversation import Connected, Disconnected
from app.talk.realtime_client import RATE, NoServer, TurnFailed, dial
from pipeline.audio import LISTEN_RATE, AudioFormat, Resampler, pcm_from_bytes, pcm_to_bytes
from pipeline.bus import Published
from pipeline.commands import (
    AppendAudio,
    CancelResponse,
    ClearAudio,
    Command,
    CommitAudio,
    CreateResponse,
    TruncateItem,
    WakeUp,
)
from pipeline.events import (
    Event,
    FellAsleep,
    Refused,
    ReplyAudio,
    ReplyFinished,
    ReplyHeld,
    ReplyStarted,
    ReplyText,
    ReplyWentOn,
    SpeechStarted,
    SpeechStopped,
    Timeline,
    TranscriptPartial,
    TranscriptReady,
    Woke,
)
from pipeline.hearing.card import HalfDuplex
from pipeline.messages import Usage

log = logging.getLogger("reachy_voice.talk")

RETRIES_S = (1.0, 2.0, 5.0)
"""Waits between attempts to reconnect; the last one repeats."""
_UNREAD = 1024
_CLOSE_S = 1.0
"""Time-out for a server to answer our close frame."""
_STAGES = ("endpoint", "transcript", "first_token", "first_clause", "first_audio")


class RemoteConversation:
    def __init__(self, url: str, push_to_talk: bool = False, half_duplex: bool = False) -> None:
        """``half_duplex``: mute the microphone while the loudspeaker here plays."""
        self._url = url
        self._half_duplex = HalfDuplex() if half_duplex else None
        self._attempt, self._has_connected = 0, False
        self._push_to_talk = push_to_talk
        self._socket: ClientConnection | None = None
        self._resampler = Resampler(LISTEN_RATE, RATE)
        self._events: asyncio.Queue[Published | Connected | Disconnected] = asyncio.Queue(_UNREAD)

    async def run(self) -> None:
        """Raises ``NoServer``, or ``TurnFailed`` if the server refuses; both only on the first
        connection."""
        while True:
            try:
                async with dial(self._url, holds=True) as socket:
                    try:
                        await self._converse(socket)
                    except asyncio.CancelledError:
                        await _leave(socket)
                        raise
            except (NoServer, TurnFailed) as error:
                if not self._has_connected:
                    raise
                why = error.why
            except (ConnectionClosed, OSError) as error:
                why = str(error)
            finally:
                self._socket = None
            retry_s = RETRIES_S[min(self._attempt, len(RETRIES_S) - 1)]
            self._attempt += 1
            await self._events.put(Disconnected(why))
            await asyncio.sleep(retry_s)

    async def submit(self, command: Command) -> None:
        socket = self._socket
        if socket is None:
            return
        for message in self._messages(command):
            try:
                await socket.send(json.dumps(message))
            except ConnectionClosed:
                return  # ``run`` notices

    async def events(self) -> AsyncIterator[Published | Connected | Disconnected]:
        while True:
            yield await self._events.get()

    # -- out

    def _messages(self, command: Command) -> Iterator[dict[str, Any]]:
        match command:
            case AppendAudio():
                if command.rate != self._resampler.from_rate:
                    self._resampler = Resampler(command.rate, RATE)
                sound = command.pcm
                if self._half_duplex:
                    sound = self._half_duplex.mute(sound, command.reference)
                if len(pcm := self._resampler.feed(sound)):
                    audio = base64.b64encode(pcm_to_bytes(pcm)).decode()
                    yield {"type": "input_audio_buffer.append", "audio": audio}
            case ClearAudio():
                yield {"type": "input_audio_buffer.clear"}
            case WakeUp():
                yield {"type": "reachy_voice.wake"}
            case CommitAudio():
                yield {"type": "input_audio_buffer.commit"}
            case CreateResponse():
                yield {"type": "response.create"}
            case CancelResponse():
                yield {"type": "response.cancel"} | _event_id(command)
            case TruncateItem():
                yield {
                    "type": "conversation.item.truncate",
                    "item_id": command.item_id,
                    "content_index": command.content_index,
                    "audio_end_ms": command.audio_end_ms,
                } | _event_id(command)

    def _session(self) -> dict[str, Any]:
        input: dict[str, Any] = {"transcription": {"model": "default"}}
        if self._push_to_talk:
            input["turn_detection"] = None
        return {"type": "realtime", "audio": {"input": input}}

    # -- in

    async def _converse(self, socket: ClientConnection) -> None:
        await socket.send(json.dumps({"type": "session.update", "session": self._session()}))
        loop = asyncio.get_running_loop()
        async for text in socket:
            try:
                message: dict[str, Any] = json.loads(text)
                kind, events = message["type"], list(events_of(message))
            except (AttributeError, LookupError, TypeError, ValueError):
                log.warning("the server sent a message that is not part of the Realtime API")
                continue
            match kind:
                case "session.updated" if self._socket is None:
                    self._socket = socket
                    self._attempt, self._has_connected = 0, True
                    await self._events.put(Connected())
                case "error" if self._socket is None:
                    raise TurnFailed("The server refused", why=message["error"]["message"])
                case _:
                    for event in events:
                        await self._events.put(Published(loop.time(), event))
        raise ConnectionResetError("the server has closed the connection")


def _event_id(command: CancelResponse | TruncateItem) -> dict[str, str]:
    return {} if command.event_id is None else {"event_id": command.event_id}


async def _leave(socket: ClientConnection) -> None:
    """Close the connection without waiting for a server that hangs."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await socket.close()
    socket.transport.abort()


def events_of(message: dict[str, Any]) -> Iterator[Event]:
    """The events that a session would publish for a server message."""
    match message["type"]:
        case "input_audio_buffer.speech_started":
            start_ms, from_deg = message["audio_start_ms"], message.get("direction_deg")
            yield SpeechStarted(message["item_id"], start_ms, from_deg)
        case "input_audio_buffer.speech_stopped":
            end_ms, from_deg = message["audio_end_ms"], message.get("direction_deg")
            yield SpeechStopped(message["item_id"], end_ms, from_deg)
        case "conversation.item.input_audio_transcription.delta":
            yield TranscriptPartial(message["item_id"], message["delta"])
        case "conversation.item.input_audio_transcription.completed":
            yield TranscriptReady(message["item_id"], message["transcript"], 0.0)
        case "response.created":
            reply_id = message["response"]["id"]
            yield ReplyStarted(reply_id, "audio", True, "", AudioFormat(rate=RATE), None, None)
        case "response.output_audio_transcript.delta":
            ids = message["response_id"], message["item_id"], message["output_index"]
            yield ReplyText(*ids, message["delta"])
        case "response.output_audio.delta":
            ids = message["response_id"], message["item_id"], message["output_index"]
            yield ReplyAudio(*ids, pcm_from_bytes(base64.b64decode(message["delta"])), RATE)
        case "response.done":
            yield _reply_finished(message["response"])
        case "reachy_voice.response.held":
            yield ReplyHeld(message["response_id"])
        case "reachy_voice.response.went_on":
            yield ReplyWentOn(message["response_id"])
        case "reachy_voice.asleep":
            yield FellAsleep(message["reason"])
        case "reachy_voice.awake":
            yield Woke(message["reason"])
        case "reachy_voice.timeline":
            stages = {stage: message.get(f"{stage}_ms") for stage in _STAGES}
            yield Timeline(message["response_id"], **stages)
        case "error":
            error = message["error"]
            yield Refused(error.get("event_id"), error.get("code") or "", error["message"])


def _reply_finished(response: dict[str, Any]) -> ReplyFinished:
    error = ((response.get("status_details") or {}).get("error") or {}).get("message")
    return ReplyFinished(response["id"], response["status"], (), Usage(), error=error)
