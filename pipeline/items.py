"""The elements of a conversation: immutable items, and the parts of messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.audio import Recording

UNSEEN_IMAGE = "(An image was shared here. This assistant cannot see images.)"
"""What a model without vision reads in place of an image, so that it says so and does not guess."""

ItemStatus = Literal["in_progress", "completed", "incomplete"]

MessageRole = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class AudioPart:
    """Speech. In an answer, ``audio`` and ``sent_seconds`` cover everything that was sent, even if
    less was heard."""

    transcript: str | None
    """``None`` until it is known."""
    seconds: float = 0.0
    audio: Recording | None = field(default=None, compare=False, repr=False)
    """The speech, while it is kept."""
    clauses: tuple[tuple[str, float], ...] = field(default=(), compare=False, repr=False)
    """Its words, each clause with the seconds of all its audio, including audio that was not
    sent."""
    sent_seconds: float | None = field(default=None, compare=False, repr=False)
    speaker: str = ""
    """Whose voice it is; empty: unknown."""


@dataclass(frozen=True, slots=True)
class ImagePart:
    """A picture as a data URL; ``None`` if it is no longer kept."""

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
    """Whether the server said it and not the model; then it appears in no prompt."""
    interrupted: bool = field(default=False, compare=False)
    """Whether it is an answer that was cut off and not continued later."""
    at: float | None = field(default=None, compare=False)
    """When the turn began, in seconds since 1970; ``None``: the model is not told."""

    @property
    def unread(self) -> bool:
        """Whether it has recordings that are not transcribed yet."""
        return any(_is_unread(part) for part in self.parts)

    @property
    def text(self) -> str:
        """Everything said or written in it."""
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
class ServerCall:
    """What became of a call at a tool server: nothing yet, an ``output``, or an ``error``."""

    server: str
    name: str
    """The tool's name at the server."""
    shown: bool = True
    """Whether the client is told."""
    output: str | None = None
    error: str | None = None
    error_code: int | None = None
    """Of JSON-RPC, if the server refused the call."""
    approval_id: str | None = None
    """The request to approve the call."""
    offered: bool = True
    """Whether the model knows the tool, and so reads the call in the prompt."""
    read_only: bool = False
    """Whether the tool changes nothing."""


@dataclass(frozen=True, slots=True)
class FunctionCallItem:
    id: str
    call_id: str
    name: str
    arguments: str
    """The JSON text that the model wrote."""
    status: ItemStatus = "completed"
    server: ServerCall | None = None
    """``None``: the client executes the call; otherwise its output is also in the conversation, as
    an item that clients do not see."""


@dataclass(frozen=True, slots=True)
class FunctionOutputItem:
    id: str
    call_id: str
    output: str
    status: ItemStatus = "completed"


@dataclass(frozen=True, slots=True)
class ToolServerItem:
    """The tools of a server, a request to approve a call, or the answer to one; ``fields`` as the
    API names them. No model reads it."""

    id: str
    type: Literal["mcp_list_tools", "mcp_approval_request", "mcp_approval_response"]
    fields: Mapping[str, Any]
    status: ItemStatus = "completed"


Item = MessageItem | FunctionCallItem | FunctionOutputItem | ToolServerItem


def is_hidden_call(item: Item) -> bool:
    """Whether it is a call that the client is not told about."""
    return isinstance(item, FunctionCallItem) and item.server is not None and not item.server.shown


def text_chars(item: Item) -> int:
    """How much text it holds."""
    match item:
        case MessageItem():
            return len(item.text)
        case FunctionCallItem():
            return len(item.arguments)
        case FunctionOutputItem():
            return len(item.output)
        case ToolServerItem():
            return 0
