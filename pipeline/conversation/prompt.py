"""What the model reads of a conversation: a pure function of instructions and items. While items
are only appended, the prompt's beginning stays the same, so the model's KV prefix stays valid.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import zip_longest

from pipeline.engines.llm.pictures import joined
from pipeline.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    Item,
    MessageItem,
    MessageRole,
    ToolServerItem,
    spoken_text,
)
from pipeline.messages import Image, Message

TALKED_OVER_S = 2.0
"""An answer interrupted before this much of it was heard counts as not given, because the user had
not finished. The model reads what was said before and after it as one message; if nothing that
counts was said, the answer is given again."""

UNHEARD_SPEECH = "(Something was said here that could not be understood.)"
"""What the model reads where speech could not be recognised."""

NO_OUTPUT = "(No result yet.)"
"""What the model reads as the output of a call while the client has not sent one: many servers
refuse a call without an output."""
CUT_OFF = " —"
"""Marks the end of an answer whose rest was not heard, so that the model sees it was cut."""
SOMEBODY = "Somebody else"
"""An unknown voice that goes on after a known person, before there was an answer."""
_MERGED: frozenset[MessageRole] = frozenset({"user", "assistant"})


def prompt(instructions: str, items: Sequence[Item]) -> list[Message]:
    """What the model reads: instructions, then the items that contain something.

    Adjacent user messages are merged: they are one thought spoken in two breaths, even if an answer
    had just begun in between. So are adjacent answers, because many templates refuse two in a row.
    An answer is merged with its calls. The output of each call follows it directly, unless it came
    only after the next answer. A known speaker's name precedes their words, once.

    A turn whose time is known begins with it, at most once a minute. The time is in the turn so
    that the beginning of later prompts stays the same.
    """
    messages = [Message("system", instructions)] if instructions else []
    last_note = ""
    done = _done_ids(items)
    read = [item for item in items if not _is_hidden(item)]
    items = list(_with_outputs(read))
    last_speaker: str | None = None
    """Who spoke the last words of the last message, if these are the user's speech."""
    for item, after in zip_longest(items, items[1:]):
        message = None if _was_talked_over(item, after) else _message(item)
        if message is None:
            continue
        if item.id in done:
            message = replace(message, words=())
        before = messages[-1] if messages else None
        if before is None or before.role != "user":
            last_speaker = None
        if (speaker := _speaker(item)) is not None:
            message, last_speaker = _said_by(speaker, last_speaker, message), speaker
        note = _time_note(item)
        if note and note != last_note:
            last_note = note
            message = joined(Message("user", note), message, " ")
        if before and before.role == "assistant" and message.tool_calls:
            calls = before.tool_calls + message.tool_calls
            messages[-1] = Message("assistant", before.content, calls)
        elif before and before.role == message.role in _MERGED and not before.tool_calls:
            messages[-1] = joined(before, message, " ")
        else:
            messages.append(message)
    return messages


def _speaker(item: Item) -> str | None:
    """Who says it; empty: an unknown voice; ``None``: it is not the user's speech."""
    parts = item.parts if isinstance(item, MessageItem) and item.role == "user" else ()
    return next((part.speaker for part in parts if isinstance(part, AudioPart)), None)


def _said_by(speaker: str, before: str | None, message: Message) -> Message:
    """``message`` with its speaker's name, unless ``before`` is the same person: the speaker of the
    words that it continues, if any."""
    if speaker == (before or ""):
        return message
    return replace(message, content=f"{speaker or SOMEBODY} says: {message.content}")


def _is_hidden(item: Item) -> bool:
    """Whether the model does not read it. An output whose call is hidden is left out later."""
    if isinstance(item, FunctionCallItem):
        return item.server is not None and not item.server.offered
    return isinstance(item, ToolServerItem)


def _done_ids(items: Sequence[Item]) -> set[str]:
    """The ids of all items up to the newest call by a rule that changes something: what they ask
    for is done."""
    ends = 0
    for number, item in enumerate(items, 1):
        server = item.server if isinstance(item, FunctionCallItem) else None
        if server and not (server.offered or server.read_only):
            ends = number
    return {item.id for item in items[:ends]}


