"""Events other than replies: items, refusals, the idle timeout, timings."""

from __future__ import annotations

from pipeline import events
from pipeline.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    MessageItem,
    TextPart,
)
from tests.support.protocol_client import Client


def test_items_of_every_kind_are_shown() -> None:
    items: list[Item] = [
        MessageItem("i", "system", (TextPart("Be kind."),)),
        MessageItem("i", "user", (TextPart("Hi."), AudioPart("Ho."))),
        MessageItem("i", "assistant", (TextPart("Hi."), AudioPart("Ho."))),
        FunctionCallItem("i", "c", "f", "{}"),
        FunctionOutputItem("i", "c", "42"),
    ]
    sent = Client().apply(*(events.ItemAdded(item, "before") for item in items))
    shown = [event["item"] for event in sent if event["type"].endswith("added")]
    assert [item["type"] for item in shown] == [
        "message",
        "message",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert [part["type"] for part in shown[1]["content"]] == ["input_text", "input_audio"]
    assert [part["type"] for part in shown[2]["content"]] == ["output_text", "output_audio"]
    assert {event["previous_item_id"] for event in sent} == {"before"}


def test_a_refusal_is_an_error_with_the_clients_event_id() -> None:
    code = "conversation_already_has_active_response"
    (event,) = Client().apply(events.Refused("mine", code, "Response resp_1 is running.", None))
    assert event["error"] == {
        "type": "invalid_request_error",
        "code": code,
        "message": "Response resp_1 is running.",
        "param": None,
        "event_id": "mine",
    }


def test_an_internal_error_is_ours() -> None:
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
    )
    assert Client().apply(*internal) == []


def test_an_answer_that_is_held_back_is_told_on_request() -> None:
    told = Client(holds=True).apply(events.ReplyHeld("resp_1"), events.ReplyWentOn("resp_1"))
    assert [(event["type"], event["response_id"]) for event in told] == [
        ("reachy_voice.response.held", "resp_1"),
        ("reachy_voice.response.went_on", "resp_1"),
    ]


def test_the_timeline_is_sent_on_request() -> None:
    (event,) = Client(timings=True).apply(events.Timeline("resp_1", 210.0, first_audio=480.5))
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
