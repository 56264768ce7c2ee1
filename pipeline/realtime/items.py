"""Conversation items: the wire's shape <-> ``pipeline.conversation.chat``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pipeline.audio import AudioFormat, Recording
from pipeline.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    Item,
    ItemStatus,
    MessageItem,
    MessageRole,
    Part,
    ServerCall,
    TextPart,
    ToolServerItem,
)
from pipeline.realtime import wire
from pipeline.realtime.schema import (
    ApprovalFields,
    ContentFields,
    FunctionCallFields,
    FunctionOutputFields,
    ItemField,
    MessageFields,
)
from pipeline.realtime.wire import WireError, invalid, missing, samples_of

_ALLOWED: dict[MessageRole, tuple[str, ...]] = {
    "system": ("input_text",),
    "user": ("input_text", "input_audio", "input_image"),
    "assistant": ("output_text", "output_audio"),
}
_IMAGE_HEAD = re.compile(r"data:image/(?:png|jpe?g);base64,", re.IGNORECASE)


def item_from_wire(
    given: ItemField | ApprovalFields,
    new_id: Callable[[str], str],
    input_format: AudioFormat,
    path: str,
) -> Item:
    """A client's item, with a generated id if it has none.

    ``input_format``: the session's. ``path``: the item's place in the message, for errors. Raises
    ``WireError``.
    """
    item = _item(given, new_id, input_format, path)
    if len(wire.encode(item_to_wire(item))) > wire.MAX_SHOWN_CHARS:
        why = f"longer than {wire.MAX_SHOWN_CHARS} characters of JSON without its media"
        raise WireError("invalid_value", f"Invalid value at '{path}': {why}.", param=path)
    return item


def _item(
    given: ItemField | ApprovalFields,
    new_id: Callable[[str], str],
    input_format: AudioFormat,
    path: str,
) -> Item:
    item_id = given.id or new_id("item")
    match given:
        case MessageFields():
            parts = (
                _part(given.role, content, input_format, f"{path}.content[{at}]")
                for at, content in enumerate(given.content)
            )
            return MessageItem(item_id, given.role, tuple(parts))
        case FunctionCallFields():
            call_id = given.call_id or new_id("call")
            return FunctionCallItem(item_id, call_id, given.name, given.arguments)
        case FunctionOutputFields():
            return FunctionOutputItem(item_id, given.call_id, given.output)
        case ApprovalFields():
            fields = given.model_dump(include={"approval_request_id", "approve", "reason"})
            return ToolServerItem(item_id, given.type, fields)


def item_to_wire(item: Item, status: ItemStatus | None = None) -> dict[str, Any]:
    """The item without audio and images, which are only sent on request."""
    head = {"id": item.id, "object": "realtime.item", "status": status or item.status}
    match item:
        case ToolServerItem():
            return {"id": item.id, "type": item.type, **item.fields}
        case FunctionCallItem(server=ServerCall() as call):
            return {"id": item.id, "arguments": item.arguments, **_server_call(call)}
        case MessageItem():
            content = [_content(item.role, part) for part in item.parts]
            return {**head, "type": "message", "role": item.role, "content": content}
        case FunctionCallItem():
            fields = {"name": item.name, "call_id": item.call_id, "arguments": item.arguments}
            return {**head, "type": "function_call", **fields}
        case FunctionOutputItem():
            output = {"call_id": item.call_id, "output": item.output}
            return {**head, "type": "function_call_output", **output}


def _server_call(call: ServerCall) -> dict[str, Any]:
    error: dict[str, Any] | None = None
    if call.error is not None and call.error_code is None:
        error = {"type": "tool_execution_error", "message": call.error}
    elif call.error is not None:
        error = {"type": "protocol_error", "code": call.error_code, "message": call.error}
    return {
        "type": "mcp_call",
        "server_label": call.server,
        "name": call.name,
        "approval_request_id": call.approval_id,
        "output": call.output,
        "error": error,
    }


def _content(role: MessageRole, part: Part) -> dict[str, Any]:
    direction = "output" if role == "assistant" else "input"
    match part:
        case TextPart():
            return {"type": f"{direction}_text", "text": part.text}
        case AudioPart():
            return {"type": f"{direction}_audio", "transcript": part.transcript}
        case ImagePart():
            return {"type": "input_image", "detail": part.detail}


def _part(role: MessageRole, given: ContentFields, input_format: AudioFormat, path: str) -> Part:
    if given.type not in _ALLOWED[role]:
        known = ", ".join(f"'{name}'" for name in _ALLOWED[role])
        raise invalid(f"{path}.type", f"a {role} message from a client may have {known}")
    if given.type == "input_audio":
        return _audio_part(given, input_format, path)
    if given.type == "output_audio":
        if given.audio is not None or given.transcript is None:
            raise invalid(f"{path}.audio", "send what the assistant said as a transcript or text")
        return AudioPart(given.transcript)
    if given.type == "input_image":
        return _image_part(given, path)
    if given.text is None:
        raise missing(f"{path}.text")
    return TextPart(given.text)


def _audio_part(given: ContentFields, input_format: AudioFormat, path: str) -> AudioPart:
    """Speech without a transcript is transcribed by the session."""
    if given.audio is None and given.transcript is not None:
        return AudioPart(given.transcript)
    path = f"{path}.audio"
    pcm = samples_of(wire.audio_bytes(given.audio, path), input_format, path)
    if not len(pcm) and not given.transcript:
        raise wire.invalid_audio("it is missing", path)
    audio = Recording(pcm, input_format.rate)
    return AudioPart(given.transcript or None, audio.seconds, audio)


def _image_part(given: ContentFields, path: str) -> ImagePart:
    path = f"{path}.image_url"
    url = given.image_url
    if url is None:
        raise missing(path)
    head = _IMAGE_HEAD.match(url)
    if head is None:
        why = "expected a PNG or JPEG as a data URL (data:image/jpeg;base64,...)"
        raise invalid(path, f"{why}; URLs are not fetched")
    if not _is_base64(url[head.end() :]):
        raise invalid(path, "the image is not valid base64")
    return ImagePart(url, given.detail or "auto")


def _is_base64(text: str) -> bool:
    try:
        return sum(len(piece) for piece in wire.base64_slices(text)) > 0
    except ValueError:
        return False
