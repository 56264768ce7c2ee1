"""The shapes of client messages, strict, and how a mismatch is told to the client.

Field names and values are those of the API reference (``openai.types.realtime`` 3.52). Known
fields that nothing here acts on (``tracing``, ``prompt`` ...) are accepted and shown, so that
every SDK's defaults work; unknown ones are errors, as they are upstream.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from pipeline.realtime.wire import WireError

_INT32 = 2**31 - 1
"""Largest number that is passed on."""


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Tolerant(BaseModel):
    """Objects of which only some fields matter here; the others are dropped."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


# --- session -----------------------------------------------------------------------------------


def _voice_name(value: object) -> object:
    return value["id"] if isinstance(value, dict) and "id" in value else value


def _max_tokens(value: object) -> object:
    if value is None or value == "inf":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _INT32:
        return value
    raise ValueError('must be "inf" or a whole number from 1')


def _tool_choice(value: object) -> object:
    if value is None or value in ("auto", "none", "required"):
        return value
    if isinstance(value, dict) and value.get("type") == "function":
        if isinstance(value.get("name"), str):
            return {"type": "function", "name": value["name"]}
        raise ValueError("a function needs its name")
    raise ValueError('must be "auto", "none", "required" or {"type": "function", "name": ...}')


def _one_modality(value: object) -> object:
    if value is None or value in (["audio"], ["text"]):
        return value
    raise ValueError('must be ["audio"] or ["text"] (audio always brings its transcript)')


def _truncation(value: object) -> object:
    if value is None or value in ("auto", "disabled"):
        return value
    if isinstance(value, dict) and value.get("type") == "retention_ratio":
        return value
    raise ValueError('must be "auto", "disabled" or {"type": "retention_ratio", ...}')


def _tracing(value: object) -> object:
    if value is None or value == "auto" or isinstance(value, dict):
        return value
    raise ValueError('must be null, "auto" or an object')


Voice = Annotated[str, Field(min_length=1, max_length=256), BeforeValidator(_voice_name)]
MaxTokens = Annotated[Any, BeforeValidator(_max_tokens)]
ToolChoice = Annotated[Any, BeforeValidator(_tool_choice)]
Modalities = Annotated[Any, BeforeValidator(_one_modality)]
Count = Annotated[int, Field(ge=0, le=_INT32)]
JsonObject = dict[str, Any]


class AudioFormat(Shape):
    """``rate`` null means 16 kHz (what the Reachy Mini app sends); other rates than 24,000 are an
    extension of the API."""

    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[24000, 16000, 8000] | None = None


class NoiseReduction(Tolerant):
    type: Literal["near_field", "far_field"] | None = None


class Transcription(Tolerant):
    model: str | None = None
    language: str | None = None
    prompt: str | None = None


class TurnDetectionFields(Shape):
    type: Literal["server_vad", "semantic_vad"]
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    prefix_padding_ms: Annotated[int, Field(ge=0, le=60_000)] | None = None
    silence_duration_ms: Annotated[int, Field(ge=0, le=60_000)] | None = None
    idle_timeout_ms: Count | None = None
    eagerness: Literal["low", "medium", "high", "auto"] | None = None
    create_response: bool | None = None
    interrupt_response: bool | None = None


class AudioInput(Shape):
    format: AudioFormat | None = None
    noise_reduction: NoiseReduction | None = None
    transcription: Transcription | None = None
    turn_detection: TurnDetectionFields | None = None


class AudioOutput(Shape):
    format: AudioFormat | None = None
    voice: Voice | None = None
    speed: Annotated[float, Field(ge=0.25, le=1.5)] | None = None


class SessionAudio(Shape):
    input: AudioInput | None = None
    output: AudioOutput | None = None


class FunctionTool(Tolerant):
    type: Literal["function"] = "function"
    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: JsonObject | None = None


class SessionFields(Shape):
    """``id``, ``object``, ``expires_at`` and ``model`` cannot be changed; a client that sends the
    session back as it got it is not refused."""

    type: Literal["realtime"]
    id: Any = None
    object: Any = None
    expires_at: Any = None
    model: Any = None
    output_modalities: Modalities = None
    instructions: str | None = None
    audio: SessionAudio | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None
    reasoning: JsonObject | None = None
    max_output_tokens: MaxTokens = None
    truncation: Annotated[Any, BeforeValidator(_truncation)] = None
    tracing: Annotated[Any, BeforeValidator(_tracing)] = None
    prompt: JsonObject | None = None
    include: list[Literal["item.input_audio_transcription.logprobs"]] | None = None


