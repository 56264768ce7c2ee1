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
    """Speech. ``transcript`` is ``None`` until it is known; ``seconds`` is its length. ``speaker``:
    whose voice it is; empty: unknown.

    ``audio`` is the speech, while it is kept. In an answer, ``audio`` and ``sent_seconds`` cover
    everything that was sent, even if less was heard. ``clauses`` are its words, each clause with
    the seconds of all its audio, including audio that was not sent.
    """

    transcript: str | None
    seconds: float = 0.0
    audio: Recording | None = field(default=None, compare=False, repr=False)
    clauses: tuple[tuple[str, float], ...] = field(default=(), compare=False, repr=False)
    sent_seconds: float | None = field(default=None, compare=False, repr=False)
    speaker: str = ""


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
    """What became of a call at the tool server ``server``, where the tool is called ``name``:
    nothing yet, an ``output``, or an ``error``. ``error_code``: of JSON-RPC, if the server refused
    the call. ``approval_id``: the request to approve it. ``shown``: whether the client is told.
    ``offered``: whether the model knows the tool, and so reads the call in the prompt.
    ``read_only``: whether the tool changes nothing."""

    server: str
    name: str
    shown: bool = True
    output: str | None = None
    error: str | None = None
    error_code: int | None = None
    approval_id: str | None = None
    offered: bool = True
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class FunctionCallItem:
    """``arguments`` is the JSON text that the model wrote. ``server`` ``None``: the client executes
    the call; otherwise its output is also in the conversation, as an item that clients do not see.
    """

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus = "completed"
    server: ServerCall | None = None


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
