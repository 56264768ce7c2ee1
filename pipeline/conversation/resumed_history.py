"""Recognises what a client sends again of the conversation that it resumes. Pure.

Many clients know of no resumption: after a reconnect they send their history, all of it or a part,
often without the ids that its items have here, and in another form. They send it in order, before
anything else happens.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from pipeline.items import (
    AudioPart,
    FunctionCallItem,
    ImagePart,
    Item,
    MessageItem,
    ToolServerItem,
)

_Content = tuple[str, str]

_MARKS = re.escape(".,;:!?…'\"‘’“”„‹›«»¡¿。、()[]*_—–")
_PUNCTUATION = re.compile(rf"(?<!\d)[{_MARKS}]|[{_MARKS}](?!\d)")
"""Not within a number: 1.5 is not 15."""


class ResumedHistory:
    """``items``: the conversation that is resumed. Each of them can be sent again once."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items
        self._contents = [_content(item) for item in items]
        self._by_id = {item.id: at for at, item in enumerate(items)}
        self._by_key: defaultdict[_Content, list[int]] = defaultdict(list)
        for at, content in enumerate(self._contents):
            self._by_key[_key(content)].append(at)
        self._last_answer = max(
            (at for at, item in enumerate(items) if _is_answer(item)), default=-1
        )
        self._found: set[int] = set()
        self._next = 0
        """Messages are mostly sent in order: the next one is looked for from here on."""
        self._question: list[tuple[MessageItem, int | None]] = []
        """The client's last message as the user and what it sent behind it, each with the place of
        the item that it may repeat."""

    def find(self, item: Item) -> str | None:
        """The id of the item that ``item`` repeats."""
        content = _content(item)
        same_id = self._by_id.get(item.id)
        if same_id is not None and self._repeats(item, content, same_id):
            at: int | None = same_id
            self._note(item, None)
        else:
            places = self._candidates(item, content)
            at = next((each for each in places if self._repeats(item, content, each)), None)
            self._note(item, at)
        if at is None:
            return None
        self._found.add(at)
        self._next = max(self._next, at + 1)
        return self._items[at].id

    @property
    def asked_again(self) -> list[tuple[MessageItem, str]]:
        """What the client wants answered if it asks for an answer now, though it looks like items
        that were answered already; each with the id of that item. Thus "yes", said a second time,
        is not taken for a repetition of the first."""
        if not self._question or self._question[0][1] is None:
            return []
        found = [(item, at) for item, at in self._question if at is not None]
        return [(item, self._items[at].id) for item, at in found if at < self._last_answer]

    def _note(self, item: Item, at: int | None) -> None:
        if not isinstance(item, MessageItem) or item.role == "assistant":
            self._question.clear()
        elif item.role == "user":
            self._question = [(item, at)]
        else:
            self._question.append((item, at))

    def _candidates(self, item: Item, content: _Content) -> Sequence[int]:
        if not isinstance(item, MessageItem):
            return self._by_key[content]
        places = list(range(len(self._items))) if item.unread else self._by_key[_key(content)]
        begin = bisect_left(places, self._next)
        return [*places[begin:], *places[:begin]]

    def _repeats(self, item: Item, content: _Content, at: int) -> bool:
        own, (kind, text), (own_kind, own_text) = self._items[at], content, self._contents[at]
        if at in self._found or kind != own_kind:
            return False
        if not (isinstance(item, MessageItem) and isinstance(own, MessageItem)):
            return text == own_text
        if own.unread:
            return False  # its words are still to come, under its id
        if item.unread:
            return _same_recordings(item, own)
        if text == own_text:
            return _same_pictures(item, own)
        if item.role != "assistant":
            return False
        return _cut_differently(text, own_text) if own_text else at == self._next


def _key(content: _Content) -> _Content:
    """What finds candidates: the words of an answer need not be the same."""
    return ("assistant", "") if content[0] == "assistant" else content


def _content(item: Item) -> _Content:
    """A kind, and what must be the same. Texts are compared by their words alone: a client may
    write them down differently, and mark where an answer was cut."""
    if isinstance(item, MessageItem):
        plain = unicodedata.normalize("NFKC", item.text).casefold()
        return item.role, " ".join(_PUNCTUATION.sub("", plain).split() or plain.split())
    if isinstance(item, ToolServerItem):
        return item.type, item.id
    return "call" if isinstance(item, FunctionCallItem) else "output", item.call_id


def _is_answer(item: Item) -> bool:
    if isinstance(item, MessageItem):
        return item.role == "assistant" and item.status == "completed" and not item.notice
    return True


def _cut_differently(text: str, other: str) -> bool:
    """Whether one is the beginning of the other, up to the end of a word: client and server may
    know different parts of an interrupted answer."""
    return f"{text} ".startswith(f"{other} ") or f"{other} ".startswith(f"{text} ")


def _same_recordings(item: MessageItem, other: MessageItem) -> bool:
    """Whether both have the same sound. What is no longer kept cannot be compared."""
    new, old = ([p.audio for p in i.parts if isinstance(p, AudioPart)] for i in (item, other))
    return len(new) == len(old) and all(
        a is not None and b is not None and a.rate == b.rate and np.array_equal(a.pcm, b.pcm)
        for a, b in zip(new, old, strict=True)
    )


def _same_pictures(item: MessageItem, other: MessageItem) -> bool:
    """Whether both have the same pictures, as far as these are kept."""
    new, old = ([p.url for p in i.parts if isinstance(p, ImagePart)] for i in (item, other))
    return len(new) == len(old) and all(
        a == b or a is None or b is None for a, b in zip(new, old, strict=True)
    )
