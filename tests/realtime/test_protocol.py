"""Replies on the wire: the API's order, whatever the pipeline does."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import events
from pipeline.items import AudioPart, TextPart
from tests.support.protocol_client import (
    AUDIO,
    ITEM_STARTED,
    PCM,
    Client,
    finished,
    item_finished,
    message,
    spoken,
    started,
    types,
    user_speaks,
)

AUDIO_OPENING = [
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
]
AUDIO_CLOSING = [
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
    "rate_limits.updated",
]


def test_a_voice_turn_in_the_order_of_the_api() -> None:
    client = Client()
    client.updated(audio={"input": {"transcription": {"model": "x"}}})
    first, stopped, *committed = user_speaks()
    sent = client.apply(
        first,
        events.SpeechPaused("item_u", 1500),
        events.TurnJudged("item_u", 0.9, 200),
        stopped,
        *committed,
        started(),
        events.TranscriptReady("item_u", "What time is it?", 1.38),
        replace(ITEM_STARTED, previous_item_id="item_u"),
        spoken("It is "),
        AUDIO,
        spoken("noon."),
        AUDIO,
        item_finished(AudioPart("It is noon.", 0.02)),
        finished(message(AudioPart("It is noon.", 0.02))),
    )
    transcription = "conversation.item.input_audio_transcription"
    assert types(sent) == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
        f"{transcription}.delta",
        f"{transcription}.completed",
        *AUDIO_OPENING[1:],
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        *AUDIO_CLOSING,
    ]
    assert sent[0]["audio_start_ms"] == 320
    assert sent[1]["audio_end_ms"] == 1700
    assert sent[3]["item"]["content"] == [{"type": "input_audio", "transcript": None}]
    assert sent[7]["usage"] == {"type": "duration", "seconds": 1.38}
    assert base64.b64decode(sent[12]["delta"]) == PCM.astype("<i2").tobytes()
    parts = {event["type"]: event["part"] for event in sent if "part" in event}
    assert parts["response.content_part.added"] == {"type": "audio", "transcript": ""}
    assert parts["response.content_part.done"] == {"type": "audio", "transcript": "It is noon."}
    assert sent[-3]["item"]["content"] == [{"type": "output_audio", "transcript": "It is noon."}]
    assert sent[-1]["rate_limits"] == []


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


def test_a_written_answer() -> None:
    sent = Client().apply(
        started("text"),
        ITEM_STARTED,
        spoken("No"),
        spoken("on."),
        item_finished(TextPart("Noon.")),
        finished(message(TextPart("Noon."))),
    )
    assert types(sent) == [
        *AUDIO_OPENING,
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        *AUDIO_CLOSING[2:],
    ]
    assert sent[6]["text"] == "Noon."
    assert sent[7]["part"] == {"type": "text", "text": "Noon."}
    assert sent[-2]["response"]["output_modalities"] == ["text"]


def test_out_of_band_has_no_items_in_the_conversation() -> None:
    sent = Client().apply(
        started("text", in_conversation=False),
        ITEM_STARTED,
        spoken("x"),
        item_finished(TextPart("x")),
        finished(message(TextPart("x"))),
    )
    assert not [kind for kind in types(sent) if kind.startswith("conversation.")]
    assert sent[0]["response"]["conversation_id"] is None
    assert sent[-2]["response"]["output"][0]["content"] == [{"type": "output_text", "text": "x"}]


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


REPLY_EVENTS = st.lists(
    st.sampled_from(
        [
            spoken("word "),
            AUDIO,
            item_finished(AudioPart("word", 0.1)),
            finished(message(AudioPart("word", 0.1)), status="cancelled", reason="turn_detected"),
        ]
    ),
    max_size=8,
)


@given(REPLY_EVENTS, REPLY_EVENTS)
def test_whatever_the_pipeline_does_the_wire_is_in_order(
    before: list[events.Event], after: list[events.Event]
) -> None:
    """What was opened is closed before ``response.done``, which is last and the only one."""
    client = Client()
    part_open = over = False
    for event in client.apply(started(), *before, ITEM_STARTED, *after, finished()):
        kind = event["type"]
        if kind == "rate_limits.updated":
            continue
        assert not over, f"{kind} after response.done"
        if kind == "response.content_part.added":
            part_open = True
        elif kind == "response.content_part.done":
            assert part_open
            part_open = False
        elif kind.endswith(".delta"):
            assert part_open
        elif kind == "response.done":
            assert not part_open
            over = True
    assert over
