"""What a conversation is made of: immutable items, and the parts of messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pipeline.audio import Recording

UNSEEN_IMAGE = "(An image was shared here. This assistant cannot see images.)"
"""What a model without vision reads in an image's place; it can say so instead of inventing."""

ItemStatus = Literal["in_progress", "completed", "incomplete"]

MessageRole = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class AudioPart:
    """Speech. ``transcript`` is ``None`` until it is known; ``seconds`` is its length.

    ``audio`` is what was said, as long as it is kept. Of an answer, ``audio`` and ``sent_seconds``
    are everything that was sent, even when less was heard. ``clauses`` are its words, each clause
    with the seconds of all its audio, also of what was not sent any more.
    """

    transcript: str | None
    seconds: float = 0.0
    audio: Recording | None = field(default=None, compare=False, repr=False)
    clauses: tuple[tuple[str, float], ...] = field(default=(), compare=False, repr=False)
    sent_seconds: float | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ImagePart:
    """A picture as a data URL; ``None`` when it is not kept any more."""

    url: str | None = field(repr=False)
    detail: str = "auto"


Part = TextPart | AudioPart | ImagePart


@dataclass(frozen=True, slots=True)
class MessageItem:
    id: str
    role: MessageRole
    parts: tuple[Part, ...] = ()
    status: ItemStatus = "completed"
    notice: bool = field(default=False, compare=False)
    """Said by the server, and not by the model, whose prompts do not have it."""

    @property
    def unread(self) -> bool:
        """Whether it has recordings that were not transcribed."""
        return any(_is_unread(part) for part in self.parts)

    @property
    def text(self) -> str:
        """All that was said or written in it."""
        return " ".join(text for text in map(spoken_text, self.parts) if text)


def _is_unread(part: Part) -> bool:
    return isinstance(part, AudioPart) and part.transcript is None and part.audio is not None


def spoken_text(part: Part) -> str:
    match part:
        case TextPart():
            return part.text
        case AudioPart():
            return part.transcript or ""
        case ImagePart():
            return UNSEEN_IMAGE


@dataclass(frozen=True, slots=True)
class FunctionCallItem:
    """``arguments`` is the JSON text that the model wrote."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus = "completed"


@dataclass(frozen=True, slots=True)
class FunctionOutputItem:
    id: str
    call_id: str
    output: str
    status: ItemStatus = "completed"


Item = MessageItem | FunctionCallItem | FunctionOutputItem


def text_chars(item: Item) -> int:
    """How much text it holds."""
    match item:
        case MessageItem():
            return len(item.text)
        case FunctionCallItem():
            return len(item.arguments)
        case FunctionOutputItem():
            return len(item.output)
