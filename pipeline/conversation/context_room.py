"""When a conversation gets too long for the model, and where it should begin then.

Every cut makes the model read anew what stays. So there is a cut long before the context is full,
it takes much at once, and it takes effect only when the model has read the rest in idle time: until
then turns go on with the longer history. A turn never waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.engines.contract import Warmed
from pipeline.items import Item, MessageItem, text_chars

_FULL, _KEPT = 0.6, 0.3
"""Shares of the room behind instructions and tools: when to shorten the history, and to what.
Both histories are in the cells while the shorter one is read, so together they must fit."""
_MARKS_CHARS = 24
"""What a template writes around a message, in characters of text that cost as much."""


def new_beginning(items: Sequence[Item], warmed: Warmed) -> str | None:
    """The id of the item that the model's context should begin with; ``None``: it can stay.

    ``items``: what the model reads now, ``warmed``: what came out when it did. The first item kept
    is one that the user said, as templates want it, and never a result without its call.
    """
    room = warmed.most_tokens - warmed.fixed_tokens
    tokens = warmed.usage.prompt - warmed.fixed_tokens
    if warmed.most_tokens == 0 or tokens <= _FULL * room:
        return None
    sizes = [text_chars(item) + _MARKS_CHARS for item in items]
    most_chars = _KEPT * room * sum(sizes) / tokens
    kept_chars, start = 0, None
    for at in range(len(items) - 1, 0, -1):
        kept_chars += sizes[at]
        if kept_chars > most_chars and start is not None:
            break
        item = items[at]
        if isinstance(item, MessageItem) and item.role == "user":
            start = item.id
    return start
