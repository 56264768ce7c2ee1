"""One response on the wire: from ``response.created`` to ``response.done``, in the API's order.

Whatever the pipeline does, every part and item that was opened is closed, nothing follows an
item's end, and there is exactly one ``response.done`` for each ``response.created``. Its output is
what the items' ``done`` events said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pipeline.events import (
    ReplyArguments,
    ReplyAudio,
    ReplyFinished,
    ReplyItemFinished,
    ReplyItemStarted,
    ReplyStarted,
    ReplyText,
)
from pipeline.items import MessageItem
from pipeline.messages import Usage
from pipeline.realtime.formats import shown_format
from pipeline.realtime.output_items import CallStream, MessageStream
from pipeline.realtime.wire import Send
from pipeline.turn_record import MAX_METADATA_PAIRS, WANTED, TurnRecord, as_metadata


class Response:
    """One reply. ``voice`` is the name that the client knows. ``tells_record``: ``response.done``
    has the figures of its turn record among its metadata, where the client's own leave room."""

    def __init__(
        self, event: ReplyStarted, conversation_id: str, voice: str, *, tells_record: bool = False
    ) -> None:
        self._in_conversation = event.in_conversation
        self._spoken = event.format if event.modality == "audio" else None
        self._open: dict[str, MessageStream | CallStream] = {}
        self._done: dict[str, tuple[int, dict[str, Any]]] = {}
        self._tells_record = tells_record or (event.metadata or {}).get(WANTED) == "true"
        limit = event.max_output_tokens
        self._fields: dict[str, Any] = {
            "object": "realtime.response",
            "id": event.reply_id,
            "conversation_id": conversation_id if event.in_conversation else None,
            "output_modalities": [event.modality],
            "max_output_tokens": "inf" if limit is None else limit,
            "audio": {"output": {"format": shown_format(event.format), "voice": voice}},
            "metadata": _metadata(event),
        }

    def start(self, send: Send) -> None:
        begun: dict[str, Any] = {"status": "in_progress", "status_details": None, "output": []}
        send("response.created", response={**self._fields, **begun, "usage": None})

    def start_item(self, event: ReplyItemStarted, send: Send) -> None:
        item = event.item
        if item.id in self._open or item.id in self._done:
            return
        stream: MessageStream | CallStream
        if isinstance(item, MessageItem):
            stream = MessageStream(event, item, self._in_conversation, self._spoken)
        else:
            stream = CallStream(event, item, self._in_conversation)
        self._open[item.id] = stream
        stream.open(send)

    def write(self, event: ReplyText | ReplyArguments, send: Send) -> None:
        stream = self._open.get(event.item_id)
        kind = MessageStream if isinstance(event, ReplyText) else CallStream
        if event.text and isinstance(stream, kind):
            stream.write(event.text, send)

    def speak(self, event: ReplyAudio, new_event_id: Callable[[], str]) -> Iterator[str]:
        stream = self._open.get(event.item_id)
        return stream.speak(event, new_event_id) if isinstance(stream, MessageStream) else iter(())

    def finish_item(self, event: ReplyItemFinished, send: Send) -> None:
        if stream := self._open.pop(event.item.id, None):
            shown = stream.close(event.item, event.previous_item_id, send)
            self._done[event.item.id] = (stream.output_index, shown)

    def note(self, record: TurnRecord) -> None:
        """What is known of its turn; comes before its end."""
        if self._tells_record:
            given = self._fields["metadata"] or {}
            new = [pair for pair in as_metadata(record).items() if pair[0] not in given]
            self._fields["metadata"] = given | dict(new[: MAX_METADATA_PAIRS - len(given)])

    def finish(self, event: ReplyFinished, send: Send) -> None:
        for item_id, stream in self._open.items():
            shown = stream.close(stream.cut(), stream.previous_item_id, send)
            self._done[item_id] = (stream.output_index, shown)
        self._open.clear()
        end = {
            "status": event.status,
            "status_details": _status_details(event),
            "usage": _usage(event.usage),
            "output": [shown for _, shown in sorted(self._done.values(), key=lambda done: done[0])],
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


def _metadata(event: ReplyStarted) -> dict[str, str] | None:
    continues = {"reachy_voice.continues": event.continues} if event.continues else {}
    return {**event.metadata, **continues} if event.metadata is not None else continues or None
