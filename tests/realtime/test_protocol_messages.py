"""Client messages in, commands out; whatever is wrong becomes exactly one ``error``."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import commands
from pipeline.realtime.protocol import INTERNAL
from pipeline.realtime.session_config import EffectiveSession
from tests.support.protocol_client import PCM, Client


def test_audio_buffer_events() -> None:
    client = Client()
    audio = base64.b64encode(PCM.astype("<i2").tobytes()).decode()
    (appended,) = client.send("input_audio_buffer.append", audio=audio)
    assert isinstance(appended, commands.AppendAudio)
    assert appended.pcm.tolist() == PCM.tolist()
    assert appended.rate == 24_000
    assert client.send("input_audio_buffer.append", audio="") == []
    assert client.send("input_audio_buffer.commit", event_id="e") == [commands.CommitAudio("e")]
    assert client.send("input_audio_buffer.clear", event_id=None) == [commands.ClearAudio()]
    assert client.sent() == []


def test_deletion_truncation_and_cancel() -> None:
    client = Client()
    assert client.send("conversation.item.delete", item_id="i") == [commands.DeleteItem("i")]
    cut = {"item_id": "i", "content_index": 0, "audio_end_ms": 1500, "event_id": "e"}
    assert client.send("conversation.item.truncate", **cut) == [
        commands.TruncateItem("i", 0, 1500, "e")
    ]
    assert client.send("response.cancel") == [commands.CancelResponse()]
    assert client.send("response.cancel", response_id="r", event_id="e") == [
        commands.CancelResponse("r", "e")
    ]


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ({"type": "session.updaet"}, "invalid_value", "type"),
        ({"type": "session.update"}, "missing_required_parameter", "session"),
        ({"type": "input_audio_buffer.append"}, "missing_required_parameter", "audio"),
        ({"type": "input_audio_buffer.append", "audio": "AAAA"}, "invalid_value", "audio"),
        ({"type": "input_audio_buffer.commit", "x": 1}, "unknown_parameter", "x"),
        ({"type": "conversation.item.create"}, "missing_required_parameter", "item"),
        (
            {"type": "conversation.item.create", "item": {"type": "mcp_call"}},
            "invalid_value",
            "item.type",
        ),
        (
            {"type": "conversation.item.create", "item": {}},
            "missing_required_parameter",
            "item.type",
        ),
        ({"type": "conversation.item.create", "item": []}, "invalid_value", "item"),
        ({"type": "conversation.item.delete"}, "missing_required_parameter", "item_id"),
        (
            {
                "type": "conversation.item.truncate",
                "item_id": "i",
                "content_index": 0,
                "audio_end_ms": -1,
            },
            "invalid_value",
            "audio_end_ms",
        ),
        ({"type": "output_audio_buffer.clear"}, "invalid_value", "type"),
        (
            {"type": "response.create", "instructions": "x"},
            "unknown_parameter",
            "instructions",
        ),
        ({"type": "response.cancel", "response_id": 5}, "invalid_value", "response_id"),
    ],
)
def test_a_bad_message_is_one_error_with_its_event_id(
    message: dict[str, Any], code: str, param: str
) -> None:
    error = Client().refused(**message)
    assert (error["code"], error["param"]) == (code, param)
    assert error["message"]


def test_a_misspelt_event_gets_a_hint() -> None:
    assert "'session.update'" in Client().refused("session.updaet")["message"]


def test_a_fault_of_ours_is_one_server_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client()

    said = " ".join(["what", "somebody", "said"])

    def broken(self: EffectiveSession) -> None:
        raise ValueError(said)

    monkeypatch.setattr(EffectiveSession, "config", broken)
    assert client.update(instructions="x") == []
    (event,) = client.sent()  # no session.updated
    error = event["error"]
    assert (error["type"], error["code"]) == ("server_error", INTERNAL)
    assert said not in caplog.text + error["message"]
    assert "session.update failed: ValueError" in caplog.text
    monkeypatch.undo()
    assert_alive(client)


def assert_alive(client: Client) -> None:
    assert client.send("input_audio_buffer.commit") == [commands.CommitAudio()]
    client.updated(instructions="Still here.")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)
FIELDS = st.sampled_from(
    ["session", "item", "response", "audio", "item_id", "audio_end_ms", "previous_item_id", "type"]
)
TYPES = st.sampled_from(
    [
        "session.update",
        "input_audio_buffer.append",
        "conversation.item.create",
        "conversation.item.truncate",
        "response.create",
        "response.cancel",
    ]
)


@given(st.text() | st.binary())
def test_any_garbage_is_exactly_one_error(garbage: str | bytes) -> None:
    client = Client()
    assert client.protocol.receive(garbage) == []
    assert [event["type"] for event in client.sent()] == ["error"]
    assert_alive(client)


@given(TYPES, st.dictionaries(FIELDS, JSON, max_size=4), JSON, JSON)
def test_any_fields_are_commands_or_exactly_one_error(
    type: str, fields: dict[str, Any], session: Any, content: Any
) -> None:
    """Known events with arbitrary contents: nothing is raised, everything said conforms."""
    client = Client()
    inner = {
        "session": {"type": "realtime", "audio": session, "tracing": content},
        "item": {"type": "message", "role": "user", "content": content},
    }
    for body in ({**fields, "type": type}, {**inner, "type": type}):
        got = client.protocol.receive(json.dumps(body))
        said = [event["type"] for event in client.sent()]
        if got and type == "session.update":
            assert said == ["session.updated"]
        elif got or (type == "input_audio_buffer.append" and body.get("audio") == ""):
            assert said == []
        else:
            assert said == ["error"]
    assert_alive(client)
