"""Recognises items of a resumed conversation that the client sends again. Pure.

Many clients know nothing of resuming: after a reconnect they send their history, all of it or a
part, often in another form and without the ids that the items have here. They send it in order,
before anything else happens.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

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
"""Punctuation, but not within a number: 1.5 is not 15."""


class ResumedHistory:
    """``items``: the conversation that is resumed. Each of them can be sent again once."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items
        self._contents = [_content(item) for item in items]
        self._without_pictures = [_content(item, pictures=False) for item in items]
        self._by_id = {item.id: at for at, item in enumerate(items)}
        self._by_key: defaultdict[_Content, list[int]] = defaultdict(list)
        for at, item in enumerate(items):
            contents = self._contents[at], self._without_pictures[at]
            for key in filter(None, {key for each in contents for key in _keys(item, each)}):
                self._by_key[key].append(at)
        self._last_answer = max(
            (at for at, item in enumerate(items) if _is_answer(item)), default=-1
        )
        self._found: set[int] = set()
        self._next = 0
        """Where to look for the next item first: they mostly come in order."""
        self._part = "", ""
        """The id of an answer of which the client has just sent the beginning, and the rest."""
        self._question: list[tuple[MessageItem, list[int] | None]] = []
        """The client's last user message and what it sent after it, each with the places of the
        items that it may repeat."""

    def find(self, item: Item) -> list[str]:
        """The ids of the items that ``item`` repeats: several if the client joins messages in a
        row, as many do."""
        content = _content(item)
        answer, rest = self._part
        words = f"{content[1]} " if content[0] == "assistant" else " "
        if rest and words != " " and (rest.startswith(words) or words.startswith(rest)):
            self._part = item.id, rest[len(words) :]
            return [answer]
        runs = (self._repeated(item, content, at) for at in self._candidates(item, content))
        places = next(filter(None, runs), [])
        self._note(item, None if self._by_id.get(item.id) in places else places)
        self._found.update(places)
        self._next = max((self._next, *(at + 1 for at in places)))
        whole = "".join(f"{self._contents[at][1]} " for at in places)
        self._part = item.id, whole[len(words) :] if words != " " else ""
        return [self._items[at].id for at in places]

    @property
    def asked_again(self) -> list[tuple[MessageItem, str]]:
        """What the client wants answered if it asks for an answer now, although it looks like items
        that were answered already; each with the id of the first of those. So a second "yes" is not
        mistaken for a copy of the first."""
        if not self._question or not self._question[0][1]:
            return []
        found = [(item, places) for item, places in self._question if places]
        last = self._last_answer
        return [(item, self._items[at[0]].id) for item, at in found if at[-1] < last]

    def _note(self, item: Item, places: list[int] | None) -> None:
        if not isinstance(item, MessageItem) or item.role == "assistant":
            self._question.clear()
        elif item.role == "user":
            self._question = [(item, places)]
        else:
            self._question.append((item, places))

    def _candidates(self, item: Item, content: _Content) -> Iterator[int]:
        """Places where ``item`` may be, the likeliest first."""
        by_words, by_sound = _keys(item, content)
        unread = isinstance(item, MessageItem) and item.unread
        key = by_sound if unread else by_words
        places = self._by_key.get(key, []) if key else []
        begin = bisect_left(places, self._next)
        # An answer of which nothing was heard cannot be found by its words.
        first = self._by_id.get(item.id, self._next), self._next
        return chain(first, islice(places, begin, None), islice(places, begin))

    def _repeated(self, item: Item, content: _Content, at: int) -> list[int]:
        """The places, from ``at`` on, of the items that ``item`` repeats."""
        if at == len(self._items) or at in self._found or content[0] != self._contents[at][0]:
            return []
        own = self._items[at]
        if not (isinstance(item, MessageItem) and isinstance(own, MessageItem)):
            return [at] if content == self._contents[at] else []
        if item.unread:
            return [at] if not own.unread and _same_recordings(item, own) else []
        if item.role == "assistant" and not self._contents[at][1] and at == self._next:
            return [at]
        contents = self._contents if _pictures(item) else self._without_pictures
        places = self._run(*content, at, contents)
        same = places and _same_pictures(item, [self._items[each] for each in places])
        return places if same else []

    def _run(self, role: str, text: str, at: int, contents: Sequence[_Content]) -> list[int]:
        """The places, from ``at`` on, of the messages whose joined words are ``text``. Client and
        server may know different parts of an interrupted answer."""
        places: list[int] = []
        rest = f"{text} "
        for place in range(at, len(self._items)):
            kind, own_text = contents[place]
            if places and not own_text:
                continue  # nothing was heard of it
            words = f"{own_text} "
            if not (rest.startswith(words) or (role == "assistant" and words.startswith(rest))):
                break
            one = _can_be_one(self._items[at], self._items[place])
            if kind != role or place in self._found or not one:
                break
            places.append(place)
            rest = rest[len(words) :]
            if not rest:
                return places
        return places if role == "assistant" else []


