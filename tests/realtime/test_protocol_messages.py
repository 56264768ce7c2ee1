"""Client messages in, commands out; each mistake becomes exactly one error."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from pipeline import commands
from pipeline.audio import AudioFormat
from pipeline.commands import ItemReference, ResponseOptions
from pipeline.items import MessageItem, TextPart
from pipeline.messages import Tool, ToolChoice
from pipeline.realtime.protocol import INTERNAL
from pipeline.realtime.session_config import EffectiveSession
from tests.support.protocol_client import PCM, Client, text_item

pytestmark = pytest.mark.quick


def test_audio_buffer_events(client: Client) -> None:
    audio = base64.b64encode(PCM.astype("<i2").tobytes()).decode()
    (appended,) = client.send("input_audio_buffer.append", audio=audio)
    assert isinstance(appended, commands.AppendAudio)
    assert appended.pcm.tolist() == PCM.tolist()
    assert appended.rate == 24_000
    assert client.send("input_audio_buffer.append", audio="") == []
    assert client.send("input_audio_buffer.commit", event_id="e") == [commands.CommitAudio("e")]
    assert client.send("input_audio_buffer.clear", event_id=None) == [commands.ClearAudio()]
    assert client.send("reachy_voice.wake") == [commands.WakeUp()]
    assert client.sent() == []


def test_deletion_truncation_and_cancel(client: Client) -> None:
    assert client.send("conversation.item.delete", item_id="i") == [commands.DeleteItem("i")]
    cut = client.send("conversation.item.truncate", **CUT, event_id="e")
    assert cut == [commands.TruncateItem("i", 0, 1500, "e")]
    assert client.send("response.cancel") == [commands.CancelResponse()]
    cancel = client.send("response.cancel", response_id="r", event_id="e")
    assert cancel == [commands.CancelResponse("r", "e")]


WRONG, MISSING, UNKNOWN = "invalid_value", "missing_required_parameter", "unknown_parameter"
CUT = {"item_id": "i", "content_index": 0, "audio_end_ms": 1500}


@pytest.mark.parametrize(
    ("kind", "fields", "code", "param"),
    [
        ("session.updaet", {}, WRONG, "type"),
        ("session.update", {}, MISSING, "session"),
        ("input_audio_buffer.append", {}, MISSING, "audio"),
        ("input_audio_buffer.append", {"audio": "AAAA"}, WRONG, "audio"),
        ("input_audio_buffer.commit", {"x": 1}, UNKNOWN, "x"),
        ("conversation.item.create", {}, MISSING, "item"),
        ("conversation.item.create", {"item": {"type": "mcp_call"}}, WRONG, "item.type"),
        ("conversation.item.create", {"item": {}}, MISSING, "item.type"),
        ("conversation.item.create", {"item": []}, WRONG, "item"),
        ("conversation.item.delete", {}, MISSING, "item_id"),
        ("conversation.item.truncate", {**CUT, "audio_end_ms": -1}, WRONG, "audio_end_ms"),
        ("output_audio_buffer.clear", {}, WRONG, "type"),
        ("response.create", {"instructions": "x"}, UNKNOWN, "instructions"),
        ("response.cancel", {"response_id": 5}, WRONG, "response_id"),
    ],
)
def test_a_bad_message_is_one_error_with_its_event_id(
    kind: str, fields: dict[str, Any], code: str, param: str
) -> None:
    error = Client().refused(kind, **fields)
    assert (error["code"], error["param"]) == (code, param)
    assert error["message"]


def test_a_misspelt_event_gets_a_hint() -> None:
    assert "'session.update'" in Client().refused("session.updaet")["message"]


def test_a_fault_of_ours_is_one_server_error(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
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
    assert client.send("input_audio_buffer.commit") == [commands.CommitAudio()]
    client.updated(instructions="Still here.")


# --- ``response.create`` -----------------------------------------------------------------------


DANCE = {"type": "function", "name": "dance", "parameters": {"type": "object"}}


def options(client: Client, **response: Any) -> ResponseOptions:
    (command,) = client.send("response.create", response=response)
    assert isinstance(command, commands.CreateResponse)
    return command.options


def test_nothing_is_overridden_by_default(client: Client) -> None:
    plain = commands.CreateResponse()
    assert client.send("response.create") == [plain]
    assert client.send("response.create", response={}) == [plain]
    assert client.send("response.create", response=None) == [plain]
    nothing = {"audio": {"output": None}, "tools": None, "tool_choice": None, "metadata": None}
    assert client.send("response.create", response=nothing) == [plain]


def test_everything_can_be_overridden(client: Client) -> None:
    (command,) = client.send(
        "response.create",
        event_id="e",
        response={
            "conversation": "none",
            "input": [{**text_item(), "id": "i"}, {"type": "item_reference", "id": "item_7"}],
            "instructions": "Be brief.",
            "output_modalities": ["text"],
            "audio": {"output": {"voice": "amy", "format": {"type": "audio/pcm", "rate": 16000}}},
            "tools": [DANCE],
            "tool_choice": {"type": "function", "name": "dance"},
            "parallel_tool_calls": False,
            "max_output_tokens": 20,
            "metadata": {"k" * 64: "v" * 512},
            "reasoning": {"effort": "low"},
            "prompt": {"id": "pmpt_1"},
        },
    )
    assert command == commands.CreateResponse(
        ResponseOptions(
            instructions="Be brief.",
            modality="text",
            voice="amy",
            output_format=AudioFormat("pcm", 16_000),
            tools=(Tool("dance", "", {"type": "object"}),),
            tool_choice=ToolChoice("named", "dance", parallel=False),
            max_output_tokens=20,
            in_conversation=False,
            input=(MessageItem("i", "user", (TextPart("Hello."),)), ItemReference("item_7")),
            metadata={"k" * 64: "v" * 512},
        ),
        "e",
    )


def test_an_empty_context_differs_from_the_conversation() -> None:
    assert options(Client(), input=[]).input == ()
    assert options(Client()).input is None
    assert options(Client(), tools=[]).tools == ()


def test_an_unknown_voice_becomes_the_default() -> None:
    voice = {"output": {"voice": "marin"}}
    assert options(Client(), audio=voice).voice == "joe"
    assert options(Client(), audio={"output": {"voice": {"id": "amy"}}}).voice == "amy"


def test_tool_choice_refers_to_the_tools_of_the_response(client: Client) -> None:
    named = {"type": "function", "name": "dance"}
    client.updated(tools=[DANCE], tool_choice=named)
    assert options(client).tool_choice is None  # the session's choice
    assert options(client, tool_choice="none").tool_choice == ToolChoice("none")
    assert options(client, tool_choice="required").tool_choice == ToolChoice("required")
    assert options(client, tool_choice=named).tool_choice == ToolChoice("named", "dance")
    one = ToolChoice("named", "dance", parallel=False)
    assert options(client, parallel_tool_calls=False).tool_choice == one
    assert options(client, tools=[]).tool_choice == ToolChoice()
    client.updated(parallel_tool_calls=False)  # holds for any choice of a response
    required = ToolChoice("required", parallel=False)
    assert options(client, tool_choice="required").tool_choice == required
    sing = {"type": "function", "name": "sing"}
    impossible: list[dict[str, Any]] = [
        {"tool_choice": sing},
        {"tools": [sing], "tool_choice": named},
        {"tools": [], "tool_choice": named},
    ]
    for response in impossible:
        error = client.refused("response.create", response=response)
        assert (error["code"], error["param"]) == ("invalid_value", "response.tool_choice.name")
    assert "'sing'" in client.refused("response.create", response={"tool_choice": sing})["message"]


SPOKEN = text_item("x", "user", "output_text")


@pytest.mark.parametrize(
    ("response", "code", "param"),
    [
        ({"conversation": "other"}, WRONG, "conversation"),
        ({"input": [{"type": "item_reference"}]}, MISSING, "input[0].id"),
        ({"input": [{"type": "x"}]}, WRONG, "input[0].type"),
        ({"input": [text_item(), {}]}, MISSING, "input[1].type"),
        ({"input": "Hi."}, WRONG, "input"),
        ({"input": [SPOKEN]}, WRONG, "input[0].content[0].type"),
        ({"metadata": {"n": 1}}, WRONG, "metadata.n"),
        ({"metadata": {"k": "v" * 513}}, WRONG, "metadata.k"),
        ({"metadata": {str(n): "" for n in range(17)}}, WRONG, "metadata"),
        ({"output_modalities": ["text", "audio"]}, WRONG, "output_modalities"),
        ({"output_modalities": []}, WRONG, "output_modalities"),
        ({"audio": {"output": {"speed": 1.0}}}, UNKNOWN, "audio.output.speed"),
        ({"audio": {"output": {"format": {"rate": 1}}}}, WRONG, "audio.output.format.rate"),
        ({"max_output_tokens": 0}, WRONG, "max_output_tokens"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, WRONG, "tools[0].type"),
        ({"tool_choice": {"type": "mcp", "server_label": "x"}}, WRONG, "tool_choice.server_label"),
        ({"temperature": 0.7}, UNKNOWN, "temperature"),
    ],
)
def test_invalid_response_options_are_refused(
    response: dict[str, Any], code: str, param: str
) -> None:
    error = Client().refused("response.create", response=response)
    assert (error["code"], error["param"]) == (code, f"response.{param}")
