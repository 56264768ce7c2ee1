"""Sessions, items and responses in beta's shapes and in GA's, one from the other.

Values that neither side can mean are left as they are, for the GA side to refuse; only what would
be lost in the translation is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEMPERATURE = 0.8
"""Beta's default."""

Shape = dict[str, Any]

_GA_FORMATS: Mapping[str, Shape] = {
    "pcm16": {"type": "audio/pcm", "rate": 24_000},
    "g711_ulaw": {"type": "audio/pcmu"},
    "g711_alaw": {"type": "audio/pcma"},
}
_BETA_FORMATS = {shape["type"]: name for name, shape in _GA_FORMATS.items()}

_SESSION_AS_IT_IS = frozenset({"instructions", "tools", "tracing"})
_SESSION_IGNORED = frozenset(
    {"id", "object", "type", "model", "expires_at", "client_secret", "temperature"}
)
"""``temperature`` has no effect; the others a client cannot change, and may send back."""

_RESPONSE_AS_IT_IS = frozenset({"conversation", "instructions", "metadata", "tools"})

_LIMITS = ("max_response_output_tokens", "max_output_tokens")
"""The beta API's documents used both names."""

_ITEM_FIELDS = frozenset(
    {"id", "object", "type", "status", "role", "content", "call_id", "name", "arguments", "output"}
)
_CONTENT_TO_BETA = {"output_text": "text", "output_audio": "audio"}
_CONTENT_OF_BETA = frozenset({"input_text", "input_audio", "text", "audio"})
_TURN_DETECTION_FIELDS = frozenset(
    {
        "type",
        "threshold",
        "prefix_padding_ms",
        "silence_duration_ms",
        "eagerness",
        "create_response",
        "interrupt_response",
    }
)
_TRANSCRIPTION_FIELDS = frozenset({"model", "language", "prompt"})
_TRANSCRIPTION_MODELS = frozenset({"gpt-4o-transcribe", "gpt-4o-mini-transcribe", "whisper-1"})
"""The only ones that ``TranscriptionSession`` can name; ``Session`` can name any."""

_NO_SECRET: Shape = {"value": "", "expires_at": 0}
"""``TranscriptionSession`` cannot be without one. It opens nothing."""

_PATHS = {
    "session.audio.input.format": "session.input_audio_format",
    "session.audio.input.transcription": "session.input_audio_transcription",
    "session.audio.input.noise_reduction": "session.input_audio_noise_reduction",
    "session.audio.input.turn_detection": "session.turn_detection",
    "session.audio.output.format": "session.output_audio_format",
    "session.audio.output.voice": "session.voice",
    "session.audio.output.speed": "session.speed",
    "session.output_modalities": "session.modalities",
    "session.max_output_tokens": "session.max_response_output_tokens",
    "response.audio.output.format": "response.output_audio_format",
    "response.audio.output.voice": "response.voice",
    "response.output_modalities": "response.modalities",
    "response.max_output_tokens": "response.max_response_output_tokens",
}


