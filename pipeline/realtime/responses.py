"""One response on the wire: from ``response.created`` to ``response.done``, in the API's order.

Whatever the pipeline does, every opened part and item is closed, nothing follows an item's end, and
there is exactly one ``response.done`` for each ``response.created``. Its output repeats the items'
``done`` events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipeline.audio import AudioFormat
from pipeline.events import (
    OutputItem,
    ReplyArguments,
    ReplyAudio,
    ReplyFinished,
    ReplyItemFinished,
    ReplyItemStarted,
    ReplyStarted,
    ReplyText,
)
from pipeline.items import AudioPart, FunctionCallItem, MessageItem, TextPart, is_hidden_call
from pipeline.messages import Usage
from pipeline.realtime.items import item_to_wire
from pipeline.realtime.wire import Send, base64_text, bytes_of, pieces, shown_format
from pipeline.turn_record import MAX_METADATA_PAIRS, WANTED, TurnRecord, as_metadata, turn_latency


class ResponseEvents:
    """The server events of one reply."""

    def __init__(
        self,
        event: ReplyStarted,
        conversation_id: str,
        voice: str,
        send: Send,
        server_calls: dict[str, ServerCallStream],
        *,
        tells_record: bool = False,
    ) -> None:
        """``voice`` is the client's name for the voice."""
        self._server_calls = server_calls
        """Gets the calls of tool servers."""
        self._hidden: list[int] = []
        """Output indices of calls hidden from the client."""
        self._unsettled: dict[str, tuple[ServerCallStream, OutputItem]] = {}
        """Calls of tool servers without an output yet."""
        self._send = send
        self._in_conversation = event.in_conversation
        self._spoken = event.format if event.modality == "audio" else None
        self._open: dict[str, MessageStream | CallStream] = {}
        self._done: dict[str, tuple[int, dict[str, Any]]] = {}
        self._tells_record = tells_record or (event.metadata or {}).get(WANTED) == "true"
        """Put the figures of the turn record into the metadata of ``response.done``, if the
        client's own metadata leave room; those of ``turn_latency`` are always added."""
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
        begun: dict[str, Any] = {"status": "in_progress", "status_details": None, "output": []}
        send("response.created", response={**self._fields, **begun, "usage": None})

    def start_item(self, event: ReplyItemStarted) -> None:
        item = event.item
        if item.id in self._open or item.id in self._done:
            return
        if is_hidden_call(item):
            self._hidden.append(event.output_index)
            return
        before = sum(index < event.output_index for index in self._hidden)
        event = replace(event, output_index=event.output_index - before)
        send = self._send
        empty = item_to_wire(_emptied(item), "in_progress")
        where = {"response_id": event.reply_id, "output_index": event.output_index}
        send("response.output_item.added", **where, item=empty)
        if self._in_conversation:
            send("conversation.item.added", previous_item_id=event.previous_item_id, item=empty)
        if isinstance(item, MessageItem):
            self._open[item.id] = MessageStream(event, item, send, self._spoken)
        elif item.server:
            self._open[item.id] = self._server_calls[item.id] = ServerCallStream(event, item, send)
        else:
            self._open[item.id] = CallStream(event, item, send)

    def write(self, event: ReplyText | ReplyArguments) -> None:
        stream = self._open.get(event.item_id)
        is_text = isinstance(event, ReplyText)
        if event.text and stream and isinstance(stream, MessageStream) == is_text:
            stream.write(event.text)

    def speak(self, event: ReplyAudio) -> None:
        stream = self._open.get(event.item_id)
        if isinstance(stream, MessageStream):
            stream.speak(event)

    def finish_item(self, event: ReplyItemFinished) -> None:
        if event.item.id in self._open:
            self._close(event.item)

    def _close(self, item: OutputItem) -> None:
        """Close ``item`` in its current state. A server's call is done only with its output."""
        stream = self._open.pop(item.id)
        if isinstance(item, MessageItem) != isinstance(stream, MessageStream):
            item = stream.cut()
        stream.close(item)
        if isinstance(stream, ServerCallStream):
            self._unsettled[item.id] = stream, item
            return
        status = "incomplete" if item.status == "in_progress" else item.status
        shown = item_to_wire(item, status)
        if self._in_conversation:
            before = {"previous_item_id": stream.previous_item_id}
            self._send("conversation.item.done", **before, item=shown)
        self._end_item(item.id, stream.output_index, shown)

    def _end_item(self, item_id: str, index: int, shown: dict[str, Any]) -> None:
        where = {"response_id": self._fields["id"], "output_index": index}
        self._send("response.output_item.done", **where, item=shown)
        self._done[item_id] = (index, shown)

    def settle(self, item: OutputItem) -> None:
        """Finish the item of a server's call, whose output has arrived."""
        if item.id in self._unsettled:
            stream, _ = self._unsettled.pop(item.id)
            self._end_item(item.id, stream.output_index, item_to_wire(item))

    def note(self, record: TurnRecord) -> None:
        """Take the turn's record; called before ``finish``."""
        given = self._fields["metadata"] or {}
        figures = {**(as_metadata(record) if self._tells_record else {}), **turn_latency(record)}
        new = [pair for pair in figures.items() if pair[0] not in given]
        told = given | dict(new[: MAX_METADATA_PAIRS - len(given)])
        self._fields["metadata"] = told or self._fields["metadata"]

    def finish(self, event: ReplyFinished) -> None:
        for stream in list(self._open.values()):
            self._close(stream.cut())
        for _, item in list(self._unsettled.values()):
            self.settle(item)
        end = {
            "status": event.status,
            "status_details": _status_details(event),
            "usage": _usage(event.usage),
            "output": [shown for _, shown in sorted(self._done.values(), key=lambda done: done[0])],
        }
        self._send("response.done", response={**self._fields, **end})


