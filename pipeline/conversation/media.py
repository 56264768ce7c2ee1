"""Which recordings and pictures of a conversation are kept. Pure.

The newest ``AUDIO_KEPT_S`` seconds of audio are kept, and the newest pictures. If pictures become
too many or too large, all but the newest one are dropped at once, because each drop changes a
prompt that the model has read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipeline.items import AudioPart, ImagePart, Item, MessageItem, Part

AUDIO_KEPT_S = 300.0
PICTURES_KEPT = 4
PICTURE_CHARS_KEPT = 8 * 2**20
"""Total length of their data URLs: 6 MiB of files."""


def has_media(item: Item) -> bool:
    """Whether it holds audio or a picture."""
    return isinstance(item, MessageItem) and any(map(_is_media, item.parts))


def without_old_media(items: Sequence[MessageItem]) -> Iterator[MessageItem]:
    """The ones of ``items`` (newest first) that lose audio or pictures, with these removed."""
    left_s, spare, newest = AUDIO_KEPT_S, _pictures_to_spare(items), True
    for item in items:
        parts = list(item.parts)
        for at in range(len(parts) - 1, -1, -1):
            part = parts[at]
            if isinstance(part, AudioPart) and part.audio:
                left_s -= part.audio.seconds
                if left_s < 0:
                    parts[at] = replace(part, audio=None)
            elif isinstance(part, ImagePart) and part.url:
                if spare and not newest:
                    parts[at] = replace(part, url=None)
                newest = False
        if any(new is not old for new, old in zip(parts, item.parts, strict=True)):
            yield replace(item, parts=tuple(parts))


def _is_media(part: Part) -> bool:
    return bool(getattr(part, "audio", None) or getattr(part, "url", None))


def _pictures_to_spare(items: Sequence[MessageItem]) -> bool:
    """Whether pictures are too many or too large."""
    parts = (part for item in items for part in item.parts)
    urls = [part.url for part in parts if isinstance(part, ImagePart) and part.url]
    return len(urls) > PICTURES_KEPT or sum(map(len, urls)) > PICTURE_CHARS_KEPT
