"""``session.update``: what is merged, shown, passed on and refused."""

from __future__ import annotations

from typing import Any

import pytest
from protocol_client import Client

from pipeline import commands
from pipeline.commands import SessionConfig, TurnDetection
from pipeline.engines import Tool


def test_the_first_event_is_the_session_with_its_defaults() -> None:
    (event,) = Client().created
    session = event["session"]
    assert event["type"] == "session.created"
    assert (session["model"], session["instructions"]) == ("reachy-voice", "You are Reachy.")
    assert session["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 24000}
    assert session["audio"]["input"]["transcription"] is None
    assert session["audio"]["input"]["turn_detection"]["interrupt_response"] is True
    assert session["audio"]["output"]["voice"] == "joe"
    assert session["expires_at"] > 1_000


def test_what_nobody_asked_for_is_left_to_the_yaml() -> None:
    config = Client().protocol.config
    assert config == SessionConfig(instructions="You are Reachy.", voice="joe")
    assert config.turn_detection == TurnDetection()  # None everywhere: adaptive endpointing


def test_partial_updates_merge_at_any_depth() -> None:
    client = Client()
    tool = {"type": "function", "name": "dance", "parameters": {"type": "object"}}
    vad = {"type": "server_vad", "silence_duration_ms": 700}
    client.updated(tools=[tool], audio={"input": {"turn_detection": vad}})
    shown, config = client.updated(audio={"output": {"voice": "amy"}})
    assert config.voice == "amy"
    assert config.tools == (Tool("dance", "", {"type": "object"}),)
    assert config.turn_detection == TurnDetection(silence_duration_ms=700)
    assert shown["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 700
    assert shown["audio"]["input"]["turn_detection"]["threshold"] == 0.5  # nominal
    assert shown["instructions"] == "You are Reachy."


def test_clearing_differs_from_leaving_out() -> None:
    client = Client()
    client.updated(tools=[{"name": "dance"}], audio={"input": {"transcription": {"model": "x"}}})
    _, config = client.updated(instructions="", tools=[])
    assert (config.instructions, config.tools, config.transcription) == ("", (), True)
    _, config = client.updated(instructions=None, audio={"input": {"transcription": None}})
    assert (config.instructions, config.transcription) == ("You are Reachy.", False)


def test_the_robots_own_first_message() -> None:
    """Section A2 of the client contract, rate null included."""
    native = {"type": "audio/pcm", "rate": None}
    shown, config = Client().updated(
        instructions="Be kind.",
        audio={
            "input": {
                "format": native,
                "transcription": {"model": "gpt-4o-transcribe", "language": "de"},
                "turn_detection": {"type": "server_vad", "interrupt_response": True},
            },
            "output": {"format": native, "voice": "Aiden"},
        },
        tools=[
            {
                "type": "function",
                "name": "camera",
                "description": "See.",
                "parameters": {"type": "object", "properties": {"question": {"type": "string"}}},
            }
        ],
        tool_choice="auto",
    )
    assert (config.input_rate, config.output_rate) == (16_000, 16_000)
    assert (config.transcription, config.language) == (True, "de")
    assert config.voice == "joe"  # the engine has no Aiden
    assert shown["audio"]["output"]["voice"] == "Aiden"
    assert shown["audio"]["input"]["format"]["rate"] == 16_000


def test_rates_are_per_direction() -> None:
    client = Client()
    _, config = client.updated(audio={"input": {"format": {"type": "audio/pcm", "rate": 8000}}})
    assert (config.input_rate, config.output_rate) == (8_000, 24_000)
    _, config = client.updated(audio={"output": {"format": {"rate": None}}})
    assert (config.input_rate, config.output_rate) == (8_000, 16_000)
    _, config = client.updated(audio={"input": {"format": {"type": "audio/pcm"}}})
    assert config.input_rate == 8_000  # nothing was said about it
    (appended,) = client.send("input_audio_buffer.append", audio="AAAA" * 2)
    assert isinstance(appended, commands.AppendAudio)
    assert (appended.rate, len(appended.pcm)) == (8_000, 3)


def test_defaults_of_the_sdks_are_accepted() -> None:
    shown, config = Client().updated(
        model="gpt-realtime-2.1",
        output_modalities=["audio"],
        max_output_tokens="inf",
        tracing="auto",
        truncation={"type": "retention_ratio", "retention_ratio": 0.8},
        prompt=None,
        include=None,
        tool_choice={"type": "function", "name": "dance"},
        parallel_tool_calls=True,
        reasoning={"effort": "low"},
        audio={
            "input": {
                "noise_reduction": {"type": "near_field"},
                "transcription": {
                    "model": "gpt-4o-mini-transcribe",
                    "language": "en-US",
                    "languages": ["en"],
                },
                "turn_detection": {"type": "semantic_vad", "eagerness": "auto"},
            },
            "output": {"voice": {"id": "ash"}, "speed": 1.2},
        },
    )
    assert shown["model"] == "reachy-voice"  # comes from the URL
    assert shown["audio"]["input"]["turn_detection"] == {
        "type": "semantic_vad",
        "eagerness": "auto",
        "create_response": True,
        "interrupt_response": True,
    }
    assert shown["audio"]["output"] == {
        "format": {"type": "audio/pcm", "rate": 24000},
        "voice": "ash",
        "speed": 1.2,
    }
    assert (shown["tracing"], config.language) == ("auto", "en")
    assert config.tool_choice == {"type": "function", "name": "dance"}
    assert config.turn_detection == TurnDetection()


def test_push_to_talk_and_back() -> None:
    client = Client()
    shown, config = client.updated(audio={"input": {"turn_detection": None}})
    assert config.turn_detection is None
    assert shown["audio"]["input"]["turn_detection"] is None
    vad = {"type": "server_vad", "create_response": False, "interrupt_response": False}
    _, config = client.updated(audio={"input": {"turn_detection": vad}})
    assert config.turn_detection == TurnDetection(create_response=False, interrupt_response=False)


def test_another_kind_of_turn_detection_starts_afresh() -> None:
    client = Client()
    client.updated(audio={"input": {"turn_detection": {"type": "server_vad", "threshold": 0.9}}})
    client.updated(audio={"input": {"turn_detection": {"type": "semantic_vad"}}})
    _, config = client.updated(audio={"input": {"turn_detection": {"type": "server_vad"}}})
    assert config.turn_detection == TurnDetection()


def test_the_session_may_be_sent_back_as_it_came() -> None:
    client = Client()
    shown = dict(client.created[0]["session"])
    shown.pop("type")
    again, _ = client.updated(**shown)
    assert again == client.created[0]["session"]


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({}, "missing_required_parameter", "session.type"),
        ({"type": "transcription"}, "invalid_value", "session.type"),
        (
            {"type": "realtime", "output_modalities": ["text", "audio"]},
            "invalid_value",
            "session.output_modalities",
        ),
        ({"type": "realtime", "temperature": 0.5}, "unknown_parameter", "session.temperature"),
        (
            {"type": "realtime", "audio": {"input": {"format": {"rate": 44100}}}},
            "invalid_value",
            "session.audio.input.format.rate",
        ),
        (
            {"type": "realtime", "audio": {"input": {"format": {"type": "audio/pcmu"}}}},
            "invalid_value",
            "session.audio.input.format.type",
        ),
        (
            {"type": "realtime", "audio": {"input": {"turn_detection": {"type": "magic"}}}},
            "invalid_value",
            "session.audio.input.turn_detection.type",
        ),
        ({"type": "realtime", "tools": [{"name": 3}]}, "invalid_value", "session.tools[0].name"),
        (
            {"type": "realtime", "tools": [{"type": "function", "function": {"name": "x"}}]},
            "missing_required_parameter",
            "session.tools[0].name",
        ),
        (
            {"type": "realtime", "max_output_tokens": 0},
            "invalid_value",
            "session.max_output_tokens",
        ),
        (
            {"type": "realtime", "max_output_tokens": True},
            "invalid_value",
            "session.max_output_tokens",
        ),
        ({"type": "realtime", "tool_choice": "maybe"}, "invalid_value", "session.tool_choice"),
        (
            {"type": "realtime", "audio": {"output": {"speed": 9}}},
            "invalid_value",
            "session.audio.output.speed",
        ),
    ],
)
def test_a_bad_update_changes_nothing(session: dict[str, Any], code: str, param: str) -> None:
    client = Client()
    error = client.refused("session.update", session={**session, "instructions": "changed"})
    assert (error["code"], error["param"]) == (code, param)
    assert client.protocol.config.instructions == "You are Reachy."
