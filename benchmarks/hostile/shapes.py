"""Well-formed client messages for ``messages`` to corrupt: every event, with every field."""

from __future__ import annotations

import base64
from typing import Any

Json = Any

_PCM_20_MS = base64.b64encode(bytes(960)).decode()
_SPEECH_300_MS = base64.b64encode(b"\x00\x10" * 7_200).decode()
_SILENCE_1_S = base64.b64encode(bytes(48_000)).decode()
_PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
_TOOL = {
    "type": "function",
    "name": "wave",
    "description": "Wave.",
    "parameters": {"type": "object", "properties": {"times": {"type": "integer"}}},
}
_AUDIO_OUTPUT = {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "ash"}

VALID: tuple[dict[str, Json], ...] = (
    {"type": "input_audio_buffer.append", "audio": _PCM_20_MS},
    {"type": "input_audio_buffer.append", "audio": _SPEECH_300_MS},
    {"type": "input_audio_buffer.append", "audio": _SILENCE_1_S},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.clear"},
    {"type": "conversation.item.delete", "item_id": "item_x"},
    {"type": "conversation.item.retrieve", "item_id": "item_x"},
    {
        "type": "conversation.item.truncate",
        "item_id": "item_x",
        "content_index": 0,
        "audio_end_ms": 100,
    },
    {"type": "response.cancel", "response_id": "resp_x"},
    {"type": "response.create"},
    {
        "type": "response.create",
        "response": {
            "conversation": "none",
            "instructions": "Count.",
            "output_modalities": ["text"],
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "1"}],
                },
                {"type": "item_reference", "id": "item_x"},
            ],
            "audio": {"output": _AUDIO_OUTPUT},
            "tools": [_TOOL],
            "tool_choice": "auto",
            "max_output_tokens": 4,
            "metadata": {"topic": "sums"},
        },
    },
    {
        "type": "conversation.item.create",
        "previous_item_id": "root",
        "item": {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Hello."},
                {"type": "input_image", "image_url": _PNG, "detail": "low"},
            ],
        },
    },
    {
        "type": "conversation.item.create",
        "item": {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hi."}],
        },
    },
    {
        "type": "conversation.item.create",
        "item": {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_audio", "audio": _PCM_20_MS, "transcript": "Hi."}],
        },
    },
    {
        "type": "conversation.item.create",
        "item": {"type": "function_call", "name": "wave", "call_id": "c", "arguments": "{}"},
    },
    {
        "type": "conversation.item.create",
        "item": {"type": "function_call_output", "call_id": "c", "output": "done"},
    },
    {
        "type": "session.update",
        "session": {
            "type": "realtime",
            "model": "any",
            "output_modalities": ["audio"],
            "instructions": "Be kind.",
            "tools": [_TOOL],
            "tool_choice": {"type": "function", "name": "wave"},
            "max_output_tokens": "inf",
            "truncation": {"type": "retention_ratio", "retention_ratio": 0.5},
            "tracing": {"workflow_name": "w"},
            "include": ["item.input_audio_transcription.logprobs"],
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24000},
                    "noise_reduction": {"type": "near_field"},
                    "transcription": {"model": "whisper-1", "language": "en", "prompt": "p"},
                    "turn_detection": {
                        "type": "server_vad",
                        "threshold": 0.5,
                        "prefix_padding_ms": 300,
                        "silence_duration_ms": 500,
                        "idle_timeout_ms": 6000,
                        "create_response": True,
                        "interrupt_response": True,
                    },
                },
                "output": {**_AUDIO_OUTPUT, "speed": 1.0},
            },
        },
    },
    {
        "type": "session.update",
        "session": {
            "type": "realtime",
            "audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "low"}}},
        },
    },
    {
        "type": "session.update",
        "session": {"type": "realtime", "audio": {"input": {"format": {"type": "audio/pcmu"}}}},
    },
)

REQUIRED = tuple(
    (message, path)
    for message in VALID
    for path in (("audio",), ("item_id",), ("item",), ("session",), ("session", "type"))
    if path[0] in message
)
"""Required fields of a message."""
