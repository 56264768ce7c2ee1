"""The effective session: what the client sees in ``session.updated``, and what the pipeline gets.

An update changes only the fields that it names, at any depth; null puts a field back to the
server's default. A field of turn detection that no client gave stays ``None`` in the pipeline's
config (the YAML rules) and is shown with the API's nominal default.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.commands import SessionConfig, TurnDetection
from pipeline.engines import Tool
from pipeline.realtime.schema import AudioFormat, FunctionTool, SessionFields

DEFAULT_RATE = 24_000
"""Hz. The API's PCM format."""

NATIVE_RATE = 16_000
"""Hz. What ``rate: null`` means: the robot's sound board, which the Reachy Mini app never
resamples for."""

SESSION_SECONDS = 24 * 3600
"""For ``expires_at``, which clients read. Nominal: no session here expires by itself."""

_SERVER_VAD: Mapping[str, Any] = {
    "type": "server_vad",
    "threshold": 0.5,
    "prefix_padding_ms": 300,
    "silence_duration_ms": 500,
    "idle_timeout_ms": None,
    "create_response": True,
    "interrupt_response": True,
}
_SEMANTIC_VAD: Mapping[str, Any] = {
    "type": "semantic_vad",
    "eagerness": "auto",
    "create_response": True,
    "interrupt_response": True,
}
"""Nominal defaults of the API reference."""

_SHOWN_WHEN_SET = frozenset({"parallel_tool_calls", "reasoning"})
_FIXED = frozenset({"type", "id", "object", "expires_at", "model"})
_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class SessionDefaults:
    """What a session is before its client says anything.

    ``voices`` are the names that the speech engine has; ``voice`` is used for all others.
    ``language`` is ISO 639-1.
    """

    model: str
    voice: str
    voices: Sequence[str] = ()
    instructions: str = ""
    language: str = "en"


class EffectiveSession:
    def __init__(self, defaults: SessionDefaults, session_id: str, created_at: float) -> None:
        self._defaults = defaults
        self._initial: dict[str, Any] = {
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
            "include": None,
        }
        self._identity = {
            "type": "realtime",
            "object": "realtime.session",
            "id": session_id,
            "model": defaults.model,
            "expires_at": int(created_at) + SESSION_SECONDS,
        }
        self._fields = copy.deepcopy(self._initial)
        self._input_rate = DEFAULT_RATE
        self._output_rate = DEFAULT_RATE
        self._transcription: dict[str, Any] | None = None
        self._noise_reduction: dict[str, Any] | None = None
        self._turn_detection: dict[str, Any] | None = {"type": "server_vad"}
        self._voice = defaults.voice
        self._speed: float = 1.0

    @property
    def transcribes(self) -> bool:
        """Whether the client asked for transcripts of what the user says."""
        return self._transcription is not None

    @property
    def output_rate(self) -> int:
        return self._output_rate

    @property
    def input_rate(self) -> int:
        return self._input_rate

    # --- change ----------------------------------------------------------------------------

    def update(self, given: SessionFields) -> None:
        """Merge one checked ``session.update``; it cannot fail halfway."""
        plain = given.model_dump(exclude_unset=True, exclude={"audio", "tools"})
        for name in plain.keys() - _FIXED:
            value = plain[name]
            self._fields[name] = self._initial[name] if value is None else value
        if "tools" in given.model_fields_set:
            self._fields["tools"] = [_shown_tool(tool) for tool in given.tools or ()]
        if given.audio is not None and given.audio.input is not None:
            self._update_input(given.audio.input.model_dump(exclude_unset=True))
        if given.audio is not None and given.audio.output is not None:
            self._update_output(given.audio.output.model_dump(exclude_unset=True))

    def _update_input(self, given: Mapping[str, Any]) -> None:
        self._input_rate = _rate(given.get("format"), self._input_rate)
        if "transcription" in given:
            self._transcription = _merged(self._transcription, given["transcription"])
        if "noise_reduction" in given:
            self._noise_reduction = _merged(self._noise_reduction, given["noise_reduction"])
        if "turn_detection" in given:
            self._turn_detection = _merged_by_type(self._turn_detection, given["turn_detection"])

    def _update_output(self, given: Mapping[str, Any]) -> None:
        self._output_rate = _rate(given.get("format"), self._output_rate)
        if "voice" in given:
            self._voice = given["voice"] or self._defaults.voice
        if "speed" in given:
            self._speed = given["speed"] or 1.0

    # --- views -----------------------------------------------------------------------------

    def shown(self) -> dict[str, Any]:
        """The session object of ``session.created`` and ``session.updated``."""
        audio_input = {
            "format": shown_format(self._input_rate),
            "transcription": self._transcription,
            "noise_reduction": self._noise_reduction,
            "turn_detection": _shown_turn_detection(self._turn_detection),
        }
        audio_output = {
            "format": shown_format(self._output_rate),
            "voice": self._voice,
            "speed": self._speed,
        }
        fields = {
            name: value
            for name, value in self._fields.items()
            if value is not None or name not in _SHOWN_WHEN_SET
        }
        return {
            **self._identity,
            **fields,
            "audio": {"input": audio_input, "output": audio_output},
        }

    def config(self) -> SessionConfig:
        """The same for the pipeline."""
        language = (self._transcription or {}).get("language") or self._defaults.language
        limit = self._fields["max_output_tokens"]
        return SessionConfig(
            instructions=self._fields["instructions"],
            modality=self._fields["output_modalities"][0],
            voice=self.voice(self._voice),
            input_rate=self._input_rate,
            output_rate=self._output_rate,
            turn_detection=_turn_detection(self._turn_detection),
            transcription=self.transcribes,
            language=language.split("-")[0].lower(),
            tools=tuple(_tool(tool) for tool in self._fields["tools"]),
            tool_choice=self._fields["tool_choice"],
            max_output_tokens=None if limit == "inf" else limit,
        )

    def voice(self, name: str) -> str:
        """The engine's voice for a client's name: clients know other vendors' voices."""
        return name if name in self._defaults.voices else self._defaults.voice

    def shown_voice(self, voice: str) -> str:
        """The name under which the client knows the engine's ``voice``."""
        return self._voice if voice == self.voice(self._voice) else voice


