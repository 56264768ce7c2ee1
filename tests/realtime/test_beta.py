"""The beta dialect: a client of 2025 talks to the GA protocol through the translator."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from pipeline.audio import pcm_to_bytes
from pipeline.commands import AddItem, AppendAudio, CreateResponse
from pipeline.realtime.beta import wants_beta
from tests.support.beta_client import BetaClient
from tests.support.protocol_client import PCM

GA_SESSION = {
    "type": "realtime",
    "object": "realtime.session",
    "id": "sess_1",
    "model": "reachy-voice",
    "expires_at": 1,
    "output_modalities": ["audio"],
    "instructions": "Hi",
    "tools": [],
    "tool_choice": {"type": "function", "name": "wave"},
    "max_output_tokens": "inf",
    "truncation": "auto",
    "tracing": None,
    "prompt": None,
    "include": None,
    "audio": {
        "input": {
            "format": {"type": "audio/pcmu"},
            "transcription": {"model": "whisper-1", "language": "en"},
            "noise_reduction": {"type": "near_field"},
            "turn_detection": {
                "type": "server_vad",
                "threshold": 0.5,
                "prefix_padding_ms": 300,
                "silence_duration_ms": 500,
                "idle_timeout_ms": None,
                "create_response": True,
                "interrupt_response": True,
            },
        },
        "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "joe", "speed": 1.0},
    },
}
GA_TRANSCRIPTION_SESSION = {
    "type": "transcription",
    "object": "realtime.transcription_session",
    "id": "sess_1",
    "expires_at": 1,
    "include": None,
    "audio": {"input": GA_SESSION["audio"]["input"]},  # type: ignore[index]
}
GA_RESPONSE = {
    "object": "realtime.response",
    "id": "resp_1",
    "conversation_id": "conv_ga",
    "status": "completed",
    "status_details": None,
    "output": [],
    "output_modalities": ["audio"],
    "max_output_tokens": "inf",
    "audio": {"output": {"format": {"type": "audio/pcma"}, "voice": "joe"}},
    "metadata": {"topic": "x"},
    "usage": {
        "total_tokens": 3,
        "input_tokens": 2,
        "output_tokens": 1,
        "input_token_details": {
            "text_tokens": 2,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": 1,
            "cached_tokens_details": {"text_tokens": 1, "audio_tokens": 0, "image_tokens": 0},
        },
        "output_token_details": {"text_tokens": 1, "audio_tokens": 0},
    },
}
PART = {"response_id": "resp_1", "item_id": "item_1", "output_index": 0, "content_index": 0}


@pytest.fixture
def client() -> BetaClient:
    client = BetaClient()
    client.sent()
    return client


# --- which dialect -----------------------------------------------------------------------------


def test_the_header_or_the_subprotocol_selects_it() -> None:
    assert wants_beta({"OpenAI-Beta": "realtime=v1"}, [])
    assert wants_beta({"openai-beta": "assistants=v2, realtime=v1"}, [])
    assert wants_beta({}, ["realtime", "openai-insecure-api-key.x", "openai-beta.realtime-v1"])
    assert not wants_beta({}, ["realtime"])
    assert not wants_beta({"OpenAI-Beta": "assistants=v2"}, [])


# --- sessions ----------------------------------------------------------------------------------


def test_the_start() -> None:
    created, conversation = BetaClient().sent()
    assert created["type"] == "session.created"
    assert created["session"]["modalities"] == ["text", "audio"]
    assert created["session"]["input_audio_format"] == "pcm16"
    assert created["session"]["temperature"] == 0.8
    assert conversation["type"] == "conversation.created"
    assert conversation["conversation"]["object"] == "realtime.conversation"


def test_a_flat_session_update(client: BetaClient) -> None:
    shown, config = client.updated(
        modalities=["text", "audio"],
        instructions="Be brief.",
        voice="amy",
        input_audio_format="pcm16",
        output_audio_format="pcm16",
        input_audio_transcription={"model": "whisper-1"},
        input_audio_noise_reduction={"type": "far_field"},
        turn_detection={"type": "server_vad", "silence_duration_ms": 300},
        tools=[{"type": "function", "name": "wave", "description": "", "parameters": {}}],
        tool_choice="auto",
        temperature=0.6,
        max_response_output_tokens=100,
        speed=1.25,
        tracing="auto",
    )
    assert config.instructions == "Be brief."
    assert config.voice == "amy"
    assert config.modality == "audio"
    assert config.turn_detection.silence_duration_ms == 300
    assert [tool.name for tool in config.tools] == ["wave"]
    assert config.max_output_tokens == 100
    assert shown["temperature"] == 0.6
    assert shown["max_response_output_tokens"] == 100
    assert shown["input_audio_transcription"]["model"] == "whisper-1"
    assert shown["input_audio_noise_reduction"] == {"type": "far_field"}
    assert shown["turn_detection"]["silence_duration_ms"] == 300
    assert shown["speed"] == 1.25
    assert shown["tracing"] == "auto"


def test_an_update_changes_only_what_it_names(client: BetaClient) -> None:
    client.updated(instructions="Be brief.", temperature=1)
    shown, config = client.updated(modalities=["text"], turn_detection=None)
    assert shown["instructions"] == "Be brief."
    assert shown["temperature"] == 1
    assert shown["turn_detection"] is None
    assert shown["modalities"] == ["text"]
    assert config.modality == "text"
    assert config.turn_detection is None


def test_a_refused_update_leaves_the_temperature(client: BetaClient) -> None:
    assert client.refused("session.update", session={"temperature": 1.1, "voice": 3})
    assert client.updated(instructions="x")[0]["temperature"] == 0.8


def test_what_a_session_shows_can_be_sent_back(client: BetaClient) -> None:
    shown, _ = client.updated(turn_detection={"type": "semantic_vad", "eagerness": "low"})
    again, _ = client.updated(**{**shown, "model": "x", "object": "realtime.session"})
    assert again == shown


@pytest.mark.parametrize(
    ("beta", "ga"),
    [
        ("auto", "auto"),
        ("wave", {"type": "function", "name": "wave"}),
        ({"type": "function", "name": "wave"}, {"type": "function", "name": "wave"}),
        (
            {"type": "function", "function": {"name": "wave"}},
            {"type": "function", "name": "wave"},
        ),
    ],
)
def test_ways_to_choose_a_tool(client: BetaClient, beta: Any, ga: Any) -> None:
    text = json.dumps({"type": "session.update", "session": {"tool_choice": beta}})
    translated = client.dialect.to_ga(text)
    assert isinstance(translated, str)
    assert json.loads(translated)["session"]["tool_choice"] == ga


def test_telephone_formats(client: BetaClient) -> None:
    formats = {"input_audio_format": "g711_ulaw", "output_audio_format": "g711_alaw"}
    translated = client.dialect.to_ga(json.dumps({"type": "session.update", "session": formats}))
    assert isinstance(translated, str)
    audio = json.loads(translated)["session"]["audio"]
    assert audio["input"]["format"] == {"type": "audio/pcmu"}
    assert audio["output"]["format"] == {"type": "audio/pcma"}


def test_a_session_with_everything_is_flat(client: BetaClient) -> None:
    (event,) = client.shows("session.updated", session=GA_SESSION)
    session = event["session"]
    assert session["input_audio_format"] == "g711_ulaw"
    assert session["tool_choice"] == "wave"
    assert "idle_timeout_ms" not in session["turn_detection"]


def test_a_transcription_session(client: BetaClient) -> None:
    settings = {
        "input_audio_format": "g711_ulaw",
        "input_audio_transcription": {"model": "whisper-1"},
        "turn_detection": {"threshold": 0.4},
        "include": ["item.input_audio_transcription.logprobs"],
    }
    text = client.dialect.to_ga(
        json.dumps({"type": "transcription_session.update", "event_id": "e", "session": settings})
    )
    assert isinstance(text, str)
    assert json.loads(text) == {
        "type": "session.update",
        "event_id": "e",
        "session": {
            "type": "transcription",
            "include": ["item.input_audio_transcription.logprobs"],
            "audio": {
                "input": {
                    "format": {"type": "audio/pcmu"},
                    "transcription": {"model": "whisper-1"},
                    "turn_detection": {"type": "server_vad", "threshold": 0.4},
                }
            },
        },
    }
    created, conversation = client.shows("session.created", session=GA_TRANSCRIPTION_SESSION)
    assert created["session"]["input_audio_format"] == "g711_ulaw"
    assert conversation["type"] == "conversation.created"
    (updated,) = client.shows("session.updated", session=GA_TRANSCRIPTION_SESSION)
    assert updated["type"] == "transcription_session.updated"
    assert updated["session"]["input_audio_transcription"]["model"] == "whisper-1"


# --- items and responses -----------------------------------------------------------------------


def test_items_both_ways(client: BetaClient) -> None:
    content = [{"type": "text", "text": "Hello."}]
    item = {"type": "message", "role": "assistant", "content": content}
    (command,) = client.send("conversation.item.create", item=item)
    assert isinstance(command, AddItem)
    assert command.item.text == "Hello."  # type: ignore[union-attr]
    shown: dict[str, Any] = {
        "id": "a",
        "object": "realtime.item",
        "type": "message",
        "status": "completed",
    }
    shown |= {"role": "assistant", "content": [{"type": "output_audio", "transcript": "Hello."}]}
    place = {"previous_item_id": None, "item": shown}
    (created,) = client.shows("conversation.item.added", **place)
    assert created["type"] == "conversation.item.created"
    assert created["item"]["content"] == [{"type": "audio", "transcript": "Hello."}]
    assert client.shows("conversation.item.done", **place) == []
    (retrieved,) = client.shows("conversation.item.retrieved", item=shown)
    assert retrieved["item"]["content"][0]["type"] == "audio"


def test_an_image_is_not_shown_to_a_dialect_without_images(client: BetaClient) -> None:
    image = {"type": "input_image", "detail": "auto"}
    content = [image, {"type": "input_text", "text": "What is this?"}]
    shown = {"id": "u", "type": "message", "role": "user", "content": content}
    (created,) = client.shows("conversation.item.added", previous_item_id=None, item=shown)
    assert created["item"]["content"] == content[1:]


def test_response_create_is_renamed(client: BetaClient) -> None:
    said = {"type": "message", "role": "user", "content": [{"type": "text", "text": "Hi"}]}
    (command,) = client.send(
        "response.create",
        response={
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
            "input": [said],
        },
    )
    assert isinstance(command, CreateResponse)
    options = command.options
    assert not options.in_conversation
    assert options.modality == "text"
    assert options.voice == "amy"
    assert options.max_output_tokens == 5
    assert options.metadata == {"n": "1"}
    assert options.input is not None
    assert options.input[0].text == "Hi"  # type: ignore[union-attr]
    assert isinstance(client.send("response.create")[0], CreateResponse)
    assert isinstance(client.send("response.create", response=None)[0], CreateResponse)


def test_a_response_is_flat_and_belongs_to_the_conversation_that_was_announced() -> None:
    client = BetaClient()
    _, announced = client.sent()
    (done,) = client.shows("response.done", response=GA_RESPONSE)
    response = done["response"]
    assert response["conversation_id"] == announced["conversation"]["id"]
    assert response["modalities"] == ["text", "audio"]
    assert response["output_audio_format"] == "g711_alaw"
    assert response["voice"] == "joe"
    assert response["metadata"] == {"topic": "x"}
    assert response["usage"]["input_token_details"]["cached_tokens"] == 1
    begun = {**GA_RESPONSE, "conversation_id": None, "status": "in_progress", "usage": None}
    (created,) = client.shows("response.created", response=begun)
    assert created["response"]["conversation_id"] is None
    assert created["response"]["usage"] is None


@pytest.mark.parametrize(
    ("ga", "beta", "fields"),
    [
        ("output_audio.delta", "audio.delta", {"delta": "AAA="}),
        ("output_audio.done", "audio.done", {}),
        ("output_audio_transcript.delta", "audio_transcript.delta", {"delta": 'a "quote"'}),
        ("output_audio_transcript.done", "audio_transcript.done", {"transcript": "a"}),
        ("output_text.delta", "text.delta", {"delta": "output_text.delta"}),
        ("output_text.done", "text.done", {"text": "a"}),
        ("content_part.added", "content_part.added", {"part": {"type": "text", "text": ""}}),
    ],
)
def test_events_that_only_change_their_name(
    client: BetaClient, ga: str, beta: str, fields: dict[str, str]
) -> None:
    (event,) = client.shows(f"response.{ga}", **PART, **fields)
    assert event["type"] == f"response.{beta}"
    assert {name: event[name] for name in fields} == fields


def test_a_call_is_named_by_its_item(client: BetaClient) -> None:
    call = {"response_id": "resp_1", "item_id": "item_1", "output_index": 0, "call_id": "call_1"}
    name = "response.function_call_arguments.done"
    (done,) = client.shows(name, **call, name="wave", arguments="{}")
    assert "name" not in done
    item = {"id": "item_1", "type": "function_call", "status": "completed", "name": "wave"}
    item |= {"call_id": "call_1", "arguments": "{}", "object": "realtime.item"}
    (shown,) = client.shows(
        "response.output_item.done", response_id="resp_1", output_index=0, item=item
    )
    assert shown["item"]["name"] == "wave"


def test_what_beta_has_no_name_for_is_not_sent(client: BetaClient) -> None:
    idle = {"item_id": "u", "audio_start_ms": 0, "audio_end_ms": 5000}
    assert client.shows("input_audio_buffer.timeout_triggered", **idle) == []
    assert client.shows("conversation.item.done", previous_item_id=None, item={"id": "u"}) == []


def test_a_microphone_is_not_read_by_the_translator(client: BetaClient) -> None:
    audio = base64.b64encode(pcm_to_bytes(PCM)).decode()
    text = json.dumps({"event_id": "e1", "type": "input_audio_buffer.append", "audio": audio})
    assert client.dialect.to_ga(text) is text
    (command,) = client.send("input_audio_buffer.append", audio=audio)
    assert isinstance(command, AppendAudio)
    assert (command.pcm == PCM).all()
