"""The shapes of client events: sessions, items, responses, and the events around them.

Names and values are from the API reference (``openai.types.realtime`` 3.52). Known fields without
an effect here (``tracing``, ``prompt`` ...) are accepted and shown, so that every SDK's defaults
work; unknown fields are errors, as they are upstream.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from pipeline.realtime.shapes import Shape, Tolerant

INT32_MAX = 2**31 - 1
"""Largest number accepted."""

MOST_SERVERS = 16
"""Most MCP servers in one session."""
MOST_HEADERS = 32

Count = Annotated[int, Field(ge=0, le=INT32_MAX)]
JsonObject = dict[str, Any]


def _voice_name(value: object) -> object:
    return value["id"] if isinstance(value, dict) and "id" in value else value


def _max_tokens(value: object) -> object:
    if value is None or value == "inf":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= INT32_MAX:
        return value
    raise ValueError('must be "inf" or a whole number from 1')


def _tool_choice(value: object) -> object:
    if value is None or value in ("auto", "none", "required"):
        return value
    if isinstance(value, dict) and value.get("type") == "mcp":
        if isinstance(value.get("server_label"), str) and isinstance(value.get("name", ""), str):
            named = {"name": value["name"]} if "name" in value else {}
            return {"type": "mcp", "server_label": value["server_label"], **named}
        raise ValueError("a tool of an MCP server needs its server_label")
    if isinstance(value, dict) and value.get("type") == "function":
        if isinstance(value.get("name"), str):
            return {"type": "function", "name": value["name"]}
        raise ValueError("a function needs a name")
    raise ValueError(
        'must be "auto", "none", "required", {"type": "function", "name": ...} '
        'or {"type": "mcp", "server_label": ...}'
    )


def _one_modality(value: object) -> object:
    if value is None or value in (["audio"], ["text"]):
        return value
    raise ValueError('must be ["audio"] or ["text"] (audio always brings its transcript)')


def _tool_type(value: object) -> object:
    if value == "mcp":
        raise ValueError("name MCP servers in the session's tools (session.update)")
    return value


def _kind_of_tool(value: object) -> str:
    return "McpTool" if isinstance(value, dict) and value.get("type") == "mcp" else "FunctionTool"


Voice = Annotated[str, Field(min_length=1, max_length=256), BeforeValidator(_voice_name)]
MaxTokens = Annotated[Any, BeforeValidator(_max_tokens)]
ToolChoiceField = Annotated[Any, BeforeValidator(_tool_choice)]
Modalities = Annotated[Any, BeforeValidator(_one_modality)]


# --- audio -------------------------------------------------------------------------------------


class FormatFields(Shape):
    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"] | None = None
    rate: Literal[24000, 16000, 8000] | None = None
    """Null means 16 kHz for PCM (what the Reachy Mini app sends). PCM rates other than 24,000 are
    an extension of the API."""

    @model_validator(mode="after")
    def _g711_has_one_rate(self) -> Self:
        if self.type in ("audio/pcmu", "audio/pcma") and self.rate not in (None, 8000):
            raise ValueError(f"{self.type} is always 8000 Hz; leave 'rate' out")
        return self


class NoiseReduction(Tolerant):
    type: Literal["near_field", "far_field"] | None = None
    strength: float | None = None


class Transcription(Tolerant):
    model: str | None = None
    language: str | None = None
    languages: list[str] | None = None
    prompt: str | None = None
    keywords: list[str] | None = None
    delay: Literal["minimal", "low", "medium", "high", "xhigh"] | None = None
    """Asks for partial transcripts while the user speaks."""


class TurnDetectionFields(Shape):
    type: Literal["server_vad", "semantic_vad"] | None = None
    """Without it, the current one is kept."""
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    prefix_padding_ms: Annotated[int, Field(ge=0, le=60_000)] | None = None
    silence_duration_ms: Annotated[int, Field(ge=0, le=60_000)] | None = None
    idle_timeout_ms: Annotated[int, Field(ge=5_000, le=30_000)] | None = None
    """Its range is from the API reference."""
    eagerness: Literal["low", "medium", "high", "auto"] | None = None
    create_response: bool | None = None
    interrupt_response: bool | None = None


class AudioInput(Shape):
    format: FormatFields | None = None
    noise_reduction: NoiseReduction | None = None
    transcription: Transcription | None = None
    turn_detection: TurnDetectionFields | None = None


class AudioOutput(Shape):
    format: FormatFields | None = None
    voice: Voice | None = None
    speed: Annotated[float, Field(ge=0.25, le=1.5)] | None = None


class SessionAudio(Shape):
    input: AudioInput | None = None
    output: AudioOutput | None = None


class TranscriptionAudio(Shape):
    input: AudioInput | None = None


# --- the session -------------------------------------------------------------------------------


class FunctionTool(Tolerant):
    type: Annotated[Literal["function"], BeforeValidator(_tool_type)] = "function"
    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: JsonObject | None = None


Functions = Annotated[list[FunctionTool], Field(fail_fast=True)]


class ToolFilterFields(Shape):
    tool_names: list[str] | None = None
    read_only: bool | None = None


class ApprovalFilters(Shape):
    always: ToolFilterFields | None = None
    never: ToolFilterFields | None = None


class McpTool(Tolerant):
    """``authorization`` and ``headers`` are secrets for the server, and never shown again."""

    type: Literal["mcp"]
    server_label: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    server_url: Annotated[str, Field(max_length=2048)] | None = None
    server_description: Annotated[str, Field(max_length=4096)] | None = None
    connector_id: str | None = None
    tunnel_id: str | None = None
    authorization: Annotated[str, Field(max_length=16_384)] | None = None
    headers: Annotated[dict[str, str], Field(max_length=MOST_HEADERS)] | None = None
    allowed_tools: list[str] | ToolFilterFields | None = None
    require_approval: Literal["always", "never"] | ApprovalFilters | None = None


AnyTool = Annotated[
    Annotated[FunctionTool, Tag("FunctionTool")] | Annotated[McpTool, Tag("McpTool")],
    Discriminator(_kind_of_tool),
]
Tools = Annotated[list[AnyTool], Field(fail_fast=True)]


class Reasoning(Tolerant):
    effort: Literal["minimal", "low", "medium", "high", "xhigh"] | None = None


class PromptTemplate(Tolerant):
    """Hosted upstream; ignored here."""

    id: str
    version: str | None = None
    variables: JsonObject | None = None


class TokenLimits(Tolerant):
    post_instructions: Count | None = None


class RetentionRatio(Tolerant):
    type: Literal["retention_ratio"]
    retention_ratio: Annotated[float, Field(ge=0, le=1)]
    token_limits: TokenLimits | None = None


class Tracing(Tolerant):
    workflow_name: str | None = None
    group_id: str | None = None
    metadata: JsonObject | None = None


Include = list[Literal["item.input_audio_transcription.logprobs"]]


class _AnySession(Shape):
    """Read-only fields, accepted so that a client can send back the session it received."""

    id: Any = None
    object: Any = None
    expires_at: Any = None
    model: Any = None
    include: Include | None = None


class SessionFields(_AnySession):
    type: Literal["realtime"]
    output_modalities: Modalities = None
    instructions: str | None = None
    audio: SessionAudio | None = None
    tools: Tools | None = None
    tool_choice: ToolChoiceField = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    max_output_tokens: MaxTokens = None
    truncation: Literal["auto", "disabled"] | RetentionRatio | None = None
    tracing: Literal["auto"] | Tracing | None = None
    prompt: PromptTemplate | None = None


class TranscriptionFields(_AnySession):
    """A session that only transcribes."""

    type: Literal["transcription"]
    audio: TranscriptionAudio | None = None


AnySessionFields = Annotated[SessionFields | TranscriptionFields, Field(discriminator="type")]


# --- items -------------------------------------------------------------------------------------

ItemId = Annotated[str, Field(min_length=1, max_length=256)]


class ContentFields(Shape):
    type: Literal["input_text", "output_text", "input_audio", "input_image", "output_audio"]
    text: str | None = None
    audio: str | None = None
    transcript: str | None = None
    image_url: str | None = None
    detail: Literal["auto", "low", "high"] | None = None


class ItemFields(Shape):
    """Common to all items. The server sets ``object`` and ``status``."""

    id: ItemId | None = None
    object: Any = None
    status: Any = None


class MessageFields(ItemFields):
    type: Literal["message"]
    role: Literal["system", "user", "assistant"]
    content: Annotated[list[ContentFields], Field(fail_fast=True)]


class FunctionCallFields(ItemFields):
    type: Literal["function_call"]
    name: Annotated[str, Field(min_length=1)]
    call_id: ItemId | None = None
    arguments: str


class FunctionOutputFields(ItemFields):
    type: Literal["function_call_output"]
    call_id: ItemId
    output: str


class ApprovalFields(ItemFields):
    """Whether a call of an MCP server's tool is allowed."""

    type: Literal["mcp_approval_response"]
    approval_request_id: ItemId
    approve: bool
    reason: Annotated[str, Field(max_length=4096)] | None = None


