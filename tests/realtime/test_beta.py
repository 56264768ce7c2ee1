"""The beta dialect: a client of 2025 talks to the GA protocol and reads its own names only."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.beta.realtime import realtime_client_event

from benchmarks.hostile.messages import Hostile
from pipeline.audio import AudioFormat, pcm_to_bytes
from pipeline.commands import AddItem, AppendAudio, CreateResponse
from pipeline.events import IdleTimeout, ItemAdded, ReplyArguments, ReplyItemStarted
from pipeline.items import AudioPart, FunctionCallItem, ImagePart, MessageItem, TextPart
from pipeline.realtime.beta import wants_beta
from tests.support.protocol_client import (
    AUDIO,
    DEFAULTS,
    ITEM_STARTED,
    PCM,
    Client,
    finished,
    item_finished,
    spoken,
    started,
    types,
    user_speaks,
)

TRANSCRIPTION = replace(DEFAULTS, transcription=True)


@pytest.fixture
def client() -> Client:
    return Client(beta=True)


def test_the_header_or_the_subprotocol_selects_it() -> None:
    assert wants_beta({"OpenAI-Beta": "realtime=v1"}, [])
    assert wants_beta({"openai-beta": "assistants=v2, realtime=v1"}, [])
    assert wants_beta({}, ["realtime", "openai-insecure-api-key.x", "openai-beta.realtime-v1"])
    assert not wants_beta({}, ["realtime"])
    assert not wants_beta({"OpenAI-Beta": "assistants=v2"}, [])


# --- sessions ----------------------------------------------------------------------------------


def test_the_start(client: Client) -> None:
    created, conversation = client.created
    assert created["type"] == "session.created"
    assert created["session"]["modalities"] == ["text", "audio"]
    assert created["session"]["input_audio_format"] == "pcm16"
    assert created["session"]["temperature"] == 0.8
    assert conversation["type"] == "conversation.created"
    assert conversation["conversation"]["object"] == "realtime.conversation"


def test_a_flat_session_update(client: Client) -> None:
    said = {
        "modalities": ["text", "audio"],
        "instructions": "Be brief.",
        "voice": "amy",
        "input_audio_format": "g711_ulaw",
        "output_audio_format": "g711_alaw",
        "input_audio_transcription": {"model": "whisper-1"},
        "input_audio_noise_reduction": {"type": "far_field"},
        "tools": [{"type": "function", "name": "wave", "description": "", "parameters": {}}],
        "tool_choice": "wave",
        "temperature": 0.6,
        "max_response_output_tokens": 100,
        "speed": 1.25,
        "tracing": "auto",
    }
    detection = {"type": "server_vad", "silence_duration_ms": 300}
    shown, config = client.updated(**said, turn_detection=detection)
    assert {name: shown[name] for name in said if name != "tools"} == {
        name: value for name, value in said.items() if name != "tools"
    }
    assert shown["turn_detection"].items() >= detection.items()
    assert "idle_timeout_ms" not in shown["turn_detection"]
    assert (config.instructions, config.voice, config.modality) == ("Be brief.", "amy", "audio")
    assert (config.speed, config.max_output_tokens) == (1.25, 100)
    assert config.output_format == AudioFormat("pcma", 8_000)
    assert config.turn_detection is not None
    assert config.turn_detection.silence_duration_ms == 300
    assert [tool.name for tool in config.tools] == ["wave"]


def test_an_update_changes_only_what_it_names(client: Client) -> None:
    client.updated(instructions="Be brief.", temperature=1)
    shown, config = client.updated(modalities=["text"], turn_detection=None)
    assert (shown["instructions"], shown["temperature"]) == ("Be brief.", 1)
    assert shown["turn_detection"] is config.turn_detection is None
    assert shown["modalities"] == ["text"]
    assert config.modality == "text"


def test_a_refused_update_leaves_the_temperature(client: Client) -> None:
    assert client.refused("session.update", session={"temperature": 1.1, "voice": 3})
    assert client.updated(instructions="x")[0]["temperature"] == 0.8


def test_a_shown_session_can_be_sent_back(client: Client) -> None:
    shown, _ = client.updated(turn_detection={"type": "semantic_vad", "eagerness": "low"})
    again, _ = client.updated(**{**shown, "model": "x", "object": "realtime.session"})
    assert again == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("auto", "auto"),
        ("wave", "wave"),
        ({"type": "function", "name": "wave"}, "wave"),
        ({"type": "function", "function": {"name": "wave"}}, "wave"),
    ],
)
def test_ways_to_choose_a_tool(client: Client, given: Any, shown: str) -> None:
    tools = [{"type": "function", "name": "wave"}]
    session, config = client.updated(tools=tools, tool_choice=given)
    assert session["tool_choice"] == shown
    assert config.tool_choice.name == ("wave" if shown == "wave" else "")


def test_a_transcription_session() -> None:
    client = Client(TRANSCRIPTION, beta=True)
    assert types(client.created) == ["session.created", "conversation.created"]
    settings = {
        "input_audio_format": "g711_ulaw",
        "input_audio_transcription": {"model": "whisper-1"},
        "turn_detection": {"threshold": 0.4},
        "include": ["item.input_audio_transcription.logprobs"],
    }
    (command,) = client.send("transcription_session.update", session=settings)
    assert command.config.turn_detection.threshold == 0.4  # type: ignore[union-attr]
    (updated,) = client.sent()
    assert updated["type"] == "transcription_session.updated"
    assert updated["session"]["input_audio_format"] == "g711_ulaw"
    assert updated["session"]["input_audio_transcription"]["model"] == "whisper-1"
    assert updated["session"]["turn_detection"]["threshold"] == 0.4


# --- items and responses -----------------------------------------------------------------------


def test_items_both_ways(client: Client) -> None:
    content = [{"type": "text", "text": "Hello."}]
    item = {"type": "message", "role": "assistant", "content": content}
    (command,) = client.send("conversation.item.create", item=item)
    assert isinstance(command, AddItem)
    assert command.item.text == "Hello."  # type: ignore[union-attr]
    (created,) = client.apply(ItemAdded(MessageItem("a", "assistant", (AudioPart("Hi."),)), None))
    assert created["type"] == "conversation.item.created"
    assert created["item"]["content"] == [{"type": "audio", "transcript": "Hi."}]


def test_events_unknown_to_beta_are_not_sent(client: Client) -> None:
    parts = (ImagePart("data:"), TextPart("What is this?"))
    (created,) = client.apply(ItemAdded(MessageItem("u", "user", parts), None))
    assert created["item"]["content"] == [{"type": "input_text", "text": "What is this?"}]
    assert client.apply(IdleTimeout(0, 5_000, "u")) == []
    assert types(client.apply(*user_speaks())) == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.created",
    ]


def test_response_create_is_renamed(client: Client) -> None:
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    asked = {
        "conversation": "none",
        "modalities": ["text"],
        "voice": "amy",
        "output_audio_format": "pcm16",
        "temperature": 0.9,
        "max_response_output_tokens": 5,
        "instructions": "Count.",
        "metadata": {"n": "1"},
        "tools": [],
        "tool_choice": "none",
        "input": [said, {"type": "item_reference", "id": "item_1"}],
    }
    (command,) = client.send("response.create", response=asked)
    assert isinstance(command, CreateResponse)
    options = command.options
    assert (options.in_conversation, options.modality, options.voice) == (False, "text", "amy")
    assert (options.max_output_tokens, options.metadata) == (5, {"n": "1"})
    assert options.input is not None
    assert options.input[0].text == "Hi"  # type: ignore[union-attr]
    assert isinstance(client.send("response.create")[0], CreateResponse)
    assert isinstance(client.send("response.create", response=None)[0], CreateResponse)


def test_a_spoken_response(client: Client) -> None:
    sent = client.apply(
        *(started(format=AudioFormat("pcma", 8_000), metadata={"topic": "x"}), ITEM_STARTED),
        *(spoken("Hi."), AUDIO, item_finished(AudioPart("Hi.")), finished()),
    )
    assert types(sent) == [
        "response.created",
        "response.output_item.added",
        "conversation.item.created",
        "response.content_part.added",
        "response.audio_transcript.delta",
        "response.audio.delta",
        "response.audio.done",
        "response.audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.done",
        "rate_limits.updated",
    ]
    response = sent[-2]["response"]
    assert response["conversation_id"] == client.created[1]["conversation"]["id"]
    assert response["modalities"] == ["text", "audio"]
    assert (response["output_audio_format"], response["voice"]) == ("g711_alaw", "joe")
    assert response["metadata"] == {"topic": "x"}
    assert response["usage"]["input_token_details"]["cached_tokens"] == 80
    assert response["output"][0]["content"] == [{"type": "audio", "transcript": "Hi."}]


def test_a_written_response_outside_of_the_conversation(client: Client) -> None:
    begun = started("text", in_conversation=False)
    done = item_finished(TextPart("output_text"))
    sent = client.apply(begun, ITEM_STARTED, spoken("output_text"), done, finished())
    assert sent[0]["response"]["conversation_id"] is None
    assert sent[0]["response"]["usage"] is None
    assert types(sent)[3:5] == ["response.text.delta", "response.text.done"]
    assert (sent[3]["delta"], sent[4]["text"]) == ("output_text", "output_text")


def test_a_call_is_named_by_its_item(client: Client) -> None:
    call = FunctionCallItem("item_f", "call_1", "wave", "{}")
    written = ReplyArguments("resp_1", "item_f", 0, "call_1", "{}")
    sent = client.apply(started(), ReplyItemStarted("resp_1", call, 0, None), written, finished())
    (done,) = [event for event in sent if event["type"].endswith("arguments.done")]
    assert done["arguments"] == "{}"
    assert "name" not in done
    assert sent[-2]["response"]["output"][0]["name"] == "wave"


def test_audio_goes_through_as_it_is(client: Client) -> None:
    audio = base64.b64encode(pcm_to_bytes(PCM)).decode()
    (command,) = client.send("input_audio_buffer.append", audio=audio)
    assert isinstance(command, AppendAudio)
    assert (command.pcm == PCM).all()


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({"modalities": ["audio", "smell"]}, "invalid_value", "session.modalities"),
        ({"modalities": []}, "invalid_value", "session.modalities"),
        ({"modalities": 3}, "invalid_value", "session.modalities"),
        ({"input_audio_format": "mp3"}, "invalid_value", "session.input_audio_format"),
        ({"output_audio_format": 3}, "invalid_value", "session.output_audio_format"),
        ({"temperature": "warm"}, "invalid_value", "session.temperature"),
        ({"temperature": True}, "invalid_value", "session.temperature"),
        ({"temperature": 2.1}, "invalid_value", "session.temperature"),
        ({"temperature": -(10**400)}, "invalid_value", "session.temperature"),
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
    client: Client, session: dict[str, Any], code: str, param: str
) -> None:
    before, _ = client.updated()
    error = client.refused("session.update", session=session)
    assert (error["code"], error["param"]) == (code, param)
    assert param in error["message"]
    assert client.updated()[0] == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("modalities", [1]),
        ("voice", 1),
        ("output_audio_format", "wav"),
        ("temperature", []),
        ("temperature", 10**400),
        ("audio", {}),
    ],
)
def test_a_bad_response_is_one_error_in_betas_own_words(
    client: Client, name: str, value: Any
) -> None:
    error = client.refused("response.create", response={name: value})
    assert error["param"] == f"response.{name}"


def test_a_huge_event_id_is_not_sent_back(client: Client) -> None:
    assert client.send("session.update", event_id="x" * 2_000_000, session={"audio": 1}) == []
    assert client.sent()[0]["error"]["event_id"] is None


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
def test_any_message_is_one_error_or_one_command(kind: str, fields: dict[str, Any]) -> None:
    client = Client(beta=True)
    commands = client.protocol.receive(json.dumps({**fields, "type": kind, "event_id": "mine"}))
    errors = [event["error"] for event in client.sent() if event["type"] == "error"]
    assert len(errors) == (0 if commands else 1)
    assert all(error["code"] != "internal_error" for error in errors)


def test_hostile_messages_are_one_error_or_one_effect() -> None:
    client = Client(beta=True)
    for attack in islice(Hostile(seed=5, beta=True), 3_000):
        effects = client.protocol.receive(attack.frame)
        errors = [event["error"] for event in client.sent() if event["type"] == "error"]
        assert len(errors) <= 1
        assert not (errors and effects)
        if errors and attack.event_id:
            assert errors[0]["event_id"] == attack.event_id


def test_every_client_event_of_the_types_is_known(client: Client) -> None:
    union = realtime_client_event.RealtimeClientEvent.__args__[0]  # type: ignore[attr-defined]
    kinds = {shape.model_fields["type"].annotation.__args__[0] for shape in union.__args__}
    for kind in kinds:
        client.send(kind)
    told = [event["error"]["message"] for event in client.sent() if event["type"] == "error"]
    assert not any("there is no client event" in message for message in told)
