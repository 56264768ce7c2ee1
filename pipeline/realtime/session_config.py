"""The effective session: as shown in ``session.updated``, and as passed to the pipeline.

An update changes only the fields that it names, at any depth; null resets a field to the server's
default. An update that is refused changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.audio import AudioFormat, Encoding
from pipeline.commands import ServerRequest, SessionConfig
from pipeline.messages import Tool, ToolChoice
from pipeline.realtime import g711, turn_detection, wire
from pipeline.realtime.schema import (
    AnyTool,
    AudioInput,
    AudioOutput,
    FormatFields,
    McpTool,
    SessionFields,
    TranscriptionFields,
)
from pipeline.realtime.tool_servers import server_requests, shown_server
from pipeline.realtime.wire import WireError, invalid, shown_format

SESSION_SECONDS = 24 * 3600
"""For ``expires_at``, which clients read. Sessions here do not expire."""

NATIVE_RATE = 16_000
"""Hz; the meaning of ``rate: null``. The rate of the robot's sound board, so that the Reachy Mini
app need not resample."""

_ENCODINGS: dict[str, Encoding] = {
    "audio/pcm": "pcm",
    "audio/pcmu": "pcmu",
    "audio/pcma": "pcma",
}
_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}
_SHOWN_WHEN_SET = frozenset({"parallel_tool_calls", "reasoning"})
_FIXED = frozenset({"type", "id", "object", "expires_at", "model"})


@dataclass(frozen=True, slots=True)
class SessionDefaults:
    """A session's settings before its client sends any."""

    model: str
    voice: str
    """Used for all names that are not among ``voices``."""
    voices: Sequence[str] = ()
    """Names that the speech engine knows."""
    instructions: str = ""
    language: str = "en"
    """ISO 639-1."""
    language_fixed: bool = False
    """Whether clients cannot change it."""
    transcription: bool = False
    """The session only transcribes (``?intent=transcription``)."""
    partials: bool = False
    """Send partial transcripts even if the client did not ask for them."""
    tool_servers: Sequence[str] = ()
    """The owner's MCP servers, by their labels."""
    tool_server_urls: Sequence[str] = ()
    """Other MCP servers that clients may name."""


@dataclass(frozen=True, slots=True)
class _State:
    """Everything a client can change."""

    fields: Mapping[str, Any]
    """Plain ones, as shown."""
    voice: str
    speed: float = 1.0
    input_format: AudioFormat = field(default_factory=AudioFormat)
    output_format: AudioFormat = field(default_factory=AudioFormat)
    transcription: Mapping[str, Any] | None = None
    noise_reduction: Mapping[str, Any] | None = None
    turn_detection: Mapping[str, Any] | None = None
    """``transcription``, ``noise_reduction`` and ``turn_detection`` are as the client sent them."""
    servers: tuple[ServerRequest, ...] = ()


