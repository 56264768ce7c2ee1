"""Function calls on the wire: alone, after speech, several, and cut."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import events
from pipeline.items import AudioPart, FunctionCallItem
from tests.support.conformance import check
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
    """Clients that collect deltas get everything, however little of it was told before."""
    sent = Client().apply(started(), call_started(), arguments('{"mo'), call_finished())
    deltas = [event["delta"] for event in sent if event["type"].endswith("arguments.delta")]
    assert "".join(deltas) == CALL.arguments


def test_a_call_that_is_cut_is_closed_and_marked() -> None:
    client = Client()
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
def test_events_without_an_item_are_not_sent(stray: events.Event) -> None:
    client = Client()
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
    # What a broken pipeline might send.
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
    # between items is not looked at.
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
    """Each event conforms; their order may be one that no pipeline would make."""
    for event in happened:
        client.protocol.apply(event)
    sent = [json.loads(text) for text in client.protocol.messages_to_send()]
    for event_sent in sent:
        check(event_sent)
    return sent