class ItemReferenceFields(Shape):
    type: Literal["item_reference"]
    id: ItemId


ItemField = MessageFields | FunctionCallFields | FunctionOutputFields
AnyItemFields = Annotated[ItemField | ApprovalFields, Field(discriminator="type")]
AnyInputFields = Annotated[ItemField | ItemReferenceFields, Field(discriminator="type")]


# --- responses ---------------------------------------------------------------------------------


class ResponseAudioOutput(Shape):
    format: FormatFields | None = None
    voice: Voice | None = None


class ResponseAudio(Shape):
    output: ResponseAudioOutput | None = None


MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]


class ResponseFields(Shape):
    conversation: Literal["auto", "none"] | None = None
    input: Annotated[list[AnyInputFields], Field(fail_fast=True)] | None = None
    instructions: str | None = None
    output_modalities: Modalities = None
    audio: ResponseAudio | None = None
    tools: Functions | None = None
    tool_choice: ToolChoiceField = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    max_output_tokens: MaxTokens = None
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)] | None = None
    prompt: PromptTemplate | None = None


# --- events ------------------------------------------------------------------------------------


class ClientEvent(Shape):
    type: str
    event_id: Any = None


class SessionUpdate(ClientEvent):
    session: AnySessionFields


class ItemCreate(ClientEvent):
    item: AnyItemFields
    previous_item_id: ItemId | None = None


class ItemNamed(ClientEvent):
    """A request to delete or retrieve an item."""

    item_id: ItemId


class ItemTruncate(ClientEvent):
    item_id: ItemId
    content_index: Count
    audio_end_ms: Count


class ResponseCreate(ClientEvent):
    response: ResponseFields | None = None


class ResponseCancel(ClientEvent):
    response_id: ItemId | None = None
