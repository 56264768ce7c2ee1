"""Shortens long items for the model if not all of their text fits into its context.

A tool may return more than the context holds. The longest items are shortened first, each to its
beginning and its end, so that the question and the call remain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pipeline.errors import PromptTooLong
from pipeline.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    MessageItem,
    Part,
    TextPart,
    ToolServerItem,
    text_chars,
)

SHORTEST_CHARS = 1000
"""Shorter items are not shortened further."""
FILLED = 0.25
"""Share of the context that the prompt is shortened to. On a CPU each thousand tokens takes seconds
to read, and the rest is room for the next turns: every cut makes the model read everything again.
"""
TOKEN_CHARS = 4
"""Characters per token, if the tokens were not counted; for English."""
_HEAD = 0.75
"""Share of the kept text that is taken from the beginning."""
_MARK = " […{count} characters left out…] "
_MARK_CHARS = len(_MARK.format(count=10**9))


def limits(items: Iterable[Item], problem: PromptTooLong) -> dict[str, int]:
    """How many characters of the longest items to show, by id; empty if none of them is long."""
    sizes = {item.id: text_chars(item) for item in items}
    tokens = problem.prompt_tokens or sum(sizes.values()) / TOKEN_CHARS
    fits = min(1.0, problem.limit_tokens / tokens) if problem.limit_tokens and tokens else 1.0
    room, most = sum(sizes.values()) * FILLED * fits, 0.0
    for rank, size in enumerate(ascending := sorted(sizes.values())):
        most = room / (len(ascending) - rank)
        if size > most:
            break
        room -= size
    chars = max(SHORTEST_CHARS, int(most))
    return {item_id: chars for item_id, size in sizes.items() if size > chars}


def shortened(item: Item, chars: int) -> Item:
    """``item`` with at most about ``chars`` characters of text."""
    match item:
        case MessageItem():
            each = chars // max(1, len(item.parts))
            return replace(item, parts=tuple(_part(part, each) for part in item.parts))
        case FunctionCallItem():
            return replace(item, arguments=_text(item.arguments, chars))
        case FunctionOutputItem():
            return replace(item, output=_text(item.output, chars))
        case ToolServerItem():
            return item


def _part(part: Part, chars: int) -> Part:
    match part:
        case TextPart():
            return replace(part, text=_text(part.text, chars))
        case AudioPart() if part.transcript:
            return replace(part, transcript=_text(part.transcript, chars))
        case _:
            return part


def _text(text: str, chars: int) -> str:
    if len(text) <= max(chars, _MARK_CHARS):
        return text
    kept = max(0, chars - _MARK_CHARS)
    head = round(kept * _HEAD)
    tail = text[len(text) - (kept - head) :]
    return f"{text[:head]}{_MARK.format(count=len(text) - kept)}{tail}"