def shown_format(rate: int) -> dict[str, Any]:
    return {"type": "audio/pcm", "rate": rate}


def given_rate(given: AudioFormat | None, current: int) -> int:
    """Hz that a format asks for; ``current`` where it says nothing."""
    return _rate(given.model_dump(exclude_unset=True) if given else None, current)


def tools(given: Sequence[FunctionTool]) -> tuple[Tool, ...]:
    return tuple(_tool(_shown_tool(tool)) for tool in given)


def _rate(given: Mapping[str, Any] | None, current: int) -> int:
    if given is None or "rate" not in given:
        return current
    return given["rate"] or NATIVE_RATE


def _merged(
    current: Mapping[str, Any] | None, given: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    return None if given is None else {**(current or {}), **given}


def _merged_by_type(
    current: Mapping[str, Any] | None, given: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Fields of one kind of turn detection mean nothing for the other."""
    if current is not None and given is not None and current["type"] != given["type"]:
        current = None
    return _merged(current, given)


def _shown_turn_detection(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if given is None:
        return None
    nominal = _SEMANTIC_VAD if given["type"] == "semantic_vad" else _SERVER_VAD
    said = {name: value for name, value in given.items() if name in nominal and value is not None}
    return {**nominal, **said}


def _turn_detection(given: Mapping[str, Any] | None) -> TurnDetection | None:
    if given is None:
        return None
    return TurnDetection(
        threshold=given.get("threshold"),
        prefix_padding_ms=given.get("prefix_padding_ms"),
        silence_duration_ms=given.get("silence_duration_ms"),
        create_response=given.get("create_response") is not False,
        interrupt_response=given.get("interrupt_response") is not False,
    )


def _shown_tool(tool: FunctionTool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description or "",
        "parameters": tool.parameters or dict(_NO_ARGUMENTS),
    }


def _tool(shown: Mapping[str, Any]) -> Tool:
    return Tool(shown["name"], shown["description"], shown["parameters"])
