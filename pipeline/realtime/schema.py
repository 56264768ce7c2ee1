"""The shapes of client events: items, responses, and the events around them.

Field names and values are those of the API reference (``openai.types.realtime`` 3.52); the
session's fields are in ``session_schema``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline.realtime.session_schema import (
    AnySessionFields,
    Count,
    FormatFields,
    MaxTokens,
    Modalities,
    Prompt,
    Reasoning,
    ToolChoiceField,
    Tools,
    Voice,
)
from pipeline.realtime.shapes import Shape

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
    """Common to all items; ``object`` and ``status`` are the server's to say."""

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


class ItemReferenceFields(Shape):
    type: Literal["item_reference"]
    id: ItemId


ItemField = MessageFields | FunctionCallFields | FunctionOutputFields
AnyItemFields = Annotated[ItemField, Field(discriminator="type")]
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
    tools: Tools | None = None
    tool_choice: ToolChoiceField = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    max_output_tokens: MaxTokens = None
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)] | None = None
    prompt: Prompt | None = None


# --- events ------------------------------------------------------------------------------------


class ClientEvent(Shape):
    type: str
    event_id: Any = None


class SessionUpdate(ClientEvent):
    session: AnySessionFields


class ItemCreate(ClientEvent):
    item: AnyItemFields
    previous_item_id: ItemId | None = None


class ItemDelete(ClientEvent):
    item_id: ItemId


class ItemRetrieve(ClientEvent):
    item_id: ItemId


class ItemTruncate(ClientEvent):
    item_id: ItemId
    content_index: Count
    audio_end_ms: Count


class ResponseCreate(ClientEvent):
    response: ResponseFields | None = None


class ResponseCancel(ClientEvent):
    response_id: ItemId | None = None
