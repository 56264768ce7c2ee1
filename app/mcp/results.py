"""What an MCP server returned, as text and pictures for the model."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import Any

from mcp import Client
from mcp.types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from pipeline.tools.contract import CallResult

MOST_CHARS = 50_000
"""Longest text of one result. The model reads less if its context is smaller."""
MOST_IMAGES = 2
MOST_IMAGE_CHARS = 4 * 2**20
"""Largest picture in base64: 3 MiB."""
IMAGE_TYPES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
"""How the data of pictures begin, whatever type a server calls them. With anything else, a model by
URL would fail every later answer."""
NO_OUTPUT = "(Done; there is no output.)"
UNREADABLE = "(Data that cannot be read.)"
MALFORMED: Mapping[str, Any] = {"type": "object", "$comment": "its tool is malformed"}
"""Schema of a tool that stands for a malformed one."""
_PARTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "tools/list": ("tools", {"inputSchema": MALFORMED}),
    "tools/call": ("content", {"type": "text", "text": UNREADABLE}),
}
"""Where results have parts, and what stands for a malformed one."""
_UNREAD = {"_meta", "execution", "icons", "outputSchema", "title"}
"""Fields of a part that nothing here reads."""


def mend_results(client: Client) -> None:
    """Have ``client`` replace malformed parts of results: for one, the SDK would refuse all tools
    of a server, or all words of a result."""
    dispatcher, version = client.session._dispatcher, client.protocol_version
    send = dispatcher.send_raw_request

    def fits(method: str, result: Mapping[str, Any]) -> bool:
        try:
            return bool(parse_server_result(method, version, result))
        except ValidationError:
            return False

    async def mended(method: str, *given: Any) -> dict[str, Any]:
        result = {k: v for k, v in (await send(method, *given)).items() if v is not None}
        key, instead = _PARTS.get(method, ("", {}))
        known = key in result or key == "content"
        if known and not fits(method, result):
            parts, result[key] = result.get(key, []), []
            for part in parts if isinstance(parts, list) else [parts]:
                await asyncio.sleep(0)  # there may be many
                fields = part if isinstance(part, dict) else {}
                read = {k: v for k, v in fields.items() if k not in _UNREAD}
                other = {**instead, "name": str(fields.get("name"))}
                result[key].append(read if fits(method, {**result, key: [read]}) else other)
        return result

    setattr(dispatcher, "send_raw_request", mended)  # noqa: B010


def call_result(result: CallToolResult) -> CallResult:
    """Convert a result. A tool's own error counts as an error, too."""
    images: list[str] = []
    texts = [text for each in result.content if (text := _text(each, images))]
    if not texts and result.structured_content is not None:
        texts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = _shorten("\n".join(texts))
    if result.is_error:
        return CallResult(error=text or "(It gives no reason.)")
    return CallResult(text or NO_OUTPUT, tuple(images[:MOST_IMAGES]))


def _data_url(base64_text: str) -> str:
    """The data URL of a picture that can be shown; else empty. Lines may be broken, as in mail."""
    text = "".join(base64_text.split())
    try:
        data = base64.b64decode(text, validate=True) if len(text) <= MOST_IMAGE_CHARS else b""
    except ValueError:
        return ""
    kinds = (kind for beginning, kind in IMAGE_TYPES.items() if data.startswith(beginning))
    return next((f"data:{kind};base64,{text}" for kind in kinds), "")


def _text(content: Any, images: list[str]) -> str:
    """``images`` gets pictures that can be shown, as data URLs."""
    match content:
        case TextContent():
            return content.text
        case ImageContent(data=data) if url := _data_url(data):
            images.append(url)
            return "(A picture follows.)"
        case ImageContent():
            return f"(A picture that cannot be shown: {content.mime_type}, broken, or too large.)"
        case AudioContent():
            return "(A sound, which cannot be played.)"
        case ResourceLink():
            return f"{content.name}: {content.uri}"
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
        case _:
            return UNREADABLE


def _shorten(text: str) -> str:
    if len(text) <= MOST_CHARS:
        return text
    return f"{text[:MOST_CHARS]} […{len(text) - MOST_CHARS} characters left out]"
