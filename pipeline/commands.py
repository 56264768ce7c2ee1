"""A client's commands to a session, as plain data. The Realtime protocol builds them from wire
messages; ``talk`` and tests build them directly.

``event_id`` names the client's message, so that a refusal can refer to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pipeline.audio import AudioFormat, Pcm
from pipeline.items import Item
from pipeline.messages import Tool, ToolChoice
from pipeline.settings import Eagerness, Endpointing

Modality = Literal["audio", "text"]

NoiseReduction = Literal["near_field", "far_field"]

BACKGROUND_DB: dict[NoiseReduction, float] = {"near_field": 9.0, "far_field": 12.0}
"""``endpointing.background_db`` for a client that says how near its speakers are."""


MAX_PREFIX_PADDING_MS = 2000
"""Most audio that the listener keeps before an onset."""


LEAST_THRESHOLD = 0.05
"""The API allows 0 and 1, but at 0 all silence would be speech, and at 1 nothing would."""


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """How the server detects turns. ``None`` in a field: the YAML's value applies."""

    threshold: float | None = None
    prefix_padding_ms: int | None = None
    silence_duration_ms: int | None = None
    eagerness: Eagerness | None = None
    """Set for semantic turn detection only."""
    idle_timeout_ms: int | None = None
    """How long a silence after an answer makes the server speak again; ``None``: none does."""
    create_response: bool = True
    interrupt_response: bool = True

    def over(self, ours: Endpointing) -> Endpointing:
        """``ours``, overridden by this. With the adaptive policy, ``silence_duration_ms`` limits
        the waits for clear and likely ends, but hesitations still get their time; with the strict
        policy it is the exact wait."""
        changes: dict[str, float] = {}
        if self.threshold is not None:
            threshold = min(max(self.threshold, LEAST_THRESHOLD), 1 - LEAST_THRESHOLD)
            changes["speech_threshold"] = threshold
            changes["silence_threshold"] = min(ours.silence_threshold, threshold)
        if self.prefix_padding_ms is not None:
            changes["prefix_padding_ms"] = min(self.prefix_padding_ms, MAX_PREFIX_PADDING_MS)
        limit = self.silence_duration_ms
        if limit is not None and ours.policy == "strict":
            changes |= dict.fromkeys(("clear_wait_ms", "likely_wait_ms", "unsure_wait_ms"), limit)
        elif limit is not None:
            changes["clear_wait_ms"] = min(ours.clear_wait_ms, limit)
            changes["likely_wait_ms"] = min(ours.likely_wait_ms, limit)
        asked = ours.model_copy(update=changes)
        return asked.paced(self.eagerness) if self.eagerness else asked


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Selects tools of a server: those with these ``names`` and this ``read_only``, where set."""

    names: tuple[str, ...] | None = None
    read_only: bool | None = None

    def admits(self, name: str, read_only: bool) -> bool:
        named = self.names is None or name in self.names
        return named and self.read_only in (None, read_only)


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A tool server that the client wants. A call of a tool needs the client's approval if the tool
    is in ``approved_singly``, or not in ``approved``."""

    label: str
    url: str = ""
    """Empty: the owner's server with this label."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False, metadata={"secret": True})
    """Sent to this server only, and never shown, logged or recorded."""
    allowed: ToolFilter = ToolFilter()
    approved: ToolFilter | None = None
    approved_singly: ToolFilter | None = None

    @property
    def place(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """Which server it is, and with whose headers: everything but the filters."""
        return self.label, self.url, self.headers

    def asks_first(self, name: str, read_only: bool) -> bool:
        """Whether the client must approve a call of this tool."""
        if self.approved_singly and self.approved_singly.admits(name, read_only):
            return True
        return self.approved is None or not self.approved.admits(name, read_only)


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The effective settings of one session."""

    instructions: str
    modality: Modality = "audio"
    voice: str = ""
    speed: float = 1.0
    """A factor on the voice's own pace."""
    output_format: AudioFormat = field(default_factory=AudioFormat)
    answers: bool = True
    """If false, the session only transcribes."""
    turn_detection: TurnDetection | None = field(default_factory=TurnDetection)
    """``None`` is push to talk."""
    noise_reduction: NoiseReduction | None = None
    """If ``None``, ``endpointing.background_db`` applies."""
    partials: bool = False
    """Whether stable words are published before an utterance is committed."""
    language: str = "en"
    """ISO 639-1; empty: the one heard."""
    asked_languages: tuple[str, ...] = ()
    """Those that the client prefers, as it wrote them, best first."""
    keywords: tuple[str, ...] = ()
    """Names and unusual words that the recogniser may not know."""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    servers: tuple[ServerRequest, ...] = ()
    max_output_tokens: int | Literal["inf"] | None = None
    """If ``None``, only the engine's own limit applies."""

    @property
    def answers_turns(self) -> bool:
        """Whether the server answers the turns that it detects without being asked."""
        detection = self.turn_detection
        return self.answers and detection is not None and detection.create_response

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that the model is told about."""
        return tuple(tool for tool in self.tools if not tool.origin or tool.origin.offered)

    @property
    def interruptible(self) -> bool:
        """Whether speech over an answer may end it."""
        return self.turn_detection is not None and self.turn_detection.interrupt_response

    def with_options(self, options: ResponseOptions) -> SessionConfig:
        """The configuration of one response."""
        names = ("instructions", "modality", "voice", "output_format", "tools", "tool_choice")
        given = {name: getattr(options, name) for name in (*names, "max_output_tokens")}
        config = replace(self, **{name: each for name, each in given.items() if each is not None})
        if not options.in_conversation:  # where would the output of a server's tool go?
            config = replace(config, tools=tuple(each for each in config.tools if not each.origin))
        if config.tool_choice.server:
            tools, choice = _of_server(config.tools, config.tool_choice)
            config = replace(config, tools=tools, tool_choice=choice)
        return config


def _of_server(tools: tuple[Tool, ...], choice: ToolChoice) -> tuple[tuple[Tool, ...], ToolChoice]:
    """Translates the choice of a server's tool to the name that the model reads. Tools that are not
    there, or not yet, cannot be chosen."""
    theirs = tuple(t for t in tools if t.origin and t.origin.server == choice.server)
    for tool in theirs:
        if tool.origin and tool.origin.name == choice.name:
            return tools, ToolChoice("named", tool.name, choice.parallel)
    if choice.name or not theirs:
        return tools, ToolChoice(parallel=choice.parallel)
    return theirs, ToolChoice("required", parallel=choice.parallel)


@dataclass(frozen=True, slots=True)
class ItemReference:
    """Stands for an item of the conversation."""

    item_id: str


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """Overrides for one response. ``None``: the session's value."""

    instructions: str | None = None
    modality: Modality | None = None
    voice: str | None = None
    output_format: AudioFormat | None = None
    tools: tuple[Tool, ...] | None = None
    tool_choice: ToolChoice | None = None
    max_output_tokens: int | Literal["inf"] | None = None
    in_conversation: bool = True
    """False is an out-of-band response."""
    input: tuple[Item | ItemReference, ...] | None = None
    """Replaces the conversation as context (an empty tuple: no context at all)."""
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Direction:
    azimuth_deg: float
    """0 to 360, where 0 is the array's left, 90 its front (a linear array cannot tell it from the
    back) and 180 its right."""
    speech: bool
    """Whether the array hears speech now."""


