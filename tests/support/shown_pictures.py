"""Pictures for tests, and messages that contain them."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from pipeline.items import UNSEEN_IMAGE
from pipeline.messages import Image, Message
from tests.support.places import DATA


def png(width: int, height: int, seed: int = 0) -> bytes:
    """A picture of stripes."""
    draw = np.random.default_rng(seed)
    row = bytes([0]) + draw.integers(0, 255, (1, 3), np.uint8).repeat(width, 0).tobytes()
    other = bytes([0]) + draw.integers(0, 255, (1, 3), np.uint8).repeat(width, 0).tobytes()
    rows = b"".join(other if (y * 4 // height) % 2 else row for y in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = zlib.compress(rows, 1)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    )


def url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


JPEG = url((DATA / "pictures" / "ball.jpg").read_bytes(), "jpeg")
ONE, OTHER = url(png(48, 32, 1)), url(png(48, 32, 2))


def shows(*urls: str | None, text: str = "What is that?") -> Message:
    images = []
    content = ""
    for one in urls:
        images.append(Image(len(content), len(UNSEEN_IMAGE), one))
        content += f"{UNSEEN_IMAGE} "
    return Message("user", f"{content}{text}", images=tuple(images))
