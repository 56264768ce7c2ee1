"""Pictures in messages: finding, replacing and moving them."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace

from pipeline.messages import Image, Message

UNREADABLE_IMAGE = "(An image was shared here. It is broken and cannot be seen.)"
FORGOTTEN_IMAGE = "(An image was shared here. It is not there any more.)"
"""What a model with vision reads in place of an image that was not kept."""


def joined(first: Message, second: Message, between: str) -> Message:
    """Both messages as one, with the first one's role and all pictures."""
    start = len(first.content) + len(between)
    later_images = (replace(image, start=start + image.start) for image in second.images)
    content = f"{first.content}{between}{second.content}"
    words = first.words + second.words
    return replace(first, content=content, images=(*first.images, *later_images), words=words)


def pieces(message: Message) -> Iterator[str | Image]:
    """The message's texts and pictures in order, without the sentences that stand for pictures."""
    at = 0
    for image in message.images:
        if text := message.content[at : image.start]:
            yield text
        yield image
        at = image.start + image.chars
    if text := message.content[at:]:
        yield text


def in_words(message: Message, sentence: Callable[[Image], str | None]) -> Message:
    """The message with each picture replaced by its ``sentence``; ``None`` keeps the picture."""
    if not message.images:
        return message
    content, images = "", []
    for piece in pieces(message):
        if isinstance(piece, str):
            content += piece
            continue
        words = sentence(piece)
        if words is None:
            words = message.content[piece.start : piece.start + piece.chars]
            images.append(replace(piece, start=len(content)))
        content += words
    return replace(message, content=content, images=tuple(images))


def data_of(url: str) -> bytes | None:
    """The file in a data URL; ``None`` if ``url`` is not one."""
    head, comma, text = url.partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_NO_SIZE = (0xC4, 0xC8, 0xCC)
"""JPEG markers from 0xC0 to 0xCF that do not begin a frame: tables and extensions."""
_BARE = (0x01, *range(0xD0, 0xD9))
"""JPEG markers that no length follows."""


def pixels(data: bytes) -> tuple[int, int] | None:
    """Width and height from the header of a PNG or JPEG; ``None`` for other data."""
    if data.startswith(_PNG) and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        return width, height
    return _jpeg_pixels(data) if data.startswith(_JPEG) else None


def _jpeg_pixels(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif marker in _BARE:
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_SIZE:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        else:
            at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return None
