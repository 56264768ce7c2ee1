"""The conversation: its items, in order, and the prompt that the model reads.

This is the only home of the conversation. Items are immutable; a change puts a new item in the
old one's place. The prompt is a pure function of instructions and items, and stays the same from
its start as long as items are only appended, so the model's KV prefix stays valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.engines import Message

ItemStatus = Literal["in_progress", "completed", "incomplete"]
MessageRole = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class AudioPart:
    """Speech. ``transcript`` is ``None`` until it is known; ``seconds`` is its length."""

    transcript: str | None
    seconds: float = 0.0


Part = TextPart | AudioPart


@dataclass(frozen=True, slots=True)
class MessageItem:
    id: str
    role: MessageRole
    parts: tuple[Part, ...] = ()
    status: ItemStatus = "completed"

    @property
    def text(self) -> str:
        """All that was said or written in it."""
        said = (p.text if isinstance(p, TextPart) else p.transcript or "" for p in self.parts)
        return " ".join(text for text in said if text)


@dataclass(frozen=True, slots=True)
class FunctionCallItem:
    """``arguments`` is the JSON text that the model wrote."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus = "completed"


@dataclass(frozen=True, slots=True)
class FunctionOutputItem:
    id: str
    call_id: str
    output: str
    status: ItemStatus = "completed"


Item = MessageItem | FunctionCallItem | FunctionOutputItem


class UnknownItem(KeyError):
    """No item has this id."""


class DuplicateItem(ValueError):
    """An item with this id is there already."""


class Chat:
    """An ordered list of items with unique ids."""

    ROOT = "root"
    """``after=ROOT`` puts an item first."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._forgotten = 0

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(self._items)

    @property
    def context(self) -> tuple[Item, ...]:
        """The items that the model still reads; older ones did not fit any more."""
        return tuple(self._items[self._forgotten :])

    @property
    def last_id(self) -> str | None:
        return self._items[-1].id if self._items else None

    def get(self, item_id: str) -> Item:
        return self._items[self._position(item_id)]

    def previous_id(self, item_id: str) -> str | None:
        at = self._position(item_id)
        return self._items[at - 1].id if at else None

    def add(self, item: Item, after: str | None = None) -> str | None:
        """Append ``item``, or put it behind ``after``; returns the id before it.

        Raises ``UnknownItem`` for ``after`` and ``DuplicateItem`` for the item's own id.
        """
        if any(other.id == item.id for other in self._items):
            raise DuplicateItem(item.id)
        if after is None:
            at = len(self._items)
        elif after == self.ROOT:
            at = 0
        else:
            at = self._position(after) + 1
        self._items.insert(at, item)
        if at < self._forgotten:
            self._forgotten += 1
        return self._items[at - 1].id if at else None

    def put(self, item: Item) -> None:
        """Replace the item that has the same id."""
        self._items[self._position(item.id)] = item

    def delete(self, item_id: str) -> None:
        at = self._position(item_id)
        del self._items[at]
        if at < self._forgotten:
            self._forgotten -= 1

    def truncate(self, item_id: str, heard_seconds: float) -> None:
        """Cut an assistant's spoken item to its first ``heard_seconds``.

        The transcript is cut at a word border in proportion to the time, which is as exact as a
        voice without word times allows.
        """
        item = self.get(item_id)
        if not isinstance(item, MessageItem) or item.role != "assistant":
            raise UnknownItem(item_id)
        parts = tuple(
            _cut(part, heard_seconds) if isinstance(part, AudioPart) else part
            for part in item.parts
        )
        self.put(replace(item, parts=parts))

    def forget_oldest(self) -> bool:
        """Take the older half of the context away. False when only one item is left.

        Half at a time, because every cut invalidates the model's KV prefix.
        """
        context = self.context
        if len(context) < 2:
            return False
        self._forgotten += (len(context) + 1) // 2
        while self.context and isinstance(self.context[0], FunctionOutputItem):
            self._forgotten += 1
        return True

    def _position(self, item_id: str) -> int:
        for at, item in enumerate(self._items):
            if item.id == item_id:
                return at
        raise UnknownItem(item_id)


def _cut(part: AudioPart, heard_seconds: float) -> AudioPart:
    if heard_seconds >= part.seconds or not part.transcript:
        return part
    return AudioPart(heard_text([(part.transcript, part.seconds)], heard_seconds), heard_seconds)


def heard_text(spoken: Sequence[tuple[str, float]], heard_seconds: float) -> str:
    """The clauses whose audio was heard, the last one cut at a word border in proportion.

    ``spoken``: each clause with the seconds of its audio, in order.
    """
    words: list[str] = []
    for text, seconds in spoken:
        if heard_seconds <= 0:
            break
        clause = re.findall(r"\S+", text)
        share = min(1.0, heard_seconds / seconds) if seconds else 1.0
        words += clause[: int(len(clause) * share + 1e-9)]
        heard_seconds -= seconds
    return " ".join(words)


def prompt(instructions: str, items: Sequence[Item]) -> list[Message]:
    """What the model reads: instructions, then the items that say something.

    Neighbouring user messages are merged: they are one thought that was spoken in two breaths.
    """
    messages = [Message("system", instructions)] if instructions else []
    for item in items:
        message = _message(item)
        if message is None:
            continue
        if messages and message.role == "user" and messages[-1].role == "user":
            messages[-1] = Message("user", f"{messages[-1].content} {message.content}")
        else:
            messages.append(message)
    return messages


def _message(item: Item) -> Message | None:
    match item:
        case MessageItem():
            return Message(item.role, item.text) if item.text else None
        case FunctionCallItem():
            call = {
                "id": item.call_id,
                "type": "function",
                "function": {"name": item.name, "arguments": _json_or_text(item.arguments)},
            }
            return Message("assistant", "", tool_calls=(call,))
        case FunctionOutputItem():
            return Message("tool", item.output, tool_call_id=item.call_id)


def _json_or_text(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
