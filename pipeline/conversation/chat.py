"""The items of the conversation, in order, and the only place that stores them. Items are
immutable; a change replaces an item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from pipeline.conversation.media import has_media, without_old_media
from pipeline.conversation.room import limits, shortened
from pipeline.errors import PromptTooLong
from pipeline.items import (
    AudioPart,
    FunctionOutputItem,
    Item,
    MessageItem,
    is_hidden_call,
    text_chars,
)
from pipeline.spoken.length import word_ends


class UnknownItem(KeyError):
    """No item has this id."""


class DuplicateItem(ValueError):
    """An item with this id already exists."""


class TooShort(ValueError):
    """Audio cannot be cut to more than its length, ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Chat:
    """An ordered list of items with unique ids.

    Operations on one item take the same time in a conversation of any length.
    """

    ROOT = "root"
    """``after=ROOT`` puts an item first."""

    def __init__(self) -> None:
        self._items: dict[str, Item] = {}
        self._next: dict[str | None, str | None] = {None: None}
        self._previous: dict[str | None, str | None] = {None: None}
        """Links that order the items; ``None`` is before the first and after the last."""
        self._hidden: set[str] = set()
        """Ids of the items that the client is not told about."""
        self._media: set[str] = set()
        """Ids of the items with audio or pictures."""
        self.text_chars = 0
        """How much text all items hold."""
        self._forgotten: str | None = None
        """The last item that the model no longer reads."""
        self._limits: dict[str, int] = {}
        """How many characters of each long item the model reads."""

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._items

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(map(self._items.__getitem__, _walk(self._next)))

    @property
    def newest_first(self) -> Iterator[Item]:
        return map(self._items.__getitem__, _walk(self._previous))

    @property
    def context(self) -> tuple[Item, ...]:
        """The items that the model still reads; older ones no longer fit."""
        return self.shown(tuple(map(self._items.__getitem__, _walk(self._next, self._forgotten))))

    def shown(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """``items``, each with only as much text as the model reads."""
        most = self._limits
        return tuple(shortened(i, most[i.id]) if i.id in most else i for i in items)

    @property
    def last_id(self) -> str | None:
        return self._previous[None]

    @property
    def answered_id(self) -> str | None:
        """The id of the newest answer: what follows it may still be answered."""
        return next((item.id for item in self.newest_first if _is_answer(item)), None)

    def get(self, item_id: str) -> Item:
        if item_id not in self._items:
            raise UnknownItem(item_id)
        return self._items[item_id]

    def previous_id(self, item_id: str) -> str | None:
        """The id of the item before it that the client knows."""
        previous = self._previous[self.get(item_id).id]
        while previous in self._hidden:
            previous = self._previous[previous]
        return previous

    def add(self, item: Item, after: str | None = None, *, hidden: bool = False) -> str | None:
        """Append ``item``, or insert it after ``after``; returns its ``previous_id``. ``hidden``:
        the client is not told, as of a hidden call.

        Raises ``UnknownItem`` for ``after`` and ``DuplicateItem`` for the item's own id.
        """
        if item.id in self._items:
            raise DuplicateItem(item.id)
        previous = self.last_id
        if after is not None and after != previous:
            previous = None if after == self.ROOT else self.get(after).id
        self._insert(item, previous)
        if hidden or is_hidden_call(item):
            self._hidden.add(item.id)
        return self.previous_id(item.id)

    def _insert(self, item: Item, previous: str | None) -> None:
        following = self._next[previous]
        self._items[item.id] = item
        self._previous[item.id], self._next[item.id] = previous, following
        self._next[previous] = self._previous[following] = item.id
        self.text_chars += text_chars(item)
        self._note_media(item)

    def put(self, item: Item) -> None:
        """Replace the item that has the same id."""
        self.text_chars += text_chars(item) - text_chars(self.get(item.id))
        self._items[item.id] = item
        self._note_media(item)

    def rename(self, item_ids: Sequence[str], new_id: str) -> None:
        """Give an item a new id, which no other item has. Several messages become one, in the place
        of the first."""
        items = [self.get(each) for each in item_ids]
        shown_chars = sum(self._limits.get(each.id, text_chars(each)) for each in items)
        previous, last_forgotten = self._previous[items[0].id], self._forgotten
        item = replace(items[-1], id=new_id)
        if isinstance(item, MessageItem):
            messages = [each for each in items if isinstance(each, MessageItem)]
            parts = tuple(part for each in messages for part in each.parts)
            item = replace(item, parts=parts, at=messages[0].at)
        for each in item_ids:
            self.delete(each)
        self._insert(item, previous)
        if last_forgotten == item_ids[-1]:
            self._forgotten = new_id
        if shown_chars < text_chars(item):
            self._limits[new_id] = shown_chars

    def delete(self, item_id: str) -> None:
        self.text_chars -= text_chars(self.get(item_id))
        self._limits.pop(item_id, None)
        self._media.discard(item_id)
        self._hidden.discard(item_id)
        if item_id == self._forgotten:
            self._forgotten = self._previous[item_id]
        del self._items[item_id]
        previous, following = self._previous.pop(item_id), self._next.pop(item_id)
        self._next[previous], self._previous[following] = following, previous

    def truncate(self, item_id: str, heard_seconds: float) -> None:
        """Cut an assistant's spoken item to its first ``heard_seconds``.

        The transcript is cut at a word border in proportion to the time, which is as exact as a
        voice without word times allows. This overrides the server's own estimate, even if more was
        heard. Raises ``UnknownItem`` if the item is not a spoken answer, and ``TooShort``.
        """
        item = self.get(item_id)
        spoken = [part for part in getattr(item, "parts", ()) if isinstance(part, AudioPart)]
        if not (isinstance(item, MessageItem) and item.role == "assistant" and spoken):
            raise UnknownItem(item_id)
        require_sent(sum(map(_sent_seconds, spoken)), heard_seconds)
        self.put(replace(item, parts=tuple(cut(part, heard_seconds) for part in spoken)))

    def drop_oldest(self, count: int) -> list[str]:
        """Delete the first ``count`` items, and outputs whose calls are among them; returns the
        ids that the client knows. The model's context has most likely dropped them long ago."""
        items = self.items
        while count < len(items) and isinstance(items[count], FunctionOutputItem):
            count += 1
        dropped = [item.id for item in items[:count] if item.id not in self._hidden]
        for item in items[:count]:
            self.delete(item.id)
        return dropped

    def forget_before(self, item_id: str) -> None:
        """Start the context with this item. Raises ``UnknownItem``."""
        self.get(item_id)
        if item_id in _walk(self._next, self._forgotten):
            self._forgotten = self._previous[item_id]

    def make_room(self, problem: PromptTooLong) -> bool:
        """Show less of the longest items, or else forget the oldest. False if nothing can go."""
        return self.shorten(self.context, problem) or self.forget_oldest()

    def shorten(self, items: Sequence[Item], problem: PromptTooLong) -> bool:
        """Show less of the longest of ``items``. False if none of them can be shortened."""
        before = self.shown(items)
        self._limits |= limits(before, problem)
        return sum(map(text_chars, self.shown(items))) < sum(map(text_chars, before))

    def forget_oldest(self) -> bool:
        """Drop the older half of the context. False if nothing more can go: only one item is left,
        or one and the outputs of its calls.

        Half at a time, because every cut invalidates the model's KV prefix.
        """
        read = list(_walk(self._next, self._forgotten))
        half = (len(read) + 1) // 2
        # The output of a call means nothing without the call.
        for start in (*range(half, len(read)), *range(half - 1, 0, -1)):
            if not isinstance(self._items[read[start]], FunctionOutputItem):
                self._forgotten = read[start - 1]
                return True
        return False

    def _note_media(self, item: Item) -> None:
        """Note whether an item has audio or pictures, and drop older ones."""
        if not has_media(item):
            self._media.discard(item.id)
            return
        self._media.add(item.id)
        for changed in without_old_media(self._media_items()):
            self._items[changed.id] = changed
            if not has_media(changed):
                self._media.discard(changed.id)

    def _media_items(self) -> list[MessageItem]:
        """The items with audio or pictures, the newest first."""
        newest_first = (item for item in self.newest_first if item.id in self._media)
        items = islice(newest_first, len(self._media))  # stops after the oldest of them
        return [item for item in items if isinstance(item, MessageItem)]


def _walk(links: Mapping[str | None, str | None], start: str | None = None) -> Iterator[str]:
    """The ids that follow ``start``."""
    while (start := links[start]) is not None:
        yield start


def _is_answer(item: Item) -> bool:
    return isinstance(item, MessageItem) and item.role == "assistant"


_ROUNDING_S = 0.001
"""Clients count in whole milliseconds."""


def _sent_seconds(part: AudioPart) -> float:
    return part.seconds if part.sent_seconds is None else part.sent_seconds


def require_sent(sent_seconds: float, heard_seconds: float) -> None:
    """Raise ``TooShort`` if the client claims to have heard more than was sent."""
    if heard_seconds > sent_seconds + _ROUNDING_S:
        raise TooShort(sent_seconds)


def cut(part: AudioPart, heard_seconds: float) -> AudioPart:
    """A spoken part, cut to what was heard."""
    clauses = part.clauses or ((part.transcript or "", part.seconds),)
    heard = heard_text(clauses, heard_seconds)
    audio = part.audio.until(heard_seconds) if part.audio else None
    return AudioPart(heard, heard_seconds, audio)


_SHARE_ROUNDING = 1e-9


def heard_text(spoken: Sequence[tuple[str, float]], heard_seconds: float) -> str:
    """The clauses whose audio was heard, the last one cut at the border of a word.

    ``spoken``: each clause, with the white space before it, and the seconds of its audio, in
    order. Within a clause, words take as long as their letters suggest. The result is an exact
    prefix of the joined clauses.
    """
    heard: list[str] = []
    for text, seconds in spoken:
        if heard_seconds <= 0:
            break
        if heard_seconds >= seconds:
            heard.append(text)
        else:
            share = heard_seconds / seconds + _SHARE_ROUNDING
            heard.append(
                text[: max((end for end, over in word_ends(text) if over <= share), default=0)]
            )
        heard_seconds -= seconds
    return "".join(heard)