class Command:
    """A client's request to a session."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Configure(Command):
    config: SessionConfig


@dataclass(frozen=True, slots=True, eq=False)
class AppendAudio(Command):
    """More microphone audio, at ``rate`` Hz."""

    pcm: Pcm
    rate: int
    event_id: str | None = None
    reference: Pcm | None = None
    """If microphone and loudspeaker are this machine's, the loudspeaker's samples meanwhile, of the
    same length; then the rate is 16 kHz."""
    reference_moved: int | None = None
    """Set if there was a gap before ``reference`` (``EchoPath.reference_moved``)."""
    live: bool = False
    """From a track, which never pauses."""


@dataclass(frozen=True, slots=True)
class NoteDirection(Command):
    """A microphone array's report, about ten times a second."""

    direction: Direction


@dataclass(frozen=True, slots=True)
class WakeUp(Command):
    """The robot was touched: it listens without having been called."""


@dataclass(frozen=True, slots=True)
class CommitAudio(Command):
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClearAudio(Command):
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class AddItem(Command):
    item: Item
    after: str | None = None
    """Id of the item before it, ``Chat.ROOT``, or ``None`` for the end."""
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteItem(Command):
    item_id: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class RetrieveItem(Command):
    item_id: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class TruncateItem(Command):
    item_id: str
    content_index: int
    audio_end_ms: int
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class CreateResponse(Command):
    options: ResponseOptions = field(default_factory=ResponseOptions)
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class CancelResponse(Command):
    response_id: str | None = None
    """``None``: the response that owns the loudspeaker."""
    event_id: str | None = None
