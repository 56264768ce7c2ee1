"""What an MCP server returned, as text and pictures for the model."""

from __future__ import annotations

import base64
import json
from typing import Any

from mcp.types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

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


def call_result(result: CallToolResult) -> CallResult:
    """Convert a result. A tool's own error counts as an error, too."""
    images: list[str] = []
    texts = [text for each in result.content if (text := _text(each, images))]
    if not texts and result.structured_content is not None:
        texts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = _shorten("\n".join(texts)) or NO_OUTPUT
    if result.is_error:
        return CallResult(error=text)
    return CallResult(text, tuple(images[:MOST_IMAGES]))


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
            return "(Data that cannot be read.)"


def _shorten(text: str) -> str:
    if len(text) <= MOST_CHARS:
        return text
    return f"{text[:MOST_CHARS]} […{len(text) - MOST_CHARS} characters left out]"
