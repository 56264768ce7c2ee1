"""The beta dialect of the Realtime API, by renaming at the edge of the protocol.

``to_ga`` turns a beta client's message into the one that a GA client would have sent, ``from_ga``
turns a server event into what a beta client expects; everything between knows GA only. Names and
shapes are those of ``openai.types.beta.realtime``. GA features that beta has no name for
(``conversation.item.done``, idle time-outs, images) do not reach a beta client.

Values that are invalid in both are passed on for the GA side to refuse; only values that
translation would lose are refused here. ``temperature`` is shown as the client set it but has no
effect: GA has no such field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pipeline.realtime.wire import WireError, invalid

SUBPROTOCOL = "openai-beta.realtime-v1"
"""Subprotocol that browsers offer, since they cannot set a header."""

_HEADER, _HEADER_VALUE = "openai-beta", "realtime=v1"

TEMPERATURE = 0.8
"""Beta's default."""

Fields = dict[str, Any]

# --- names: beta's field, GA's place. What a client cannot change, but may send back, has none ----

_OUTPUT = {
    "modalities": "output_modalities",
    "tool_choice": "tool_choice",
    "max_response_output_tokens": "max_output_tokens",
    "voice": "audio.output.voice",
    "output_audio_format": "audio.output.format",
    **{name: name for name in ("instructions", "tools")},
}
_INPUT = {
    "input_audio_format": "audio.input.format",
    "input_audio_transcription": "audio.input.transcription",
    "input_audio_noise_reduction": "audio.input.noise_reduction",
    "turn_detection": "audio.input.turn_detection",
}
_SESSION = {**_INPUT, **_OUTPUT, "speed": "audio.output.speed", "tracing": "tracing"}
_RESPONSE = {**_OUTPUT, **{name: name for name in ("conversation", "metadata", "input")}}
_ALSO = {"max_output_tokens": "max_output_tokens"}
"""The beta API's documents used both names."""
_FIXED = dict.fromkeys(("id", "object", "type", "model", "expires_at", "client_secret"), "")

_RENAMED = {
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
    "conversation.item.added": "conversation.item.created",
}
_DROPPED = frozenset({"conversation.item.done", "input_audio_buffer.timeout_triggered"})

_FORMATS: Mapping[str, Fields] = {
    "pcm16": {"type": "audio/pcm", "rate": 24_000},
    "g711_ulaw": {"type": "audio/pcmu"},
    "g711_alaw": {"type": "audio/pcma"},
}
_BETA_FORMATS = {shape["type"]: name for name, shape in _FORMATS.items()}

_ITEM = (
    *("id", "object", "type", "status", "role", "content"),
    *("call_id", "name", "arguments", "output"),
)
_CONTENT = {
    "output_text": "text",
    "output_audio": "audio",
    "input_text": "input_text",
    "input_audio": "input_audio",
}
_RESPONSE_SAME = (
    *("id", "object", "status", "status_details", "conversation_id"),
    *("max_output_tokens", "metadata"),
)
_TRANSCRIPTION = ("model", "language", "prompt")
_SERVER_VAD = ("type", "threshold", "prefix_padding_ms", "silence_duration_ms")
_TURN_DETECTION = (*_SERVER_VAD, "eagerness", "create_response", "interrupt_response")
_TRANSCRIPTION_MODELS = ("gpt-4o-transcribe", "gpt-4o-mini-transcribe", "whisper-1")
"""The only models that ``TranscriptionSession`` can name; ``Session`` can name any."""
_TOKENS = ("total_tokens", "input_tokens", "output_tokens")
_TOKEN_DETAILS = ("text_tokens", "audio_tokens", "cached_tokens")

_NO_SECRET: Fields = {"value": "", "expires_at": 0}
"""``TranscriptionSession`` requires a client secret. This one opens nothing."""


def wants_beta(headers: Mapping[str, str], subprotocols: Iterable[str]) -> bool:
    """Whether an upgrade request asks for the beta dialect."""
    given = ",".join(value for name, value in headers.items() if name.lower() == _HEADER)
    features = {feature.strip().lower() for feature in given.split(",")}
    return _HEADER_VALUE in features or SUBPROTOCOL in subprotocols


