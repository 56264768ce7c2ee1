"""``session.update``: fields are merged, shown, passed on or refused."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.commands import SessionConfig, TurnDetection
from pipeline.messages import Tool, ToolChoice
from tests.support.protocol_client import Client

pytestmark = pytest.mark.quick


def test_defaults_come_from_the_yaml() -> None:
    config = Client().protocol.config
    assert config == SessionConfig(instructions="You are Reachy.", voice="joe")
    assert config.turn_detection == TurnDetection()  # None everywhere: adaptive endpointing


def test_partial_updates_merge_at_any_depth(client: Client) -> None:
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


def test_clearing_differs_from_leaving_out(client: Client) -> None:
    client.updated(tools=[{"name": "dance"}], audio={"input": {"transcription": {"model": "x"}}})
    shown, config = client.updated(instructions="", tools=[])
    assert (config.instructions, config.tools) == ("", ())
    assert shown["audio"]["input"]["transcription"] == {"model": "x"}
    shown, config = client.updated(instructions=None, audio={"input": {"transcription": None}})
    assert config.instructions == "You are Reachy."
    assert shown["audio"]["input"]["transcription"] is None


def test_the_sdks_defaults_are_accepted() -> None:
    shown, config = Client().updated(
        model="gpt-realtime-2.1",
        output_modalities=["audio"],
        max_output_tokens="inf",
        tracing="auto",
        truncation={"type": "retention_ratio", "retention_ratio": 0.8},
        prompt=None,
        include=None,
        tool_choice="auto",
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
    assert config.tool_choice == ToolChoice()
    assert config.speed == 1.2
    assert config.turn_detection == TurnDetection(eagerness="medium")


def test_every_field_of_server_vad_arrives() -> None:
    vad = {
        "type": "server_vad",
        "threshold": 0.7,
        "prefix_padding_ms": 200,
        "silence_duration_ms": 650,
        "idle_timeout_ms": 6000,
        "create_response": False,
        "interrupt_response": False,
    }
    client = Client()
    shown, config = client.updated(audio={"input": {"turn_detection": vad}})
    assert shown["audio"]["input"]["turn_detection"] == vad
    assert config.turn_detection == TurnDetection(
        threshold=0.7,
        prefix_padding_ms=200,
        silence_duration_ms=650,
        idle_timeout_ms=6000,
        create_response=False,
        interrupt_response=False,
    )
    cleared = {"silence_duration_ms": None, "idle_timeout_ms": None}  # the type is known
    shown, config = client.updated(audio={"input": {"turn_detection": cleared}})
    assert config.turn_detection
    assert config.turn_detection.silence_duration_ms is None
    assert config.turn_detection.idle_timeout_ms is None
    assert shown["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 500  # nominal


@pytest.mark.parametrize(
    ("eagerness", "means"),
    [("low", "low"), ("medium", "medium"), ("high", "high"), ("auto", "medium"), (None, "medium")],
)
def test_eagerness(eagerness: str | None, means: Any) -> None:
    vad = {"type": "semantic_vad", "eagerness": eagerness, "interrupt_response": False}
    shown, config = Client().updated(audio={"input": {"turn_detection": vad}})
    assert config.turn_detection == TurnDetection(eagerness=means, interrupt_response=False)
    assert shown["audio"]["input"]["turn_detection"]["eagerness"] == (eagerness or "auto")


def test_fields_of_the_other_turn_detection_are_ignored() -> None:
    vad = {"type": "semantic_vad", "idle_timeout_ms": 6000, "silence_duration_ms": 100}
    shown, config = Client().updated(audio={"input": {"turn_detection": vad}})
    assert config.turn_detection == TurnDetection(eagerness="medium")
    assert "idle_timeout_ms" not in shown["audio"]["input"]["turn_detection"]


def test_speed_is_kept_until_it_is_cleared(client: Client) -> None:
    _, config = client.updated(audio={"output": {"speed": 0.5}})
    assert config.speed == 0.5
    _, config = client.updated(audio={"output": {"voice": "amy"}})
    assert (config.speed, config.voice) == (0.5, "amy")
    shown, config = client.updated(audio={"output": {"speed": None, "voice": None}})
    assert (config.speed, config.voice) == (1.0, "joe")
    assert shown["audio"]["output"]["voice"] == "joe"


@pytest.mark.parametrize("voice", ["Ono_Anna", "alloy"])  # the robot's, OpenAI's
def test_no_voice_is_refused(voice: str) -> None:
    shown, config = Client().updated(audio={"output": {"voice": voice}})
    assert config.voice == "joe"
    assert shown["audio"]["output"]["voice"] == voice


DANCE = {"type": "function", "name": "dance"}


def test_tool_choice_is_passed_on(client: Client) -> None:
    for given in ("none", "required", "auto"):
        shown, config = client.updated(tool_choice=given)
        assert (config.tool_choice, shown["tool_choice"]) == (ToolChoice(given), given)
    named = {"type": "function", "name": "dance"}
    shown, config = client.updated(tools=[DANCE], tool_choice=named, parallel_tool_calls=False)
    assert config.tool_choice == ToolChoice("named", "dance", parallel=False)
    assert (shown["tool_choice"], shown["parallel_tool_calls"]) == (named, False)
    _, config = client.updated(tool_choice=None, parallel_tool_calls=None)
    assert config.tool_choice == ToolChoice()


def test_the_type_and_a_named_tool_are_required(client: Client) -> None:
    named = {"type": "function", "name": "dance"}
    error = client.refused("session.update", session={"instructions": "changed"})
    assert (error["code"], error["param"]) == (MISSING, "session.type")
    update = {"type": "realtime", "instructions": "changed", "tool_choice": named}
    error = client.refused("session.update", session=update)
    assert (error["code"], error["param"]) == ("invalid_value", "session.tool_choice.name")
    assert "no tool 'dance'" in error["message"]
    assert client.protocol.config.instructions == "You are Reachy."
    client.updated(tools=[DANCE], tool_choice=named)
    error = client.refused("session.update", session={"type": "realtime", "tools": []})
    assert error["param"] == "session.tool_choice.name"
    assert len(client.protocol.config.tools) == 1


PART = {"type": "input_text", "text": "London"}


def test_fields_without_effect_are_shown() -> None:
    given: dict[str, Any] = {
        "tracing": {"workflow_name": "w", "group_id": "g", "metadata": {"a": [1]}},
        "prompt": {"id": "pmpt_1", "version": "2", "variables": {"name": "Ada", "of": PART}},
        "reasoning": {"effort": "high"},
        "include": ["item.input_audio_transcription.logprobs"],
        "truncation": {
            "type": "retention_ratio",
            "retention_ratio": 0.5,
            "token_limits": {"post_instructions": 2000},
        },
        "max_output_tokens": 4096,
    }
    client = Client()
    shown, config = client.updated(**given)
    assert {name: shown[name] for name in given} == given
    assert config.max_output_tokens == 4096
    shown, config = client.updated(**dict.fromkeys(given))
    assert (shown["truncation"], shown["tracing"], shown["prompt"]) == ("auto", None, None)
    assert config.max_output_tokens is None


def test_transcription_and_noise_reduction_merge(client: Client) -> None:
    noise = {"type": "far_field", "strength": 0.5}
    words = {"model": "x", "prompt": "robots", "keywords": ["Reachy"], "delay": "low"}
    client.updated(audio={"input": {"noise_reduction": noise, "transcription": words}})
    update = {"noise_reduction": {"type": "near_field"}, "transcription": {"language": "de"}}
    shown, config = client.updated(audio={"input": update})
    assert config.noise_reduction == "near_field"
    assert shown["audio"]["input"]["noise_reduction"] == {"type": "near_field", "strength": 0.5}
    assert shown["audio"]["input"]["transcription"] == {**words, "language": "de"}
    _, config = client.updated(audio={"input": {"noise_reduction": None}})
    assert config.noise_reduction is None


def test_a_session_too_long_to_be_shown_is_refused(client: Client) -> None:
    big = {"type": "realtime", "instructions": "x" * 600_000}
    error = client.refused("session.update", session=big)
    assert (error["code"], error["param"]) == ("invalid_value", "session")
    client.updated(instructions="x" * 590_000)


def test_another_kind_of_turn_detection_starts_afresh(client: Client) -> None:
    client.updated(audio={"input": {"turn_detection": {"type": "server_vad", "threshold": 0.9}}})
    client.updated(audio={"input": {"turn_detection": {"type": "semantic_vad"}}})
    _, config = client.updated(audio={"input": {"turn_detection": {"type": "server_vad"}}})
    assert config.turn_detection == TurnDetection()


def test_the_session_may_be_sent_back_unchanged(client: Client) -> None:
    shown = dict(client.created[0]["session"])
    shown.pop("type")
    again, _ = client.updated(**shown)
    assert again == client.created[0]["session"]


MISSING, UNKNOWN = "missing_required_parameter", "unknown_parameter"
DETECTION = "audio.input.turn_detection"


@pytest.mark.parametrize(
    ("path", "value", "code", "named"),
    [
        ("type", None, "invalid_value", ""),
        ("type", "telepathy", "invalid_value", ""),
        ("output_modalities", ["text", "audio"], "invalid_value", ""),
        ("temperature", 0.5, UNKNOWN, ""),
        (f"{DETECTION}.idle_timeout_ms", 4999, "invalid_value", ""),
        (f"{DETECTION}.idle_timeout_ms", 30001, "invalid_value", ""),
        (f"{DETECTION}.threshold", 1.1, "invalid_value", ""),
        (f"{DETECTION}.type", "magic", "invalid_value", ""),
        ("tools", [{"type": "mcp", "server_label": "x"}], "invalid_value", "[0].server_url"),
        ("tools", [{"type": "mcp", "server_url": "http://x/"}], MISSING, "[0].server_label"),
        ("tool_choice", {"type": "mcp", "server_label": "x"}, "invalid_value", ".server_label"),
        ("tools", [{"name": 3}], "invalid_value", "[0].name"),
        ("tools", [{"type": "function", "function": {"name": "x"}}], MISSING, "[0].name"),
        ("reasoning.effort", "x", "invalid_value", ""),
        ("prompt", {}, MISSING, ".id"),
        ("truncation", "some", "invalid_value", ""),
        ("tracing", "on", "invalid_value", ""),
        ("max_output_tokens", 0, "invalid_value", ""),
        ("max_output_tokens", True, "invalid_value", ""),
        ("tool_choice", "maybe", "invalid_value", ""),
        ("audio.output.speed", 9, "invalid_value", ""),
        ("audio.input.format", {"type": "audio/opus"}, "invalid_value", ".type"),
        ("audio.input.format", {"type": "audio/pcm", "rate": 44100}, "invalid_value", ".rate"),
        ("audio.input.format", {"type": "audio/pcmu", "rate": 24000}, "invalid_value", ""),
        ("audio.input.format", {"type": "audio/pcm", "channels": 2}, UNKNOWN, ".channels"),
        ("audio.input.format", "pcm16", "invalid_value", ""),
    ],
)
def test_a_bad_update_changes_nothing(
    client: Client, path: str, value: Any, code: str, named: str
) -> None:
    """``named``: the error's ``param`` within ``path``."""
    field = value
    for step in reversed(path.split(".")):
        field = {step: field}
    session = {"type": "realtime", "instructions": "changed", **field}
    error = client.refused("session.update", session=session)
    assert (error["code"], error["param"]) == (code, f"session.{path}{named}")
    assert client.protocol.config.instructions == "You are Reachy."
