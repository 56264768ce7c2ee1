"""``conversation.item.retrieved``: an item with its audio and images, in frames that a default
client accepts.

An item too large for one frame is sent as several events in order. Each has the whole item with all
its text and one piece of the audio; together the pieces are the recording. An image too large for a
frame is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.audio import AudioFormat, resampled
from pipeline.items import AudioPart, ImagePart, Item, MessageItem
from pipeline.realtime import wire
from pipeline.realtime.items import item_to_wire

_FIELD_CHARS = 32
"""Room for the field name and punctuation of one piece of audio or image."""

_EVENT_CHARS = 1024
"""Room for the event around an item."""

_MIN_PIECE_CHARS = 4096
"""If a frame has less room than this, the next one is used."""

Page = dict[int, dict[str, str]]
"""Audio and images that one frame adds to the item, by part index."""


def retrieved_items(
    item: Item, input_format: AudioFormat, output_format: AudioFormat
) -> Iterator[dict[str, Any]]:
    """The item as sent, once per frame. User audio is in ``input_format``; assistant audio, up to
    where it was heard, in ``output_format``."""
    shown = item_to_wire(item)
    if not isinstance(item, MessageItem):
        yield shown
        return
    format = output_format if item.role == "assistant" else input_format
    room = wire.MAX_FRAME_CHARS - _EVENT_CHARS - len(wire.encode(shown))
    for page in _pages(item, format, max(room, 2 * _MIN_PIECE_CHARS)):
        content = [{**part, **page.get(at, {})} for at, part in enumerate(shown["content"])]
        yield {**shown, "content": content}


def _pages(item: MessageItem, format: AudioFormat, room: int) -> list[Page]:
    frames = _Frames(room)
    for at, part in enumerate(item.parts):
        match part:
            case ImagePart(url=str(url)):
                frames.add_image(at, url)
            case AudioPart(audio=audio) if audio is not None:
                # The recording of an answer goes beyond what was heard.
                heard = audio.until(part.seconds) if item.role == "assistant" else audio
                pcm = resampled(heard.pcm, heard.rate, format.rate)
                frames.add_audio(at, wire.bytes_of(pcm, format))
    return frames.pages


class _Frames:
    """Fills frames one after another; ``room`` in characters."""

    def __init__(self, room: int) -> None:
        self.pages: list[Page] = [{}]
        self._room = room
        self._left = room

    def add_image(self, at: int, url: str) -> None:
        """Add an image, unless it is too large for any frame."""
        if len(url) + _FIELD_CHARS <= self._room:
            self._put(at, "image_url", url)

    def add_audio(self, at: int, data: bytes) -> None:
        start = 0
        while start < len(data):
            if self._left < _MIN_PIECE_CHARS:
                self._turn_page()
            # Base64 has four characters for three bytes; keep 16-bit samples whole.
            size = (self._left - _FIELD_CHARS) // 8 * 6
            self._put(at, "audio", wire.base64_text(data[start : start + size]))
            start += size

    def _put(self, at: int, name: str, text: str) -> None:
        chars = len(text) + _FIELD_CHARS
        if chars > self._left:
            self._turn_page()
        self.pages[-1][at] = {name: text}
        self._left -= chars

    def _turn_page(self) -> None:
        self.pages.append({})
        self._left = self._room