class BetaProblem(Exception):
    """A client message that has no meaning in GA. Becomes one ``error`` event."""

    def __init__(self, code: str, message: str, param: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param


def beta_paths(text: str) -> str:
    """``text`` with GA's names of fields as beta calls them."""
    for ga, beta in _PATHS.items():
        text = text.replace(ga, beta)
    return text


# --- to GA -------------------------------------------------------------------------------------


def ga_session(given: object) -> tuple[object, float | None]:
    """The session of a ``session.update``, and the temperature if it names one.

    Raises ``BetaProblem``.
    """
    if not isinstance(given, dict):
        return given, None
    audio_input = _audio_input(given)
    audio_output = _audio_output(given, "session")
    if "speed" in given:
        audio_output["speed"] = given["speed"]
    session: Shape = {"type": "realtime", **_chosen(given, _SESSION_AS_IT_IS)}
    _add_common(session, given, "session")
    audio = {"input": audio_input, "output": audio_output}
    if audio := {side: fields for side, fields in audio.items() if fields}:
        session["audio"] = audio
    known = {*_SESSION_AS_IT_IS, *_SESSION_IGNORED, *_COMMON, *_INPUT, *_OUTPUT, "speed"}
    _require_known(given, known, "session")
    return session, _temperature(given, "session")


def ga_transcription_session(given: object) -> object:
    """The session of a ``transcription_session.update``. Raises ``BetaProblem``."""
    if not isinstance(given, dict):
        return given
    session: Shape = {"type": "transcription", **_chosen(given, frozenset({"include"}))}
    if audio_input := _audio_input(given):
        session["audio"] = {"input": audio_input}
    known = {*_SESSION_IGNORED, *_INPUT, "include", "modalities"}
    _require_known(given, known, "session")
    return session


def ga_response(given: object) -> object:
    """The response of a ``response.create``. Raises ``BetaProblem``."""
    if not isinstance(given, dict):
        return given
    response: Shape = _chosen(given, _RESPONSE_AS_IT_IS)
    _add_common(response, given, "response")
    if output := _audio_output(given, "response"):
        response["audio"] = {"output": output}
    if isinstance(given.get("input"), list):
        response["input"] = [ga_item(item) for item in given["input"]]
    elif "input" in given:
        response["input"] = given["input"]
    known = {*_RESPONSE_AS_IT_IS, *_COMMON, *_OUTPUT, "input", "temperature"}
    _require_known(given, known, "response")
    _temperature(given, "response")
    return response


def ga_item(given: object) -> object:
    if not isinstance(given, dict) or not isinstance(given.get("content"), list):
        return given
    text = "output_text" if given.get("role") == "assistant" else "input_text"
    names = {"text": text, "audio": "output_audio"}
    return {**given, "content": [_renamed_type(part, names) for part in given["content"]]}


def _renamed_type(part: object, names: Mapping[str, str]) -> object:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        return part
    return {**part, "type": names.get(part["type"], part["type"])}


_COMMON = frozenset({"modalities", "tool_choice", *_LIMITS})
_INPUT = {
    "input_audio_transcription": "transcription",
    "input_audio_noise_reduction": "noise_reduction",
    "turn_detection": "turn_detection",
    "input_audio_format": "format",
}
_OUTPUT = {"voice": "voice", "output_audio_format": "format"}


def _add_common(shape: Shape, given: Mapping[str, Any], path: str) -> None:
    """What a session and a response name alike."""
    if "modalities" in given:
        shape["output_modalities"] = _output_modalities(given["modalities"], path)
    if "tool_choice" in given:
        shape["tool_choice"] = _tool_choice(given["tool_choice"])
    for name in _LIMITS:
        if name in given:
            shape["max_output_tokens"] = given[name]


def _audio_input(given: Mapping[str, Any]) -> Shape:
    shape: Shape = {ga: given[beta] for beta, ga in _INPUT.items() if beta in given}
    if "format" in shape:
        shape["format"] = _format(shape["format"], "session.input_audio_format")
    detection = shape.get("turn_detection")
    if isinstance(detection, dict) and "type" not in detection:
        kind = "semantic_vad" if "eagerness" in detection else "server_vad"
        shape["turn_detection"] = {"type": kind, **detection}
    return shape


def _audio_output(given: Mapping[str, Any], path: str) -> Shape:
    shape: Shape = {ga: given[beta] for beta, ga in _OUTPUT.items() if beta in given}
    if "format" in shape:
        shape["format"] = _format(shape["format"], f"{path}.output_audio_format")
    return shape


def _format(name: object, path: str) -> Shape | None:
    if name is None:
        return None
    if isinstance(name, str) and name in _GA_FORMATS:
        return dict(_GA_FORMATS[name])
    raise _invalid(path, "must be 'pcm16', 'g711_ulaw' or 'g711_alaw'")


def _output_modalities(given: object, path: str) -> list[str] | None:
    if given is None:
        return None
    if isinstance(given, list) and given and all(kind in ("text", "audio") for kind in given):
        return ["audio"] if "audio" in given else ["text"]
    raise _invalid(f"{path}.modalities", 'must be ["text"] or ["text", "audio"]')


def _tool_choice(given: object) -> object:
    """A function is named by its name alone, or in the way of chat completions."""
    if isinstance(given, str) and given not in ("auto", "none", "required"):
        return {"type": "function", "name": given}
    if isinstance(given, dict) and isinstance(function := given.get("function"), dict):
        return {"type": "function", "name": function.get("name")}
    return given


def _temperature(given: Mapping[str, Any], path: str) -> float | None:
    value = given.get("temperature")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2:
        raise _invalid(f"{path}.temperature", "must be a number from 0 to 2")
    return float(value)


def _chosen(given: Mapping[str, Any], names: frozenset[str]) -> Shape:
    return {name: value for name, value in given.items() if name in names}


def _require_known(given: Mapping[str, Any], known: set[str], path: str) -> None:
    for name in given:
        if name not in known:
            param = f"{path}.{name}"[:256]
            raise BetaProblem("unknown_parameter", f"Unknown parameter: '{param}'.", param)


def _invalid(path: str, why: str) -> BetaProblem:
    return BetaProblem("invalid_value", f"Invalid value at '{path}': {why}.", path)


# --- from GA -----------------------------------------------------------------------------------


def beta_session(ga: Mapping[str, Any], temperature: float) -> Shape:
    """``model`` is left out: beta's type knows only names of OpenAI's models."""
    session = {"id": ga["id"], **_shown_input(ga)}
    output = ga["audio"].get("output")
    if output is None:
        return session
    return {
        **session,
        "modalities": _modalities(ga["output_modalities"]),
        "instructions": ga["instructions"],
        "voice": output["voice"],
        "output_audio_format": _BETA_FORMATS[output["format"]["type"]],
        "speed": output["speed"],
        "tools": ga["tools"],
        "tool_choice": _shown_tool_choice(ga["tool_choice"]),
        "temperature": temperature,
        "max_response_output_tokens": ga["max_output_tokens"],
        "tracing": ga["tracing"],
    }


def beta_transcription_session(ga: Mapping[str, Any]) -> Shape:
    shown = _shown_input(ga)
    transcription, detection = shown["input_audio_transcription"], shown["turn_detection"]
    if transcription and transcription.get("model") not in _TRANSCRIPTION_MODELS:
        transcription = {name: at for name, at in transcription.items() if name != "model"}
    if detection:
        names = frozenset({"type", "threshold", "prefix_padding_ms", "silence_duration_ms"})
        detection = _chosen(detection, names)
    return {
        "client_secret": _NO_SECRET,
        "modalities": ["text", "audio"],
        "input_audio_format": shown["input_audio_format"],
        "input_audio_transcription": transcription,
        "turn_detection": detection,
    }


def beta_item(ga: Mapping[str, Any]) -> Shape:
    item = _chosen(ga, _ITEM_FIELDS)
    if "content" in item:
        parts = [_renamed_type(part, _CONTENT_TO_BETA) for part in item["content"]]
        item["content"] = [
            part for part in parts if isinstance(part, dict) and part["type"] in _CONTENT_OF_BETA
        ]
    return item


def beta_response(ga: Mapping[str, Any], temperature: float) -> Shape:
    output = ga["audio"]["output"]
    return {
        "id": ga["id"],
        "object": ga["object"],
        "status": ga["status"],
        "status_details": ga["status_details"],
        "output": [beta_item(item) for item in ga["output"]],
        "conversation_id": ga["conversation_id"],
        "modalities": _modalities(ga["output_modalities"]),
        "voice": output["voice"],
        "output_audio_format": _BETA_FORMATS[output["format"]["type"]],
        "temperature": temperature,
        "max_output_tokens": ga["max_output_tokens"],
        "metadata": ga["metadata"],
        "usage": _usage(ga["usage"]),
    }


def _shown_input(ga: Mapping[str, Any]) -> Shape:
    given = ga["audio"]["input"]
    heard, detection = given["transcription"], given["turn_detection"]
    return {
        "input_audio_format": _BETA_FORMATS[given["format"]["type"]],
        "input_audio_transcription": heard and _chosen(heard, _TRANSCRIPTION_FIELDS),
        "input_audio_noise_reduction": given.get("noise_reduction"),
        "turn_detection": detection and _chosen(detection, _TURN_DETECTION_FIELDS),
    }


def _modalities(output: list[str]) -> list[str]:
    return ["text", "audio"] if "audio" in output else ["text"]


def _shown_tool_choice(ga: object) -> object:
    return ga["name"] if isinstance(ga, dict) else ga


def _usage(ga: Mapping[str, Any] | None) -> Shape | None:
    if ga is None:
        return None
    details = frozenset({"text_tokens", "audio_tokens", "cached_tokens"})
    return {
        **_chosen(ga, frozenset({"total_tokens", "input_tokens", "output_tokens"})),
        "input_token_details": _chosen(ga["input_token_details"], details),
        "output_token_details": _chosen(ga["output_token_details"], details),
    }