class EffectiveSession:
    def __init__(self, defaults: SessionDefaults, session_id: str, created_at: float) -> None:
        """``created_at``: wall clock, in seconds."""
        self._defaults = defaults
        self.answers = not defaults.transcription
        kind = "realtime.session" if self.answers else "realtime.transcription_session"
        self._identity: dict[str, Any] = {
            "type": "realtime" if self.answers else "transcription",
            "object": kind,
            "id": session_id,
            "expires_at": int(created_at) + SESSION_SECONDS,
        }
        self._initial: dict[str, Any] = {"include": None}
        if self.answers:
            self._identity["model"] = defaults.model
            self._initial |= {
                "output_modalities": ["audio"],
                "instructions": defaults.instructions,
                "tools": [],
                "tool_choice": "auto",
                "parallel_tool_calls": None,
                "reasoning": None,
                "max_output_tokens": "inf",
                "truncation": "auto",
                "tracing": None,
                "prompt": None,
            }
        self._no_transcription = None if self.answers else {"model": defaults.model}
        self._state = _State(
            self._initial,
            defaults.voice,
            transcription=self._no_transcription,
            turn_detection=turn_detection.DEFAULT,
        )

    @property
    def transcribes(self) -> bool:
        """Whether the client gets transcripts of the user."""
        return self._state.transcription is not None

    @property
    def input_format(self) -> AudioFormat:
        return self._state.input_format

    @property
    def output_format(self) -> AudioFormat:
        return self._state.output_format

    @property
    def tools(self) -> tuple[Tool, ...]:
        return _tools(self._state)

    # --- change ----------------------------------------------------------------------------

    def update(self, given: SessionFields | TranscriptionFields) -> None:
        """Merge one checked ``session.update``, completely or not at all. Raises ``WireError``."""
        if isinstance(given, SessionFields) != self.answers:
            raise self._wrong_type(given.type)
        state = self._with_fields(self._state, given)
        if given.audio is not None and given.audio.input is not None:
            state = self._with_input(state, given.audio.input)
        if isinstance(given, SessionFields) and given.audio is not None and given.audio.output:
            state = self._with_output(state, given.audio.output)
        if self.answers:
            _tool_choice(state)
        if len(wire.encode(self._shown(state))) > wire.MAX_SHOWN_CHARS:
            raise WireError(
                "invalid_value",
                f"Invalid value at 'session': with this update the session is longer than "
                f"{wire.MAX_SHOWN_CHARS} characters of JSON. Shorten instructions or tools.",
                param="session",
            )
        self._state = state

    def _with_fields(self, state: _State, given: SessionFields | TranscriptionFields) -> _State:
        plain = given.model_dump(exclude_unset=True, exclude={"audio", "tools"})
        fields = dict(state.fields)
        for name in plain.keys() - _FIXED:
            fields[name] = self._initial[name] if plain[name] is None else plain[name]
        if isinstance(given, SessionFields) and "tools" in given.model_fields_set:
            asked, allowed = given.tools or (), self._defaults.tool_server_urls
            fields["tools"] = [shown_tool(tool) for tool in asked]
            servers = server_requests(asked, self._defaults.tool_servers, allowed)
            state = replace(state, servers=servers)
        return replace(state, fields=fields)

    def _with_input(self, state: _State, given: AudioInput) -> _State:
        fields = given.model_dump(exclude_unset=True)
        changes: dict[str, Any] = {}
        if "format" in fields:
            changes["input_format"] = merged_format(state.input_format, given.format)
        if "transcription" in fields:
            merged = _merged(state.transcription, fields["transcription"])
            changes["transcription"] = self._no_transcription if merged is None else merged
        if "noise_reduction" in fields:
            changes["noise_reduction"] = _merged(state.noise_reduction, fields["noise_reduction"])
        if "turn_detection" in fields:
            changes["turn_detection"] = turn_detection.merged(
                state.turn_detection, fields["turn_detection"]
            )
        return replace(state, **changes)

    def _with_output(self, state: _State, given: AudioOutput) -> _State:
        changes: dict[str, Any] = {}
        if "format" in given.model_fields_set:
            changes["output_format"] = merged_format(state.output_format, given.format)
        if "voice" in given.model_fields_set:
            changes["voice"] = given.voice or self._defaults.voice
        if "speed" in given.model_fields_set:
            changes["speed"] = given.speed or 1.0
        return replace(state, **changes)

    def _wrong_type(self, kind: str) -> WireError:
        ours = self._identity["type"]
        how = "with" if self.answers else "without"
        return WireError(
            "invalid_parameter",
            f"Passing a {kind} session update event to a {ours} session is not allowed. "
            f"A session's type is chosen by its address: connect {how} '?intent=transcription'.",
            param="session.type",
        )

    # --- views -----------------------------------------------------------------------------

    def shown(self) -> dict[str, Any]:
        """The session object of ``session.created`` and ``session.updated``."""
        return self._shown(self._state)

    def _shown(self, state: _State) -> dict[str, Any]:
        audio: dict[str, Any] = {
            "input": {
                "format": shown_format(state.input_format),
                "transcription": state.transcription,
                "noise_reduction": state.noise_reduction,
                "turn_detection": turn_detection.shown(state.turn_detection, answers=self.answers),
            }
        }
        if self.answers:
            audio["output"] = {
                "format": shown_format(state.output_format),
                "voice": state.voice,
                "speed": state.speed,
            }
        fields = {
            name: value
            for name, value in state.fields.items()
            if value is not None or name not in _SHOWN_WHEN_SET
        }
        return {**self._identity, **fields, "audio": audio}

    def config(self) -> SessionConfig:
        """The session's settings for the pipeline."""
        state = self._state
        listening: dict[str, Any] = {
            "turn_detection": turn_detection.turn_detection(
                state.turn_detection, answers=self.answers
            ),
            "noise_reduction": (state.noise_reduction or {}).get("type"),
            "language": self._defaults.language,
            "asked_languages": self._asked_languages(),
            "keywords": tuple((self._state.transcription or {}).get("keywords") or ()),
            "partials": self._wants_partials(),
        }
        if not self.answers:
            return SessionConfig(instructions="", answers=False, **listening)
        limit = state.fields["max_output_tokens"]
        return SessionConfig(
            instructions=state.fields["instructions"],
            modality=state.fields["output_modalities"][0],
            voice=self.voice(state.voice),
            speed=state.speed,
            output_format=state.output_format,
            tools=self.tools,
            tool_choice=_tool_choice(state),
            servers=state.servers,
            max_output_tokens=None if limit == "inf" else limit,
            **listening,
        )

    def _asked_languages(self) -> tuple[str, ...]:
        fields = {} if self._defaults.language_fixed else self._state.transcription or {}
        asked = (fields.get("language"), *(fields.get("languages") or ()))
        return tuple(each for each in asked if each and not each.isspace())

    def _wants_partials(self) -> bool:
        fields = self._state.transcription
        if fields is None:
            return False
        return not self.answers or self._defaults.partials or fields.get("delay") is not None

    def tool_choice(
        self,
        given: str | Mapping[str, Any] | None,
        parallel: bool | None,
        tools: Sequence[Tool],
        path: str,
    ) -> ToolChoice:
        """The tool choice for one response; ``None`` means the session's. Raises ``WireError``."""
        fields = self._state.fields
        return tool_choice(
            fields["tool_choice"] if given is None else given,
            fields["parallel_tool_calls"] if parallel is None else parallel,
            tools,
            self._state.servers,
            path,
        )

    def voice(self, name: str) -> str:
        """The engine's voice for a name from a client, which may be another vendor's voice."""
        return name if name in self._defaults.voices else self._defaults.voice

    def shown_voice(self, voice: str) -> str:
        """The client's name for the engine's ``voice``."""
        ours = self._state.voice
        return ours if voice == self.voice(ours) else voice


