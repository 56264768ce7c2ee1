"""The items of one response on the wire, from ``output_item.added`` to ``output_item.done``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pipeline.audio import AudioFormat
from pipeline.events import OutputItem, ReplyAudio, ReplyItemStarted
from pipeline.items import AudioPart, FunctionCallItem, MessageItem, TextPart
from pipeline.realtime.formats import bytes_of
from pipeline.realtime.items import item_to_wire
from pipeline.realtime.wire import AudioDelta, Send, pieces


class ItemStream(ABC):
    """What all kinds of output have in common: how they open and close."""

    def __init__(self, event: ReplyItemStarted, in_conversation: bool) -> None:
        self.output_index = event.output_index
        self.previous_item_id = event.previous_item_id
        self._in_conversation = in_conversation
        self._response = {"response_id": event.reply_id, "output_index": event.output_index}

    def open(self, send: Send) -> None:
        empty = item_to_wire(self._empty(), "in_progress")
        send("response.output_item.added", **self._response, item=empty)
        if self._in_conversation:
            place = {"previous_item_id": self.previous_item_id}
            send("conversation.item.added", **place, item=empty)
        self._open_content(send)

    def close(self, item: OutputItem, previous_item_id: str | None, send: Send) -> dict[str, Any]:
        """``item`` as it now stands; returns it as it was shown."""
        if not self.fits(item):
            item = self.cut()
        self._close_content(item, send)
        status = "incomplete" if item.status == "in_progress" else item.status
        shown = item_to_wire(item, status)
        if self._in_conversation:
            send("conversation.item.done", previous_item_id=previous_item_id, item=shown)
        send("response.output_item.done", **self._response, item=shown)
        return shown

    @abstractmethod
    def fits(self, item: OutputItem) -> bool:
        """Whether ``item`` is of this kind."""

    @abstractmethod
    def cut(self) -> OutputItem:
        """The item as far as it went, for a reply that ended without finishing it."""

    @abstractmethod
    def _empty(self) -> OutputItem: ...

    @abstractmethod
    def _open_content(self, send: Send) -> None: ...

    @abstractmethod
    def _close_content(self, item: OutputItem, send: Send) -> None:
        """The ``done`` events, which repeat what the deltas said."""


class MessageStream(ItemStream):
    """A message being spoken (in ``spoken``, a format) or written (``None``)."""

    def __init__(
        self,
        event: ReplyItemStarted,
        item: MessageItem,
        in_conversation: bool,
        spoken: AudioFormat | None,
    ) -> None:
        super().__init__(event, in_conversation)
        self._item = item
        self._spoken = spoken
        self._text = ""
        self._part = {**self._response, "item_id": item.id, "content_index": 0}
        self._delta = AudioDelta(event.reply_id, item.id, event.output_index)

    def write(self, text: str, send: Send) -> None:
        self._text += text
        kind = "output_audio_transcript" if self._spoken else "output_text"
        send(f"response.{kind}.delta", **self._part, delta=text)

    def speak(self, event: ReplyAudio, new_event_id: Callable[[], str]) -> Iterator[str]:
        """Messages, already encoded."""
        if self._spoken is None:
            return
        for pcm in pieces(event.pcm, event.rate):
            yield self._delta.encode(new_event_id(), bytes_of(pcm, self._spoken))

    def fits(self, item: OutputItem) -> bool:
        return isinstance(item, MessageItem)

    def cut(self) -> MessageItem:
        part = AudioPart(self._text) if self._spoken else TextPart(self._text)
        return replace(self._item, parts=(part,), status="incomplete")

    def _empty(self) -> MessageItem:
        return replace(self._item, parts=())

    def _open_content(self, send: Send) -> None:
        send("response.content_part.added", **self._part, part=self._shown_part())

    def _close_content(self, item: OutputItem, send: Send) -> None:
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


class CallStream(ItemStream):
    """A function call being written."""

    def __init__(
        self, event: ReplyItemStarted, item: FunctionCallItem, in_conversation: bool
    ) -> None:
        super().__init__(event, in_conversation)
        self._item = item
        self._arguments = ""
        self._call = {**self._response, "item_id": item.id, "call_id": item.call_id}

    def write(self, arguments: str, send: Send) -> None:
        self._arguments += arguments
        send("response.function_call_arguments.delta", **self._call, delta=arguments)

    def fits(self, item: OutputItem) -> bool:
        return isinstance(item, FunctionCallItem)

    def cut(self) -> FunctionCallItem:
        return replace(self._item, arguments=self._arguments, status="incomplete")

    def _empty(self) -> FunctionCallItem:
        return replace(self._item, arguments="")

    def _open_content(self, send: Send) -> None:
        """A call has no content parts."""

    def _close_content(self, item: OutputItem, send: Send) -> None:
        assert isinstance(item, FunctionCallItem)
        told = self._arguments
        if item.arguments.startswith(told) and (rest := item.arguments[len(told) :]):
            self.write(rest, send)
        # Also for a call that was cut (API reference): its item's status says so.
        send(
            "response.function_call_arguments.done",
            **self._call,
            name=item.name,
            arguments=item.arguments,
        )