class MessageStream:
    """A message that is being spoken (``spoken``: the audio format) or written (``None``)."""

    def __init__(
        self, event: ReplyItemStarted, item: MessageItem, send: Send, spoken: AudioFormat | None
    ) -> None:
        self.output_index = event.output_index
        self.previous_item_id = event.previous_item_id
        self._item = item
        self._send = send
        self._spoken = spoken
        self._text = ""
        where = {"response_id": event.reply_id, "output_index": event.output_index}
        self._part = {**where, "item_id": item.id, "content_index": 0}
        send("response.content_part.added", **self._part, part=self._shown_part())

    def write(self, text: str) -> None:
        self._text += text
        kind = "output_audio_transcript" if self._spoken else "output_text"
        self._send(f"response.{kind}.delta", **self._part, delta=text)

    def speak(self, event: ReplyAudio) -> None:
        if self._spoken is None:
            return
        for pcm in pieces(event.pcm, event.rate):
            audio = base64_text(bytes_of(pcm, self._spoken))
            self._send("response.output_audio.delta", **self._part, delta=audio)

    def cut(self) -> MessageItem:
        """The item so far, for a reply that ended before the item did."""
        part = AudioPart(self._text) if self._spoken else TextPart(self._text)
        return replace(self._item, parts=(part,), status="incomplete")

    def close(self, item: OutputItem) -> None:
        """Send the ``done`` events, which repeat the content of the deltas."""
        send = self._send
        if self._spoken:
            send("response.output_audio.done", **self._part)
            send("response.output_audio_transcript.done", **self._part, transcript=self._text)
        else:
            send("response.output_text.done", **self._part, text=self._text)
        send("response.content_part.done", **self._part, part=self._shown_part())

    def _shown_part(self) -> dict[str, str]:
        if self._spoken:
            return {"type": "audio", "transcript": self._text}
        return {"type": "text", "text": self._text}


class CallStream:
    """A function call that is being written."""

    def __init__(self, event: ReplyItemStarted, item: FunctionCallItem, send: Send) -> None:
        self.output_index = event.output_index
        self.previous_item_id = event.previous_item_id
        self._item = item
        self._send = send
        self._arguments = ""
        where = {"response_id": event.reply_id, "output_index": event.output_index}
        self._call = {**where, "item_id": item.id, "call_id": item.call_id}

    def write(self, arguments: str) -> None:
        self._arguments += arguments
        self._tell("delta", delta=arguments)

    def cut(self) -> FunctionCallItem:
        return replace(self._item, arguments=self._arguments, status="incomplete")

    def close(self, item: OutputItem) -> None:
        assert isinstance(item, FunctionCallItem)
        sent = self._arguments
        if item.arguments.startswith(sent) and (rest := item.arguments[len(sent) :]):
            self.write(rest)
        # Also sent for an incomplete call (API reference); the item's status tells.
        self._tell("done", name=item.name, arguments=item.arguments)

    def _tell(self, what: str, **fields: str) -> None:
        self._send(f"response.function_call_arguments.{what}", **self._call, **fields)


class ServerCallStream(CallStream):
    """A call of a server's tool, from its arguments to its output, which may arrive after the end
    of the response ``response_id``."""

    def __init__(self, event: ReplyItemStarted, item: FunctionCallItem, send: Send) -> None:
        super().__init__(event, item, send)
        self.response_id = event.reply_id
        self._call = {"item_id": item.id, "output_index": event.output_index}

    def close(self, item: OutputItem) -> None:
        assert isinstance(item, FunctionCallItem)
        self._tell("done", arguments=item.arguments)

    def begin(self) -> None:
        self._send("response.mcp_call.in_progress", **self._call)

    def end(self, item: FunctionCallItem) -> None:
        failed = item.server is not None and item.server.error is not None
        self._send(f"response.mcp_call.{'failed' if failed else 'completed'}", **self._call)
        before = {"previous_item_id": self.previous_item_id}
        self._send("conversation.item.done", **before, item=item_to_wire(item))

    def _tell(self, what: str, **fields: str) -> None:
        where = {"response_id": self.response_id, **self._call}
        self._send(f"response.mcp_call_arguments.{what}", **where, **fields)


def _emptied(item: OutputItem) -> OutputItem:
    if isinstance(item, MessageItem):
        return replace(item, parts=())
    return replace(item, arguments="")


def _status_details(event: ReplyFinished) -> dict[str, Any] | None:
    """The reasons ``resumed`` and ``shutdown`` are left out, as the API does not know them."""
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
