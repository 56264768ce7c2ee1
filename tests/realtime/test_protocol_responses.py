"""``response.create``: the options of one response."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline import commands
from pipeline.audio import AudioFormat
from pipeline.commands import ItemReference, ResponseOptions
from pipeline.items import MessageItem, TextPart
from pipeline.messages import Tool, ToolChoice
from tests.support.protocol_client import Client, started, text_item

DANCE = {"type": "function", "name": "dance", "parameters": {"type": "object"}}


def options(client: Client, **response: Any) -> ResponseOptions:
    (command,) = client.send("response.create", response=response)
    assert isinstance(command, commands.CreateResponse)
    return command.options


def test_nothing_is_overridden_unless_it_is_said() -> None:
    client = Client()
    plain = commands.CreateResponse()
    assert client.send("response.create") == [plain]
    assert client.send("response.create", response={}) == [plain]
    assert client.send("response.create", response=None) == [plain]
    nothing = {"audio": {"output": None}, "tools": None, "tool_choice": None, "metadata": None}
    assert client.send("response.create", response=nothing) == [plain]


def test_everything_can_be_overridden() -> None:
    client = Client()
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
            "metadata": {"client_event_id": "7"},
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
            metadata={"client_event_id": "7"},
        ),
        "e",
    )


def test_an_empty_context_differs_from_the_conversation() -> None:
    assert options(Client(), input=[]).input == ()
    assert options(Client()).input is None
    assert options(Client(), tools=[]).tools == ()


def test_a_voice_that_we_do_not_have_is_ours() -> None:
    voice = {"output": {"voice": "marin"}}
    assert options(Client(), audio=voice).voice == "joe"
    assert options(Client(), audio={"output": {"voice": {"id": "amy"}}}).voice == "amy"


def test_a_choice_is_made_among_the_tools_of_the_response() -> None:
    client = Client()
    named = {"type": "function", "name": "dance"}
    client.updated(tools=[DANCE], tool_choice=named)
    assert options(client).tool_choice is None  # what the session says
    assert options(client, tool_choice="none").tool_choice == ToolChoice("none")
    assert options(client, tool_choice="required").tool_choice == ToolChoice("required")
    assert options(client, tool_choice=named).tool_choice == ToolChoice("named", "dance")
    one = ToolChoice("named", "dance", parallel=False)
    assert options(client, parallel_tool_calls=False).tool_choice == one
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


def test_the_sessions_wish_for_one_call_at_a_time_holds() -> None:
    client = Client()
    client.updated(tools=[DANCE], parallel_tool_calls=False)
    assert options(client, tool_choice="required").tool_choice == ToolChoice(
        "required", parallel=False
    )


def test_metadata_is_echoed() -> None:
    metadata = {"k" * 64: "v" * 512}
    assert options(Client(), metadata=metadata).metadata == metadata
    (created,) = Client().apply(started(metadata=metadata))
    assert created["response"]["metadata"] == metadata


@pytest.mark.parametrize(
    ("response", "code", "param"),
    [
        ({"conversation": "other"}, "invalid_value", "conversation"),
        ({"input": [{"type": "item_reference"}]}, "missing_required_parameter", "input[0].id"),
        ({"input": [{"type": "x"}]}, "invalid_value", "input[0].type"),
        ({"input": [text_item(), {}]}, "missing_required_parameter", "input[1].type"),
        ({"input": "Hi."}, "invalid_value", "input"),
        (
            {"input": [text_item("x", "user", "output_text")]},
            "invalid_value",
            "input[0].content[0].type",
        ),
        ({"metadata": {"n": 1}}, "invalid_value", "metadata.n"),
        ({"metadata": {"k": "v" * 513}}, "invalid_value", "metadata.k"),
        ({"metadata": {str(n): "" for n in range(17)}}, "invalid_value", "metadata"),
        ({"output_modalities": ["text", "audio"]}, "invalid_value", "output_modalities"),
        ({"output_modalities": []}, "invalid_value", "output_modalities"),
        ({"audio": {"output": {"speed": 1.0}}}, "unknown_parameter", "audio.output.speed"),
        (
            {"audio": {"output": {"format": {"rate": 1}}}},
            "invalid_value",
            "audio.output.format.rate",
        ),
        ({"max_output_tokens": 0}, "invalid_value", "max_output_tokens"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "invalid_value", "tools[0].type"),
        ({"tool_choice": {"type": "mcp", "server_label": "x"}}, "invalid_value", "tool_choice"),
        ({"temperature": 0.7}, "unknown_parameter", "temperature"),
    ],
)
def test_invalid_response_options_are_refused(
    response: dict[str, Any], code: str, param: str
) -> None:
    error = Client().refused("response.create", response=response)
    assert (error["code"], error["param"]) == (code, f"response.{param}")


def test_a_tool_that_the_session_names_is_not_asked_of_a_response_with_other_tools() -> None:
    client = Client()
    client.updated(tools=[DANCE], tool_choice={"type": "function", "name": "dance"})
    assert options(client, tools=[]).tool_choice == ToolChoice()
    assert options(client, tools=[DANCE]).tool_choice == ToolChoice("named", "dance")
