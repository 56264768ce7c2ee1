"""Conversation items: the wire's shape <-> ``pipeline.chat``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipeline.chat import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    ItemStatus,
    MessageItem,
    MessageRole,
    Part,
    TextPart,
)
from pipeline.realtime.schema import (
    AnyItemFields,
    ContentFields,
    FunctionCallFields,
    FunctionOutputFields,
    MessageFields,
)
from pipeline.realtime.wire import WireError, decode_audio

UNSEEN_IMAGE = "(An image was shared here. This assistant cannot see images.)"
"""What a model without eyes reads in an image's place; it can say so instead of inventing."""

_ALLOWED: dict[MessageRole, tuple[str, ...]] = {
    "system": ("input_text",),
    "user": ("input_text", "input_audio", "input_image"),
    "assistant": ("output_text",),
}


def item_from_wire(
    given: AnyItemFields, new_id: Callable[[str], str], rate: int, path: str
) -> Item:
    """A client's item, with an id of ours where it has none.

    ``rate`` in Hz is that of the session's input audio; ``path`` names the place in the message
    for errors. Raises ``WireError``.
    """
    item_id = given.id or new_id("item")
    match given:
        case MessageFields():
            parts = (
                _part(given.role, content, rate, f"{path}.content[{at}]")
                for at, content in enumerate(given.content)
            )
            return MessageItem(item_id, given.role, tuple(parts))
        case FunctionCallFields():
            call_id = given.call_id or new_id("call")
            return FunctionCallItem(item_id, call_id, given.name, given.arguments)
        case FunctionOutputFields():
            return FunctionOutputItem(item_id, given.call_id, given.output)


def item_to_wire(item: Item, status: ItemStatus | None = None) -> dict[str, Any]:
    """The item without its audio, which goes over the wire on request only."""
    head = {"id": item.id, "object": "realtime.item", "status": status or item.status}
    match item:
        case MessageItem():
            content = [_content(item.role, part) for part in item.parts]
            return {**head, "type": "message", "role": item.role, "content": content}
        case FunctionCallItem():
            call = {"name": item.name, "call_id": item.call_id, "arguments": item.arguments}
            return {**head, "type": "function_call", **call}
        case FunctionOutputItem():
            output = {"call_id": item.call_id, "output": item.output}
            return {**head, "type": "function_call_output", **output}


def items_to_wire(items: Sequence[Item]) -> list[dict[str, Any]]:
    return [item_to_wire(item) for item in items]


def _content(role: MessageRole, part: Part) -> dict[str, Any]:
    direction = "output" if role == "assistant" else "input"
    if isinstance(part, TextPart):
        return {"type": f"{direction}_text", "text": part.text}
    return {"type": f"{direction}_audio", "transcript": part.transcript}


def _part(role: MessageRole, given: ContentFields, rate: int, path: str) -> Part:
    if given.type not in _ALLOWED[role]:
        known = ", ".join(f"'{name}'" for name in _ALLOWED[role])
        raise _invalid(f"{path}.type", f"a {role} message may have {known}")
    if given.type == "input_audio":
        return _audio_part(given, rate, path)
    if given.type == "input_image":
        return _unseen_image(given, path)
    if given.text is None:
        raise _missing(f"{path}.text")
    return TextPart(given.text)


def _audio_part(given: ContentFields, rate: int, path: str) -> AudioPart:
    """Recognising speech that arrives as an item is not possible yet; its transcript is used."""
    pcm = decode_audio(given.audio, f"{path}.audio")
    if not given.transcript:
        raise _invalid(f"{path}.transcript", "audio in an item needs its transcript")
    return AudioPart(given.transcript, len(pcm) / rate)


def _unseen_image(given: ContentFields, path: str) -> TextPart:
    if given.image_url is None:
        raise _missing(f"{path}.image_url")
    return TextPart(UNSEEN_IMAGE)


def _missing(path: str) -> WireError:
    return WireError(
        "missing_required_parameter", f"Missing required parameter: '{path}'.", param=path
    )


def _invalid(path: str, why: str) -> WireError:
    return WireError("invalid_value", f"Invalid value at '{path}': {why}.", param=path)
