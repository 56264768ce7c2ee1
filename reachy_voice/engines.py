"""For writing your own engines (docs/engines.md): the protocols, and a check for them."""

from pipeline.engines.contract import (
    Delta,
    Embedding,
    EndOfTurn,
    Finished,
    Llm,
    LlmSession,
    NotSpeech,
    Partial,
    SpeakerEncoder,
    Stt,
    TextDelta,
    ToolCall,
    Transcript,
    Tts,
    TurnDetector,
    Utterance,
    Vad,
    VadStream,
    Warmed,
)
from pipeline.engines.contract_check import faults
from pipeline.engines.registry import Kind
from pipeline.errors import EngineError, PromptTooLong
from pipeline.messages import LlmRequest, Message, Sampling, SpeechRequest, Tool, ToolChoice, Usage
from pipeline.work import Cancelled, CancelToken

__all__ = [
    "CancelToken",
    "Cancelled",
    "Delta",
    "Embedding",
    "EndOfTurn",
    "EngineError",
    "Finished",
    "Kind",
    "Llm",
    "LlmRequest",
    "LlmSession",
    "Message",
    "NotSpeech",
    "Partial",
    "PromptTooLong",
    "Sampling",
    "SpeakerEncoder",
    "SpeechRequest",
    "Stt",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "Transcript",
    "Tts",
    "TurnDetector",
    "Usage",
    "Utterance",
    "Vad",
    "VadStream",
    "Warmed",
    "faults",
]