def _merged(
    current: Mapping[str, Any] | None, given: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    return None if given is None else {**(current or {}), **given}


def _tools(state: _State) -> tuple[Tool, ...]:
    functions = (tool for tool in state.fields["tools"] if tool["type"] == "function")
    return tuple(map(tool_from_shown, functions))


def _tool_choice(state: _State) -> ToolChoice:
    fields = state.fields
    choice, parallel = fields["tool_choice"], fields["parallel_tool_calls"]
    return tool_choice(choice, parallel, _tools(state), state.servers, "session.tool_choice")


# --- formats and tools -------------------------------------------------------------------------


def merged_format(current: AudioFormat, given: FormatFields | None) -> AudioFormat:
    """``current`` overridden by ``given``; null means the API's default."""
    if given is None:
        return AudioFormat()
    has_rate = "rate" in given.model_fields_set
    if given.type is None and not has_rate:
        return current
    encoding = _ENCODINGS[given.type or "audio/pcm"]
    if encoding != "pcm":
        return AudioFormat(encoding, g711.RATE)
    if has_rate:
        return AudioFormat("pcm", given.rate or NATIVE_RATE)
    return current if current.encoding == "pcm" else AudioFormat()


def shown_tool(tool: AnyTool) -> dict[str, Any]:
    if isinstance(tool, McpTool):
        return shown_server(tool)
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description or "",
        "parameters": tool.parameters or dict(_NO_ARGUMENTS),
    }


def tool_from_shown(shown: Mapping[str, Any]) -> Tool:
    return Tool(shown["name"], shown["description"], shown["parameters"])


def tool_choice(
    given: str | Mapping[str, Any],
    parallel: bool | None,
    tools: Sequence[Tool],
    servers: Sequence[ServerRequest],
    path: str,
) -> ToolChoice:
    """``given``: a value that the schema accepts. ``parallel``: several calls are allowed unless
    it is False. ``path``: the field's name, for errors.

    Raises ``WireError`` if a named tool is not among ``tools``, or its server not among
    ``servers``.
    """
    several = parallel is not False
    if isinstance(given, Mapping) and given["type"] == "mcp":
        label = given["server_label"]
        if all(server.label != label for server in servers):
            why = f"there is no MCP server '{label[:64]}'; name it in the session's 'tools'"
            raise invalid(f"{path}.server_label", why)
        return ToolChoice("named", given.get("name", ""), several, label)
    match given:
        case "none":
            return ToolChoice("none", parallel=several)
        case "required":
            return ToolChoice("required", parallel=several)
        case {"name": str(name)}:
            if all(tool.name != name for tool in tools):
                why = f"there is no tool '{name[:64]}'; offer it in 'tools', or choose another"
                raise invalid(f"{path}.name", why)
            return ToolChoice("named", name, several)
    return ToolChoice("auto", parallel=several)
