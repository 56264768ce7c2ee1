"""Requests to language models and voices, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Image:
    """A picture in a message. For models that cannot see, ``content`` has a sentence of ``chars``
    characters in its place, from ``start`` on. ``url``: a data URL; ``None``: no longer kept."""

    start: int
    chars: int
    url: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt. ``tool_calls`` are OpenAI-style function calls, as plain data; their
    arguments are text, which a client may have left broken. ``images``: in order; an engine that
    cannot see may ignore them. ``words``: what the user said, message by message, without the
    notes that the prompt adds: who speaks, and when."""

    role: Role
    content: str
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    tool_call_id: str = ""
    images: tuple[Image, ...] = ()
    words: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class ToolOrigin:
    """The tool server that has a tool, and the tool's name there. ``shown``: whether the client is
    told of calls. ``read_only``: whether the tool changes nothing. ``offered``: whether the model
    is told of it; otherwise only a rule calls it (``pipeline.speaking.rules``)."""

    server: str
    name: str
    shown: bool = True
    read_only: bool = False
    offered: bool = True


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call; ``parameters`` is its JSON schema. ``origin`` ``None``: the
    client executes it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    origin: ToolOrigin | None = None


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether tools may, must or must not be called; ``named``: only the tool called ``name``.
    ``parallel``: one answer may contain several calls. ``server``: ``name`` is as this tool server
    knows it; an empty name means any of its tools. Engines never see ``server``."""

    kind: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""
    parallel: bool = True
    server: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to pick tokens. ``dry_multiplier``: above 0, phrases of the assistant's earlier answers
    become less likely; only engines that pick tokens themselves can do that. ``max_tokens`` None:
    up to the end of the context. ``stops``: the answer may end with the first of these that it
    contains; an engine may ignore them, and anything after one does not count."""

    temperature: float = 0.6
    top_p: float = 0.9
    min_p: float = 0.05
    repeat_penalty: float = 1.1
    dry_multiplier: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    stops: Sequence[str] = ()


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
    """One text to be spoken. Later versions may add fields.

    ``voice``: empty or unknown means the default voice. ``speed``: 1.0 is the configured pace, 1.5
    is faster. ``language``: ISO 639-1; empty means the engine's own. ``take``: if above 0, earlier
    takes of this text were not speech (``pipeline.speaking.clause_watch``).
    """

    text: str
    voice: str = ""
    speed: float = 1.0
    language: str = ""
    take: int = 0


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
