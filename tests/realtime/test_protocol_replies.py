"""Replies, function calls and other events on the wire, always in the API's order."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import events
from pipeline.items import (
    AudioPart,
    FunctionCallItem,
)
from tests.support.conformance import check
from tests.support.protocol_client import (
    AUDIO,
    DEFAULTS,
    ITEM_STARTED,
    Client,
    finished,
    item_finished,
    message,
    spoken,
    started,
    types,
)

pytestmark = pytest.mark.quick

AUDIO_CLOSING = [
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
    "rate_limits.updated",
]


def test_response_done_is_complete(client: Client) -> None:
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


BROKE = "The voice broke."
FAULT = {"type": "server_error", "code": "engine_error", "message": BROKE}


@pytest.mark.parametrize(
    ("status", "more", "details"),
    [
        ("cancelled", {"reason": "turn_detected"}, {"reason": "turn_detected"}),
        ("cancelled", {"reason": "client_cancelled"}, {"reason": "client_cancelled"}),
        ("cancelled", {"reason": "shutdown"}, {}),
        ("incomplete", {"reason": "max_output_tokens"}, {"reason": "max_output_tokens"}),
        ("failed", {"error": BROKE}, {"error": FAULT}),
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
    assert sent[-2]["response"]["status_details"] == {"type": status, **details}
    assert sent[1]["transcript"] == "It is noon."  # the deltas' text
    assert sent[-3]["item"]["status"] == "incomplete"
    assert sent[-3]["item"]["content"][0]["transcript"] == "It"  # what was heard


def test_no_stale_event_follows_the_end(client: Client) -> None:
    client.apply(started(), ITEM_STARTED, item_finished(AudioPart("")))
    assert client.apply(AUDIO, spoken("late"), item_finished(AudioPart(""))) == []
    assert types(client.apply(finished())) == ["response.done", "rate_limits.updated"]
    assert client.apply(AUDIO, spoken("late"), ITEM_STARTED, finished()) == []


def test_an_item_left_open_by_the_pipeline_is_closed(client: Client) -> None:
    client.apply(started(), ITEM_STARTED, spoken("Hal"))
    sent = client.apply(finished(status="failed", error="x"))
    assert types(sent) == AUDIO_CLOSING
    assert sent[-3]["item"]["status"] == "incomplete"
    assert sent[-3]["item"]["content"] == [{"type": "output_audio", "transcript": "Hal"}]


# --- function calls on the wire ----------------------------------------------------------------


CALL = FunctionCallItem("item_c", "call_1", "dance", '{"move": "twist"}')

CALL_EVENTS = [
    "response.output_item.added",
    "conversation.item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "conversation.item.done",
    "response.output_item.done",
]
END = ["response.done", "rate_limits.updated"]


def call_started(call: FunctionCallItem = CALL, index: int = 0) -> events.ReplyItemStarted:
    begun = replace(call, arguments="", status="in_progress")
    return events.ReplyItemStarted("resp_1", begun, index, None)


def arguments(text: str, call: FunctionCallItem = CALL, index: int = 0) -> events.ReplyArguments:
    return events.ReplyArguments("resp_1", call.id, index, call.call_id, text)


def call_finished(call: FunctionCallItem = CALL, index: int = 0) -> events.ReplyItemFinished:
    return events.ReplyItemFinished("resp_1", call, index, None)


def whole_call(call: FunctionCallItem, index: int) -> list[events.Event]:
    return [
        call_started(call, index),
        arguments(call.arguments, call, index),
        call_finished(call, index),
    ]


def test_deltas_always_add_up_to_the_arguments() -> None:
    """Clients that collect deltas get everything, however little was sent before."""
    sent = Client().apply(started(), call_started(), arguments('{"mo'), call_finished())
    deltas = [event["delta"] for event in sent if event["type"].endswith("arguments.delta")]
    assert "".join(deltas) == CALL.arguments


def test_a_call_that_is_cut_is_closed_and_marked(client: Client) -> None:
    client.apply(started(), call_started(), arguments('{"mo'))
    sent = client.apply(finished(status="cancelled", reason="turn_detected"))
    assert types(sent) == [*CALL_EVENTS[3:], *END]
    assert sent[0]["arguments"] == '{"mo'
    assert sent[2]["item"]["status"] == "incomplete"
    assert sent[-2]["response"]["output"] == [sent[2]["item"]]


@pytest.mark.parametrize(
    "stray",
    [
        arguments("x", FunctionCallItem("item_a", "call_1", "f", "")),  # to a message
        events.ReplyText("resp_1", "item_c", 0, "x"),  # to a call
        events.ReplyAudio("resp_1", "item_c", 0, AUDIO.pcm, 24_000),
        arguments(""),
    ],
)
def test_events_without_an_item_are_not_sent(client: Client, stray: events.Event) -> None:
    client.apply(started(), ITEM_STARTED, item_finished(AudioPart("")), call_started(index=1))
    assert client.apply(stray) == []


OTHER = FunctionCallItem("item_d", "call_2", "look", "{}")
STEPS: list[events.Event] = [
    ITEM_STARTED,
    spoken("word "),
    AUDIO,
    item_finished(AudioPart("word", 0.1)),
    call_started(CALL, 1),
    arguments('{"move"', CALL, 1),
    call_finished(CALL, 1),
    *whole_call(OTHER, 2),
    # Events that a broken pipeline might send.
    events.ReplyItemFinished("resp_1", replace(CALL, id="item_a"), 0, None),
    events.ReplyItemFinished("resp_1", replace(message(), id="item_c"), 1, None),
    call_finished(replace(CALL, status="in_progress"), 1),
    started(),
]


@given(
    st.lists(st.sampled_from(STEPS), max_size=12),
    st.sampled_from(["completed", "cancelled", "incomplete", "failed"]),
    st.lists(st.sampled_from([*STEPS, finished()]), max_size=4),
)
def test_every_response_is_closed_once_in_any_state(
    steps: list[events.Event], status: Any, late: list[events.Event]
) -> None:
    client = Client()
    # Two items are never open at once upstream; here that is the pipeline's promise, so the order
    # between items is not checked.
    sent = [*_apply_unchecked(client, started(), *steps, finished(status=status))]
    kinds = [event["type"] for event in sent]
    assert kinds.count("response.created") == kinds.count("response.done") == 1
    assert kinds[-2:] == END
    for opened, closed in (
        ("response.output_item.added", "response.output_item.done"),
        ("response.content_part.added", "response.content_part.done"),
        ("conversation.item.added", "conversation.item.done"),
    ):
        assert kinds.count(opened) == kinds.count(closed)
    output = sent[-2]["response"]["output"]
    done = [e["item"] for e in sent if e["type"] == "response.output_item.done"]
    assert sorted(map(str, output)) == sorted(map(str, done))
    assert all(item["status"] != "in_progress" for item in output)
    after = [e["type"] for e in _apply_unchecked(client, *late)]
    assert "response.created" in after or after == []


def _apply_unchecked(client: Client, *happened: events.Event) -> list[dict[str, Any]]:
    """Check each event, in an order that a pipeline might never produce."""
    for event in happened:
        client.protocol.apply(event)
    sent = [json.loads(text) for text in client.protocol.messages_to_send()]
    for event_sent in sent:
        check(event_sent)
    return sent


# --- events other than replies -----------------------------------------------------------------


def test_a_fault_in_the_session_is_a_server_error() -> None:
    (event,) = Client().apply(events.Refused(None, "internal_error", "See the log.", None))
    assert event["error"]["type"] == "server_error"


def test_internal_events_are_not_sent() -> None:
    internal = (
        events.SpeechPaused("i", 1),
        events.SpeechResumed("i", 2),
        events.TurnJudged("i", 0.5, 300),
        events.SpeculationDiscarded("i", 0.2),
        events.Timeline("resp_1", first_audio=300.0),
        events.ReplyHeld("resp_1"),
        events.ReplyWentOn("resp_1"),
        events.FellAsleep("start"),
        events.Woke("word"),
    )
    assert Client().apply(*internal) == []


def test_sleep_is_reported_on_request() -> None:
    told = Client(DEFAULTS, "sleep").apply(events.FellAsleep("silence"), events.Woke("touch"))
    assert [(event["type"], event["reason"]) for event in told] == [
        ("reachy_voice.asleep", "silence"),
        ("reachy_voice.awake", "touch"),
    ]


def test_a_held_answer_is_reported_on_request() -> None:
    told = Client(DEFAULTS, "holds").apply(events.ReplyHeld("resp_1"), events.ReplyWentOn("resp_1"))
    assert [(event["type"], event["response_id"]) for event in told] == [
        ("reachy_voice.response.held", "resp_1"),
        ("reachy_voice.response.went_on", "resp_1"),
    ]


def test_the_timeline_is_sent_on_request() -> None:
    (event,) = Client(DEFAULTS, "timings").apply(
        events.Timeline("resp_1", 210.0, first_audio=480.5)
    )
    event.pop("event_id")
    assert event == {
        "type": "reachy_voice.timeline",
        "response_id": "resp_1",
        "endpoint_ms": 210.0,
        "transcript_ms": None,
        "first_token_ms": None,
        "first_clause_ms": None,
        "first_audio_ms": 480.5,
    }
