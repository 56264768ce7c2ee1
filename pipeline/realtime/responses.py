"""One response on the wire: from ``response.created`` to ``response.done``, in the API's order.

Whatever the pipeline does, every part and item that was opened is closed, nothing follows an
item's end, and there is exactly one ``response.done`` for each ``response.created``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pipeline.chat import AudioPart, MessageItem, TextPart
from pipeline.engines import Usage
from pipeline.events import (
    ReplyAudio,
    ReplyFinished,
    ReplyItemFinished,
    ReplyItemStarted,
    ReplyStarted,
    ReplyText,
)
from pipeline.realtime.items import item_to_wire, items_to_wire
from pipeline.realtime.session_config import shown_format
from pipeline.realtime.wire import AudioDelta, pieces

Send = Callable[..., None]
"""``send(type, **fields)`` queues one server event."""


class OutputItem:
    """One message item being spoken or written."""

    def __init__(self, event: ReplyItemStarted, spoken: bool, in_conversation: bool) -> None:
        self.item = event.item
        self.output_index = event.output_index
        self.previous_item_id = event.previous_item_id
        self.text = ""
        self._spoken = spoken
        self._in_conversation = in_conversation
        self._response = {"response_id": event.reply_id, "output_index": event.output_index}
        self._part = {**self._response, "item_id": event.item.id, "content_index": 0}
        self._delta = AudioDelta(event.reply_id, event.item.id, event.output_index)

    def open(self, send: Send) -> None:
        empty = item_to_wire(replace(self.item, parts=()), "in_progress")
        send("response.output_item.added", **self._response, item=empty)
        if self._in_conversation:
            place = {"previous_item_id": self.previous_item_id}
            send("conversation.item.added", **place, item=empty)
        send("response.content_part.added", **self._part, part=self._shown_part())

    def write(self, text: str, send: Send) -> None:
        self.text += text
        kind = "output_audio_transcript" if self._spoken else "output_text"
        send(f"response.{kind}.delta", **self._part, delta=text)

    def speak(self, event: ReplyAudio, new_event_id: Callable[[], str]) -> Iterator[str]:
        """Messages, already encoded."""
        for pcm in pieces(event.pcm, event.rate):
            yield self._delta.encode(new_event_id(), pcm)

    def close(self, item: MessageItem, previous_item_id: str | None, send: Send) -> None:
        """``item`` as it now stands; the ``done`` events repeat what their deltas said."""
        if self._spoken:
            send("response.output_audio.done", **self._part)
            send("response.output_audio_transcript.done", **self._part, transcript=self.text)
        else:
            send("response.output_text.done", **self._part, text=self.text)
        send("response.content_part.done", **self._part, part=self._shown_part())
        shown = item_to_wire(item)
        if self._in_conversation:
            send("conversation.item.done", previous_item_id=previous_item_id, item=shown)
        send("response.output_item.done", **self._response, item=shown)

    def cut(self) -> MessageItem:
        """The item as far as it went, for a reply that ended without finishing it."""
        part = AudioPart(self.text) if self._spoken else TextPart(self.text)
        return replace(self.item, parts=(part,), status="incomplete")

    def _shown_part(self) -> dict[str, str]:
        if self._spoken:
            return {"type": "audio", "transcript": self.text}
        return {"type": "text", "text": self.text}


class Response:
    """One reply. ``voice`` is the name that the client knows."""

    def __init__(self, event: ReplyStarted, conversation_id: str, voice: str) -> None:
        self._in_conversation = event.in_conversation
        self._spoken = event.modality == "audio"
        self._open: dict[str, OutputItem] = {}
        limit = event.max_output_tokens
        self._fields: dict[str, Any] = {
            "object": "realtime.response",
            "id": event.reply_id,
            "conversation_id": conversation_id if event.in_conversation else None,
            "output_modalities": [event.modality],
            "max_output_tokens": "inf" if limit is None else limit,
            "audio": {"output": {"format": shown_format(event.rate), "voice": voice}},
            "metadata": None if event.metadata is None else dict(event.metadata),
        }

    def start(self, send: Send) -> None:
        begun: dict[str, Any] = {"status": "in_progress", "status_details": None, "output": []}
        send("response.created", response={**self._fields, **begun, "usage": None})

    def start_item(self, event: ReplyItemStarted, send: Send) -> None:
        item = OutputItem(event, self._spoken, self._in_conversation)
        self._open[event.item.id] = item
        item.open(send)

    def write(self, event: ReplyText, send: Send) -> None:
        if event.text and (item := self._open.get(event.item_id)):
            item.write(event.text, send)

    def speak(self, event: ReplyAudio, new_event_id: Callable[[], str]) -> Iterator[str]:
        item = self._open.get(event.item_id)
        return item.speak(event, new_event_id) if item else iter(())

    def finish_item(self, event: ReplyItemFinished, send: Send) -> None:
        if item := self._open.pop(event.item.id, None):
            item.close(event.item, event.previous_item_id, send)

    def finish(self, event: ReplyFinished, send: Send) -> None:
        for item in self._open.values():
            item.close(item.cut(), item.previous_item_id, send)
        self._open.clear()
        end = {
            "status": event.status,
            "status_details": _status_details(event),
            "usage": _usage(event.usage),
            "output": items_to_wire(event.items),
        }
        send("response.done", response={**self._fields, **end})


def _status_details(event: ReplyFinished) -> dict[str, Any] | None:
    """``resumed`` and ``shutdown`` are no reasons that the API knows: they are left out."""
    if event.status == "completed":
        return None
    details: dict[str, Any] = {"type": event.status}
    if event.reason in ("turn_detected", "client_cancelled", "max_output_tokens"):
        details["reason"] = event.reason
    if event.status == "failed":
        message = event.error or "The reply failed."
        details["error"] = {"type": "server_error", "code": "engine_error", "message": message}
    return details


def _usage(usage: Usage) -> Mapping[str, Any]:
    cached = {"text_tokens": usage.cached, "audio_tokens": 0, "image_tokens": 0}
    return {
        "total_tokens": usage.prompt + usage.generated,
        "input_tokens": usage.prompt,
        "output_tokens": usage.generated,
        "input_token_details": {
            "text_tokens": usage.prompt,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": usage.cached,
            "cached_tokens_details": cached,
        },
        "output_token_details": {"text_tokens": usage.generated, "audio_tokens": 0},
    }