class BetaDialect:
    """Translates for one connection."""

    def __init__(self, conversation_id: str) -> None:
        self._conversation_id = conversation_id
        self._temperature: float = TEMPERATURE
        self._asked_temperature: float | None = None
        """The temperature in a pending update; it counts once that is accepted."""

    def to_ga(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """The GA event for one client event. Raises ``WireError``."""
        match event["type"]:
            case "session.update":
                self._asked_temperature = _temperature(event.get("session"), "session")
                return {**event, "session": ga_session(event.get("session"))}
            case "transcription_session.update":
                session = ga_session(event.get("session"), transcription=True)
                return {**event, "type": "session.update", "session": session}
            case "conversation.item.create":
                return {**event, "item": _ga_item(event.get("item"))}
            case "response.create" if isinstance(given := event.get("response"), dict):
                _temperature(given, "response")
                return {**event, "response": _moved(given, {**_RESPONSE, **_ALSO}, "response")}
        return event

    def renamed(self, error: WireError) -> WireError:
        """A GA error with beta's field names."""
        param, message = error.param, error.message
        for path, names in (("session", _SESSION), ("response", _RESPONSE)):
            for beta, place in names.items():
                if beta != place:
                    old, new = f"{path}.{place}", f"{path}.{beta}"
                    message, param = message.replace(old, new), param and param.replace(old, new)
        return WireError(error.code, message, param=param, event_id=error.event_id)

    def from_ga(self, kind: str, fields: Fields) -> list[tuple[str, Fields]]:
        """Types and fields of the beta events for one server event: zero to two."""
        if kind in _DROPPED:
            return []
        if "item" in fields:
            fields = {**fields, "item": _beta_item(fields["item"])}
        match kind:
            case "session.created":
                shown = beta_session(fields["session"], self._temperature)
                conversation = {"id": self._conversation_id, "object": "realtime.conversation"}
                created = {"conversation": conversation}
                return [(kind, {"session": shown}), ("conversation.created", created)]
            case "session.updated" if fields["session"]["type"] == "transcription":
                shown = beta_transcription_session(fields["session"])
                return [("transcription_session.updated", {"session": shown})]
            case "session.updated":
                if self._asked_temperature is not None:
                    self._temperature = self._asked_temperature
                return [(kind, {"session": beta_session(fields["session"], self._temperature)})]
            case "response.created" | "response.done":
                return [(kind, {"response": _beta_response(fields["response"], self._temperature)})]
            case "response.function_call_arguments.done":
                return [(kind, _chosen(fields, fields.keys() - {"name"}))]
        return [(_RENAMED.get(kind, kind), fields)]


# --- to GA -------------------------------------------------------------------------------------


def ga_session(given: object, *, transcription: bool = False) -> object:
    """The session of a ``session.update`` or ``transcription_session.update``. Raises
    ``WireError``."""
    if not isinstance(given, dict):
        return given
    if not transcription:
        names = {**_FIXED, **_SESSION, **_ALSO}
        return {"type": "realtime", **_moved(given, names, "session")}
    names = {**_FIXED, **_INPUT, "modalities": "", "include": "include"}
    return {"type": "transcription", **_moved(given, names, "session")}


def _moved(given: Fields, names: Mapping[str, str], path: str) -> Fields:
    """``given`` with its fields in GA's places."""
    moved: Fields = {}
    for name, value in given.items():
        if name == "temperature":
            continue
        if name not in names:
            param = f"{path}.{name}"[:256]
            raise WireError("unknown_parameter", f"Unknown parameter: '{param}'.", param=param)
        *outer, inner = names[name].split(".")
        place = moved
        for step in outer:
            place = place.setdefault(step, {})
        if inner:
            place[inner] = _ga_value(name, value, path)
    return moved


def _ga_value(name: str, value: Any, path: str) -> Any:
    match name:
        case "modalities":
            return _output_modalities(value, f"{path}.{name}")
        case "tool_choice":
            return _tool_choice(value)
        case "input_audio_format" | "output_audio_format":
            return _format(value, f"{path}.{name}")
        case "turn_detection" if isinstance(value, dict) and "type" not in value:
            return {"type": "semantic_vad" if "eagerness" in value else "server_vad", **value}
        case "input" if isinstance(value, list):
            return [_ga_item(item) for item in value]
    return value


def _ga_item(given: object) -> object:
    if not isinstance(given, dict) or not isinstance(given.get("content"), list):
        return given
    text = "output_text" if given.get("role") == "assistant" else "input_text"
    names = {"text": text, "audio": "output_audio"}
    content = [
        {**part, "type": names.get(part["type"], part["type"])}
        if isinstance(part, dict) and isinstance(part.get("type"), str)
        else part
        for part in given["content"]
    ]
    return {**given, "content": content}


def _format(name: object, path: str) -> Fields | None:
    if name is None:
        return None
    if isinstance(name, str) and name in _FORMATS:
        return dict(_FORMATS[name])
    raise invalid(path, "must be 'pcm16', 'g711_ulaw' or 'g711_alaw'")


def _output_modalities(given: object, path: str) -> list[str] | None:
    if given is None:
        return None
    if isinstance(given, list) and given and all(kind in ("text", "audio") for kind in given):
        return ["audio"] if "audio" in given else ["text"]
    raise invalid(path, 'must be ["text"] or ["text", "audio"]')


def _tool_choice(given: object) -> object:
    """A function by its plain name, or in the form of chat completions."""
    if isinstance(given, str) and given not in ("auto", "none", "required"):
        return {"type": "function", "name": given}
    if isinstance(given, dict) and isinstance(function := given.get("function"), dict):
        return {"type": "function", "name": function.get("name")}
    return given


def _temperature(given: object, path: str) -> float | None:
    value = given.get("temperature") if isinstance(given, dict) else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2:
        raise invalid(f"{path}.temperature", "must be a number from 0 to 2")
    return float(value)


# --- from GA -----------------------------------------------------------------------------------


def beta_session(ga: Mapping[str, Any], temperature: float = TEMPERATURE) -> Fields:
    """``model`` is left out: beta's type only knows OpenAI's models."""
    shown = {"id": ga["id"], **_shown(ga, _SESSION)}
    return shown if ga["type"] == "transcription" else {**shown, "temperature": temperature}


def beta_transcription_session(ga: Mapping[str, Any]) -> Fields:
    shown = _shown(ga, _INPUT)
    transcription, detection = shown["input_audio_transcription"], shown["turn_detection"]
    if transcription and transcription.get("model") not in _TRANSCRIPTION_MODELS:
        transcription = _chosen(transcription, ("language", "prompt"))
    return {
        "client_secret": _NO_SECRET,
        "modalities": ["text", "audio"],
        "input_audio_format": shown["input_audio_format"],
        "input_audio_transcription": transcription,
        "turn_detection": detection and _chosen(detection, _SERVER_VAD),
    }


def _beta_item(ga: Mapping[str, Any]) -> Fields:
    item = _chosen(ga, _ITEM)
    if "content" in item:
        item["content"] = [
            {**part, "type": _CONTENT[part["type"]]}
            for part in item["content"]
            if part["type"] in _CONTENT
        ]
    return item


def _beta_response(ga: Mapping[str, Any], temperature: float) -> Fields:
    names = {name: _RESPONSE[name] for name in ("modalities", "voice", "output_audio_format")}
    return {
        **_chosen(ga, _RESPONSE_SAME),
        **_shown(ga, names),
        "output": [_beta_item(item) for item in ga["output"]],
        "temperature": temperature,
        "usage": ga["usage"] and _usage(ga["usage"]),
    }


def _usage(ga: Mapping[str, Any]) -> Fields:
    sides = ("input_token_details", "output_token_details")
    return _chosen(ga, _TOKENS) | {side: _chosen(ga[side], _TOKEN_DETAILS) for side in sides}


def _shown(ga: Mapping[str, Any], names: Mapping[str, str]) -> Fields:
    """The fields present in ``ga``, in beta's places."""
    shown: Fields = {}
    for name, place in names.items():
        value: Any = ga
        for step in place.split("."):
            if step not in value:
                break
            value = value[step]
        else:
            shown[name] = _SHOWN[name](value) if name in _SHOWN and value is not None else value
    return shown


_SHOWN: Mapping[str, Callable[[Any], Any]] = {
    "modalities": lambda ga: ["text", "audio"] if "audio" in ga else ["text"],
    "tool_choice": lambda ga: ga["name"] if isinstance(ga, dict) else ga,
    "input_audio_format": lambda ga: _BETA_FORMATS[ga["type"]],
    "output_audio_format": lambda ga: _BETA_FORMATS[ga["type"]],
    "input_audio_transcription": lambda ga: _chosen(ga, _TRANSCRIPTION),
    "turn_detection": lambda ga: _chosen(ga, _TURN_DETECTION),
}


def _chosen(given: Mapping[str, Any], names: Iterable[str]) -> Fields:
    return {name: given[name] for name in names if name in given}
