"""Replies on the wire: the API's order, whatever the pipeline does."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from pipeline import events
from pipeline.items import AudioPart
from tests.support.protocol_client import (
    AUDIO,
    ITEM_STARTED,
    Client,
    finished,
    item_finished,
    message,
    spoken,
    started,
    types,
)

AUDIO_CLOSING = [
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
    "rate_limits.updated",
]


def test_response_done_says_everything() -> None:
    client = Client()
    client.updated(audio={"output": {"voice": "Aiden"}})
    sent = client.apply(
        started(max_output_tokens=80, metadata={"client_event_id": "7"}),
        ITEM_STARTED,
        spoken("Hi."),
        item_finished(AudioPart("Hi.")),
        finished(message(AudioPart("Hi."))),
    )
    created, done = sent[0]["response"], sent[-2]["response"]
    assert (created["status"], created["output"], created["usage"]) == ("in_progress", [], None)
    assert created["metadata"] == done["metadata"] == {"client_event_id": "7"}
    assert created["conversation_id"].startswith("conv_")
    assert done["status_details"] is None
    assert done["max_output_tokens"] == 80
    assert done["audio"]["output"]["voice"] == "Aiden"  # as the client calls it
    assert done["output"][0]["status"] == "completed"
    assert done["usage"] == {
        "total_tokens": 107,
        "input_tokens": 100,
        "output_tokens": 7,
        "input_token_details": {
            "text_tokens": 100,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": 80,
            "cached_tokens_details": {"text_tokens": 80, "audio_tokens": 0, "image_tokens": 0},
        },
        "output_token_details": {"text_tokens": 7, "audio_tokens": 0},
    }


@pytest.mark.parametrize(
    ("status", "more", "details"),
    [
        (
            "cancelled",
            {"reason": "turn_detected"},
            {"type": "cancelled", "reason": "turn_detected"},
        ),
        (
            "cancelled",
            {"reason": "client_cancelled"},
            {"type": "cancelled", "reason": "client_cancelled"},
        ),
        ("cancelled", {"reason": "shutdown"}, {"type": "cancelled"}),
        (
            "incomplete",
            {"reason": "max_output_tokens"},
            {"type": "incomplete", "reason": "max_output_tokens"},
        ),
        (
            "failed",
            {"error": "The voice broke."},
            {
                "type": "failed",
                "error": {
                    "type": "server_error",
                    "code": "engine_error",
                    "message": "The voice broke.",
                },
            },
        ),
    ],
)
def test_how_a_reply_can_end(status: Any, more: dict[str, Any], details: dict[str, Any]) -> None:
    cut = (AudioPart("It", 0.01),)
    client = Client()
    client.apply(started(), ITEM_STARTED, spoken("It is noon."), AUDIO)
    sent = client.apply(
        item_finished(*cut, status="incomplete"),
        finished(message(*cut, status="incomplete"), status=status, **more),
    )
    assert types(sent) == AUDIO_CLOSING
    assert sent[-2]["response"]["status_details"] == details
    assert sent[1]["transcript"] == "It is noon."  # what the deltas said
    assert sent[-3]["item"]["status"] == "incomplete"
    assert sent[-3]["item"]["content"][0]["transcript"] == "It"  # what was heard


def test_a_reply_that_ends_before_it_said_anything() -> None:
    sent = Client().apply(started(), finished(status="failed", error="No."))
    assert types(sent) == ["response.created", "response.done", "rate_limits.updated"]


def test_nothing_stale_follows_the_end() -> None:
    client = Client()
    client.apply(started(), ITEM_STARTED, item_finished(AudioPart("")))
    assert client.apply(AUDIO, spoken("late"), item_finished(AudioPart(""))) == []
    assert types(client.apply(finished())) == ["response.done", "rate_limits.updated"]
    assert client.apply(AUDIO, spoken("late"), ITEM_STARTED, finished()) == []


def test_an_item_that_the_pipeline_forgot_is_closed() -> None:
    client = Client()
    client.apply(started(), ITEM_STARTED, spoken("Hal"))
    sent = client.apply(finished(status="failed", error="x"))
    assert types(sent) == AUDIO_CLOSING
    assert sent[-3]["item"]["status"] == "incomplete"
    assert sent[-3]["item"]["content"] == [{"type": "output_audio", "transcript": "Hal"}]


def test_long_audio_is_several_frames_far_below_1_mib() -> None:
    client = Client()
    client.apply(started(), ITEM_STARTED)
    minute = np.arange(24_000 * 60, dtype=np.int16)
    sent = client.apply(events.ReplyAudio("resp_1", "item_a", 0, minute, 24_000))
    assert types(sent) == ["response.output_audio.delta"] * 300
    pieces = [base64.b64decode(event["delta"]) for event in sent]
    assert all(len(piece) % 2 == 0 and len(piece) < 16_384 for piece in pieces)
    assert b"".join(pieces) == minute.astype("<i2").tobytes()
