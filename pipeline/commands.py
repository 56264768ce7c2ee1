"""What a client may ask of a session, as plain data. The Realtime protocol makes these from wire
messages; ``talk`` and tests make them directly.

``event_id`` names the client's message, so that a refusal can say which one it answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.audio import Pcm
from pipeline.chat import Item
from pipeline.engines import Tool
from pipeline.turns import Endpointing

Modality = Literal["audio", "text"]


MAX_PREFIX_PADDING_MS = 2000
"""Further back the listener remembers nothing."""


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """How the server finds turns. ``None`` in a field: the YAML's value rules."""

    threshold: float | None = None
    prefix_padding_ms: int | None = None
    silence_duration_ms: int | None = None
    create_response: bool = True
    interrupt_response: bool = True

    def over(self, ours: Endpointing) -> Endpointing:
        """``ours`` with this on top. ``silence_duration_ms`` bounds the waits for ends that are
        clear or likely; a hesitation is still given its time."""
        changes: dict[str, float] = {}
        if self.threshold is not None:
            changes["speech_threshold"] = self.threshold
            changes["silence_threshold"] = min(ours.silence_threshold, self.threshold)
        if self.prefix_padding_ms is not None:
            changes["prefix_padding_ms"] = min(self.prefix_padding_ms, MAX_PREFIX_PADDING_MS)
        if (limit := self.silence_duration_ms) is not None:
            changes["clear_wait_ms"] = min(ours.clear_wait_ms, limit)
            changes["likely_wait_ms"] = min(ours.likely_wait_ms, limit)
        return ours.model_copy(update=changes)


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The effective settings of one session.

    ``input_rate`` and ``output_rate`` in Hz; ``turn_detection`` ``None`` is push to talk;
    ``max_output_tokens`` ``None`` is no limit but the engine's own.
    """

    instructions: str
    modality: Modality = "audio"
    voice: str = ""
    input_rate: int = 24_000
    output_rate: int = 24_000
    turn_detection: TurnDetection | None = field(default_factory=TurnDetection)
    transcription: bool = False
    language: str = "en"
    tools: tuple[Tool, ...] = ()
    tool_choice: str | Mapping[str, Any] = "auto"
    max_output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """Overrides of one response. ``None`` or empty: what the session says.

    ``in_conversation`` False is an out-of-band response. ``input`` replaces the conversation as
    context (an empty tuple: no context at all).
    """

    instructions: str | None = None
    modality: Modality | None = None
    voice: str | None = None
    tools: tuple[Tool, ...] | None = None
    max_output_tokens: int | None = None
    in_conversation: bool = True
    input: tuple[Item, ...] | None = None
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Configure:
    config: SessionConfig


@dataclass(frozen=True, slots=True, eq=False)
class AppendAudio:
    """More microphone audio, at ``rate`` Hz."""

    pcm: Pcm
    rate: int


@dataclass(frozen=True, slots=True)
class CommitAudio:
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClearAudio:
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class AddItem:
    """``after``: id of the item before it, ``Chat.ROOT``, or ``None`` for the end."""

    item: Item
    after: str | None = None
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteItem:
    item_id: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class TruncateItem:
    item_id: str
    content_index: int
    audio_end_ms: int
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class CreateResponse:
    options: ResponseOptions = field(default_factory=ResponseOptions)
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class CancelResponse:
    """``response_id`` ``None``: the response that owns the speaker."""

    response_id: str | None = None
    event_id: str | None = None


Command = (
    Configure
    | AppendAudio
    | CommitAudio
    | ClearAudio
    | AddItem
    | DeleteItem
    | TruncateItem
    | CreateResponse
    | CancelResponse
)
