"""Requests to language models and voices, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Image:
    """A picture in a message. For models that cannot see, ``content`` has a sentence of ``chars``
    characters in its place, from ``start`` on."""

    start: int
    chars: int
    url: str | None = field(repr=False)
    """A data URL; ``None``: no longer kept."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt."""

    role: Role
    content: str
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    """OpenAI-style function calls, as plain data; their arguments are text, which a client may have
    left broken."""
    tool_call_id: str = ""
    images: tuple[Image, ...] = ()
    """In order; an engine that cannot see may ignore them."""
    words: tuple[str, ...] = field(default=(), compare=False)
    """What the user said, message by message, without the notes that the prompt adds: who speaks,
    and when."""


@dataclass(frozen=True, slots=True)
class ToolOrigin:
    """The tool server that has a tool, and the tool's name there."""

    server: str
    name: str
    shown: bool = True
    """Whether the client sees calls."""
    read_only: bool = False
    """Whether the tool changes nothing."""
    offered: bool = True
    """Whether the model is offered it; otherwise only a rule calls it
    (``pipeline.speaking.words``)."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """Its JSON schema."""
    origin: ToolOrigin | None = None
    """``None``: the client executes it."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether tools may, must or must not be called."""

    kind: Literal["auto", "none", "required", "named"] = "auto"
    """``named``: only the tool called ``name``."""
    name: str = ""
    parallel: bool = True
    """One answer may contain several calls."""
    server: str = ""
    """``name`` is as this tool server knows it; an empty name means any of its tools. Engines never
    see ``server``."""

    @property
    def forces(self) -> bool:
        """Whether the answer must be a call, if there are tools."""
        return self.kind in ("required", "named")

    @property
    def most_calls(self) -> int:
        """How many calls one answer may make."""
        return 1 if self.kind == "named" or not self.parallel else 16

    def offered(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """Those of ``tools`` that the model should see: a named tool alone."""
        return [t for t in tools if t.name == self.name] if self.kind == "named" else tools

    def callable(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        return [] if self.kind == "none" else self.offered(tools)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to pick tokens."""

    temperature: float = 0.6
    top_p: float = 0.9
    min_p: float = 0.05
    repeat_penalty: float = 1.1
    dry_multiplier: float = 0.0
    """Above 0, phrases that the assistant has said become less likely; only engines that pick
    tokens themselves can do that."""
    seed: int | None = None
    max_tokens: int | None = None
    """``None``: up to the end of the context."""
    stops: Sequence[str] = ()
    """The answer may end with the first of these that it contains; an engine may ignore them, and
    anything after one does not count."""


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """A prompt for the language model: to answer, or to read ahead. Later versions may add fields.

    ``unfinished`` counts only for reading ahead: the words so far of a message that the user has
    not finished. If the last of ``messages`` is the user's, they continue it, after a space. They
    are whole words that will not change; the engine reads only what all continuations share.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = ToolChoice()
    sampling: Sampling = Sampling()
    unfinished: str = ""


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """One text to be spoken. Later versions may add fields."""

    text: str
    voice: str = ""
    """Empty or unknown means the default voice."""
    speed: float = 1.0
    """1.0 is the configured pace, 1.5 is faster."""
    language: str = ""
    """ISO 639-1; empty means the engine's own."""
    take: int = 0
    """If above 0, earlier takes of this text were not speech
    (``pipeline.speaking.clause_watch``)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one piece of work. ``prompt`` = ``cached`` + ``evaluated``."""

    prompt: int = 0
    cached: int = 0
    evaluated: int = 0
    generated: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.cached + other.cached,
            self.evaluated + other.evaluated,
            self.generated + other.generated,
        )


def has_words(text: str) -> bool:
    """Whether ``text`` has a letter or digit; a voice would read other text as "asterisk"."""
    return any(character.isalnum() for character in text)
