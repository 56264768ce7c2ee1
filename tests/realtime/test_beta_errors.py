"""What the beta dialect refuses, in its own names; and that no message breaks it."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.beta.realtime import realtime_client_event

from benchmarks.hostile.messages import Hostile
from tests.support.beta_client import BetaClient


@pytest.fixture
def client() -> BetaClient:
    client = BetaClient()
    client.sent()
    return client


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({"modalities": ["audio", "smell"]}, "invalid_value", "session.modalities"),
        ({"modalities": []}, "invalid_value", "session.modalities"),
        ({"modalities": 3}, "invalid_value", "session.modalities"),
        ({"input_audio_format": "mp3"}, "invalid_value", "session.input_audio_format"),
        ({"output_audio_format": 3}, "invalid_value", "session.output_audio_format"),
        ({"temperature": "warm"}, "invalid_value", "session.temperature"),
        ({"temperature": float("nan")}, "invalid_value", "session.temperature"),
        ({"temperature": True}, "invalid_value", "session.temperature"),
        ({"output_modalities": ["text"]}, "unknown_parameter", "session.output_modalities"),
        ({"audio": {}}, "unknown_parameter", "session.audio"),
        ({"colour": 1}, "unknown_parameter", "session.colour"),
        # These the GA side refuses; the client reads its own names.
        ({"voice": 3}, "invalid_value", "session.voice"),
        ({"speed": "fast"}, "invalid_value", "session.speed"),
        ({"max_response_output_tokens": -1}, "invalid_value", "session.max_response_output_tokens"),
        ({"turn_detection": {"threshold": 7}}, "invalid_value", "session.turn_detection.threshold"),
        ({"turn_detection": "yes"}, "invalid_value", "session.turn_detection"),
        (
            {"input_audio_transcription": {"model": 3}},
            "invalid_value",
            "session.input_audio_transcription.model",
        ),
    ],
)
def test_a_bad_update_is_one_error_in_betas_own_words(
    client: BetaClient, session: dict[str, Any], code: str, param: str
) -> None:
    before, _ = client.updated()
    error = client.refused("session.update", session=session)
    assert (error["code"], error["param"]) == (code, param)
    assert param in error["message"]
    assert client.updated()[0] == before


def test_a_bad_response_is_one_error_in_betas_own_words(client: BetaClient) -> None:
    for response, param in (
        ({"modalities": [1]}, "response.modalities"),
        ({"voice": 1}, "response.voice"),
        ({"output_audio_format": "wav"}, "response.output_audio_format"),
        ({"temperature": []}, "response.temperature"),
        ({"audio": {}}, "response.audio"),
    ):
        assert client.refused("response.create", response=response)["param"] == param


def test_what_is_no_message_is_left_to_the_ga_side(client: BetaClient) -> None:
    for text in (
        "",
        "session.update",
        '["session.update"]',
        '{"type":"session.update","session":' + "[" * 100_000,
        '{"type":"nonsense","like":"session.update"}',
        '{"type":["session.update"]}',
    ):
        assert client.dialect.to_ga(text) == text
        assert client.protocol.receive(text) == []
        (event,) = client.sent()
        assert event["type"] == "error"


_NAMES = """type session item response content role input modalities voice tool_choice function
name turn_detection input_audio_format input_audio_transcription temperature tools text include
max_output_tokens"""
NAMES = st.sampled_from(_NAMES.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
KINDS = st.sampled_from(
    [
        "session.update",
        "transcription_session.update",
        "conversation.item.create",
        "response.create",
    ]
)


@given(KINDS, st.dictionaries(NAMES, JSON, max_size=3))
def test_no_message_breaks_the_translator(kind: str, fields: dict[str, Any]) -> None:
    client = BetaClient()
    client.sent()
    ga = client.dialect.to_ga(json.dumps({**fields, "type": kind, "event_id": "mine"}))
    if isinstance(ga, list):
        (event,) = [client.recorder.record(reply) for reply in ga]
        assert event["error"]["event_id"] == "mine"
        return
    commands = client.protocol.receive(ga)
    kinds = [event["type"] for event in client.sent()]
    assert kinds.count("error") == (0 if commands else 1)


def test_hostile_messages_are_one_error_or_one_effect() -> None:
    client = BetaClient()
    client.sent()
    for attack in islice(Hostile(seed=5, beta=True), 3_000):
        if isinstance(attack.frame, bytes):
            continue
        ga = client.dialect.to_ga(attack.frame)
        if isinstance(ga, list):
            sent, effects = [client.recorder.record(reply) for reply in ga], 0
        else:
            effects = len(client.protocol.receive(ga))
            sent = client.sent()
        errors = [event["error"] for event in sent if event["type"] == "error"]
        assert len(errors) <= 1
        assert not (errors and effects)
        if errors and attack.event_id:
            assert errors[0]["event_id"] == attack.event_id


@pytest.mark.parametrize("kind", ["session.update", "response.create"])
@pytest.mark.parametrize("temperature", ["1" + "0" * 400, "-1" + "0" * 400, "NaN", "1e999", "2.1"])
def test_a_temperature_that_no_float_holds_is_refused(
    client: BetaClient, kind: str, temperature: str
) -> None:
    field = kind.partition(".")[0]
    text = f'{{"type":"{kind}","event_id":"mine","{field}":{{"temperature":{temperature}}}}}'
    (reply,) = client.dialect.to_ga(text)
    error = client.recorder.record(reply)["error"]
    assert (error["param"], error["event_id"]) == (f"{field}.temperature", "mine")


def test_a_huge_event_id_is_not_sent_back(client: BetaClient) -> None:
    update = {"type": "session.update", "event_id": "x" * 2_000_000, "session": {"audio": 1}}
    replies = client.dialect.to_ga(json.dumps(update))
    assert client.recorder.record(replies[0])["error"]["event_id"] is None


def test_every_client_event_of_the_types_is_known() -> None:
    """Beta's 12 client events are those that GA has, and one more."""
    union = realtime_client_event.RealtimeClientEvent.__args__[0]  # type: ignore[attr-defined]
    kinds = {shape.model_fields["type"].annotation.__args__[0] for shape in union.__args__}
    assert "transcription_session.update" in kinds
    assert len(kinds) == 12