def _content(item: Item, *, pictures: bool = True) -> _Content:
    """The kind of item, and what must be the same in a repetition. Texts are compared by their
    words alone: a client may write them differently, and mark where an answer was cut."""
    if isinstance(item, MessageItem):
        parts = [part for part in item.parts if pictures or not isinstance(part, ImagePart)]
        text = replace(item, parts=tuple(parts)).text
        plain = unicodedata.normalize("NFKC", text).casefold()
        return item.role, " ".join(_PUNCTUATION.sub("", plain).split() or plain.split())
    if isinstance(item, ToolServerItem):
        return item.type, item.id
    return "call" if isinstance(item, FunctionCallItem) else "output", item.call_id


def _keys(item: Item, content: _Content) -> tuple[_Content, _Content | None]:
    """Keys to find an item by: its first word, and the lengths of its recordings, if any."""
    if not isinstance(item, MessageItem):
        return content, None
    lengths = [p.audio and len(p.audio.pcm) for p in item.parts if isinstance(p, AudioPart)]
    sound = (item.role, f"{lengths}") if any(lengths) else None
    return (item.role, content[1].partition(" ")[0]), sound


def _can_be_one(first: Item, item: Item) -> bool:
    """Whether two messages can be joined: the words of ``item`` are known, and the model reads both
    or neither."""
    if not (isinstance(first, MessageItem) and isinstance(item, MessageItem)):
        return False
    return not item.unread and item.notice == first.notice


def _is_answer(item: Item) -> bool:
    if isinstance(item, MessageItem):
        return item.role == "assistant" and item.status == "completed" and not item.notice
    return True


def _same_recordings(item: MessageItem, other: MessageItem) -> bool:
    """Whether both have the same sound; False if a recording is no longer kept."""
    new, old = ([p.audio for p in i.parts if isinstance(p, AudioPart)] for i in (item, other))
    return len(new) == len(old) and all(
        a is not None and b is not None and a.rate == b.rate and np.array_equal(a.pcm, b.pcm)
        for a, b in zip(new, old, strict=True)
    )


def _same_pictures(item: MessageItem, others: Iterable[Item]) -> bool:
    """Whether they have the same pictures; those no longer kept, or not sent with the words, are
    assumed to match."""
    new = _pictures(item)
    old = [url for other in others for url in _pictures(other)]
    if not new:
        return not old or bool(item.text)
    return len(new) == len(old) and all(
        a is None or b is None or _base64(a) == _base64(b) for a, b in zip(new, old, strict=True)
    )


def _base64(url: str) -> str:
    """The content of a data URL, which may name its type in several ways."""
    return url.rpartition(",")[2].rstrip("=")


def _pictures(item: Item) -> list[str | None]:
    parts = item.parts if isinstance(item, MessageItem) else ()
    return [part.url for part in parts if isinstance(part, ImagePart)]