# --- items -------------------------------------------------------------------------------------

ItemId = Annotated[str, Field(min_length=1, max_length=256)]


class ContentFields(Shape):
    type: Literal["input_text", "output_text", "input_audio", "input_image", "output_audio"]
    text: str | None = None
    audio: str | None = None
    transcript: str | None = None
    image_url: str | None = None
    detail: str | None = None


class ItemFields(Shape):
    """Common to all items; ``object`` and ``status`` are the server's to say."""

    id: ItemId | None = None
    object: Any = None
    status: Any = None


class MessageFields(ItemFields):
    type: Literal["message"]
    role: Literal["system", "user", "assistant"]
    content: list[ContentFields]


class FunctionCallFields(ItemFields):
    type: Literal["function_call"]
    name: Annotated[str, Field(min_length=1)]
    call_id: ItemId | None = None
    arguments: str


class FunctionOutputFields(ItemFields):
    type: Literal["function_call_output"]
    call_id: ItemId
    output: str


AnyItemFields = Annotated[
    MessageFields | FunctionCallFields | FunctionOutputFields, Field(discriminator="type")
]


# --- events ------------------------------------------------------------------------------------


class ClientEvent(Shape):
    type: str
    event_id: Any = None


class SessionUpdate(ClientEvent):
    session: SessionFields


class ItemCreate(ClientEvent):
    item: AnyItemFields
    previous_item_id: ItemId | None = None


class ItemDelete(ClientEvent):
    item_id: ItemId


class ItemTruncate(ClientEvent):
    item_id: ItemId
    content_index: Count
    audio_end_ms: Count


class ResponseAudioOutput(Shape):
    format: AudioFormat | None = None
    voice: Voice | None = None


class ResponseAudio(Shape):
    output: ResponseAudioOutput | None = None


MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]


class ResponseFields(Shape):
    conversation: Literal["auto", "none"] | None = None
    input: list[AnyItemFields] | None = None
    instructions: str | None = None
    output_modalities: Modalities = None
    audio: ResponseAudio | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None
    reasoning: JsonObject | None = None
    max_output_tokens: MaxTokens = None
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)] | None = None
    prompt: JsonObject | None = None


class ResponseCreate(ClientEvent):
    response: ResponseFields | None = None


class ResponseCancel(ClientEvent):
    response_id: ItemId | None = None


# --- reading -----------------------------------------------------------------------------------

Read = TypeVar("Read", bound=BaseModel)


def read(shape: type[Read], body: Mapping[str, Any]) -> Read:
    """``body`` as ``shape``. Raises ``WireError`` for the first mismatch, with its path."""
    try:
        return shape.model_validate(body)
    except ValidationError as error:
        _refuse(body, error.errors(include_url=False)[0])


def _refuse(body: Mapping[str, Any], problem: ErrorDetails) -> NoReturn:
    path = _path(body, problem)
    if problem["type"] == "missing":
        raise WireError(
            "missing_required_parameter", f"Missing required parameter: '{path}'.", param=path
        )
    if problem["type"] == "extra_forbidden":
        raise WireError("unknown_parameter", f"Unknown parameter: '{path}'.", param=path)
    why = problem["msg"].removeprefix("Value error, ")[:300]
    raise WireError("invalid_value", f"Invalid value at '{path}': {why}.", param=path)


def _path(body: object, problem: ErrorDetails) -> str:
    """The place of a mismatch in the message, without the names that pydantic gives to the
    branches of a union."""
    path = ""
    steps = problem["loc"]
    for at, step in enumerate(steps):
        missing = problem["type"] == "missing" and at == len(steps) - 1
        if isinstance(step, int) and isinstance(body, Sequence):
            path, body = f"{path}[{step}]", body[step]
        elif isinstance(body, Mapping) and (step in body or missing):
            path, body = f"{path}.{step}" if path else str(step), body.get(step)
    return path[:256]


def nearest(name: str, known: Sequence[str]) -> str:
    """A hint for a misspelt name, or nothing."""
    close = difflib.get_close_matches(name[:64], known, n=1)
    return f" Did you mean '{close[0]}'?" if close else ""