_TIME_NOTE = "(It is {:%A, %d %B %Y, %H:%M}.)"


def _time_note(item: Item) -> str:
    if not isinstance(item, MessageItem) or item.at is None:
        return ""
    return _TIME_NOTE.format(datetime.fromtimestamp(item.at))


def _with_outputs(items: Sequence[Item]) -> Iterator[Item]:
    """``items`` with the output of each call after it, or after all calls of its answer. An output
    that came after the next answer stays there: that answer was given without it, and the beginning
    of the prompt must stay the same. Outputs whose call is not among ``items`` are left out, and
    repetitions of an output."""
    outputs = _prompt_outputs(items)
    told = {(output.call_id, output.output) for output in outputs.values()}
    called: set[str] = set()
    waiting: list[FunctionCallItem] = []
    for item, after in zip_longest(items, items[1:]):
        if isinstance(item, FunctionOutputItem):
            what = item.call_id, item.output
            if item.call_id in called and what not in told:
                told.add(what)
                yield item
            continue
        if isinstance(item, FunctionCallItem):
            if any(call.call_id == item.call_id for call in waiting):
                item = replace(item, call_id=item.id)  # each output must name one call
            waiting.append(item)
        yield item
        if not isinstance(after, FunctionCallItem):
            for call in waiting:
                output = outputs.get(call.id) or FunctionOutputItem("", "", NO_OUTPUT)
                yield replace(output, call_id=call.call_id)
                called.add(call.call_id)
            waiting.clear()


def _prompt_outputs(items: Sequence[Item]) -> dict[str, FunctionOutputItem]:
    """The outputs that came before the next answer after their call, by the id of the call's item:
    clients may restore, and models may write, several calls with the same ``call_id``."""
    outputs: dict[str, FunctionOutputItem] = {}
    waiting: defaultdict[str, deque[str]] = defaultdict(deque)
    before: Item | None = None
    for item in items:
        match item:
            case FunctionOutputItem():
                if waiting[item.call_id]:
                    outputs[waiting[item.call_id].popleft()] = item
            case FunctionCallItem():
                if not isinstance(before, FunctionCallItem):
                    waiting.clear()
                waiting[item.call_id].append(item.id)
            case MessageItem(role="assistant", notice=False):
                waiting.clear()
        before = item
    return outputs


def _was_talked_over(item: Item, after: Item | None) -> bool:
    """Whether it is an answer that had hardly begun when the user went on, or may yet go on."""
    return (
        isinstance(item, MessageItem)
        and item.interrupted
        and all(isinstance(p, AudioPart) and p.seconds <= TALKED_OVER_S for p in item.parts)
        and (after is None or (isinstance(after, MessageItem) and after.role == "user"))
    )


def _message(item: Item) -> Message | None:
    match item:
        case MessageItem(notice=True):
            return None
        case MessageItem():
            unheard = any(isinstance(p, AudioPart) and p.transcript is None for p in item.parts)
            text = item.text or (UNHEARD_SPEECH if unheard and item.role == "user" else "")
            if text and item.role == "assistant" and item.status == "incomplete":
                text = f"{text.rstrip()}{CUT_OFF}"
            words = (item.text,) if item.role == "user" and item.text else ()
            return Message(item.role, text, images=_images(item), words=words) if text else None
        case FunctionCallItem():
            call = {
                "id": item.call_id,
                "type": "function",
                "function": {"name": item.name, "arguments": item.arguments},
            }
            return Message("assistant", "", tool_calls=(call,))
        case FunctionOutputItem():
            return Message("tool", item.output, tool_call_id=item.call_id)
        case ToolServerItem():
            return None


def _images(item: MessageItem) -> tuple[Image, ...]:
    """The item's pictures, with their places in its text."""
    images, start = [], 0
    for part in item.parts:
        text = spoken_text(part)
        if isinstance(part, ImagePart):
            images.append(Image(start, len(text), part.url))
        start += len(text) + 1 if text else 0
    return tuple(images)
