"""MCP servers on the wire: formats and order of the GA API for clients that name servers, and no
trace of them for others. The conformance recorder checks every event."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from pipeline.commands import ServerRequest, ToolFilter
from pipeline.engines.contract import ToolCall
from pipeline.recording.plain import to_plain
from pipeline.tools.contract import CallResult
from reachy_voice.testing import Cast, ScriptedLlm, in_virtual_time
from tests.support.protocol_client import DEFAULTS, Client, text_item
from tests.support.scripted_tool_servers import ScriptedToolServer, ScriptedToolServers
from tests.support.wired import Wired, wired

pytestmark = pytest.mark.quick

URL = "http://127.0.0.1:9/mcp"
KNOWN = replace(DEFAULTS, tool_servers=("weather",), tool_server_urls=(URL,))
SERVER = {"type": "mcp", "server_label": "w", "server_url": URL, "require_approval": "never"}
OURS = {"type": "mcp", "server_label": "weather"}
SECRET = "sesame-0815"
ASK = text_item("What is the weather?")
CALLS = (ToolCall("forecast", '{"day": 1}'),)


async def ask(client: Wired, seconds: float = 3, **response: Any) -> None:
    await client.send("conversation.item.create", item=ASK)
    await client.send("response.create", response=response)
    await asyncio.sleep(seconds)


async def attach(client: Wired, *tools: Any) -> None:
    session = {"type": "realtime", "output_modalities": ["text"], "tools": list(tools)}
    await client.send("session.update", session=session)
    await asyncio.sleep(1)


def of(client: Wired, *parts: str) -> list[str]:
    """The event types that contain one of these parts, in order."""
    return [t for t in client.recorder.types if any(part in t for part in parts)]


@in_virtual_time
async def test_a_server_is_listed_and_called() -> None:
    llm = ScriptedLlm(answers=[CALLS], deltas=("It rains.",))
    servers = ScriptedToolServers(clients={URL: ScriptedToolServer()})
    async with wired(Cast(llm=llm), defaults=KNOWN, tool_servers=servers) as client:
        await attach(client, {**SERVER, "authorization": SECRET, "headers": {"X-Key": SECRET}})
        listing = client.events("conversation.item.added")[0]["item"]["id"]
        await client.send("conversation.item.retrieve", item_id=listing)
        await ask(client)
        shown = str(client.recorder.events)
    assert of(client, "mcp") == [
        "mcp_list_tools.in_progress",
        "mcp_list_tools.completed",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.mcp_call.in_progress",
        "response.mcp_call.completed",
    ]
    (retrieved,) = client.events("conversation.item.retrieved")
    assert [tool["name"] for tool in retrieved["item"]["tools"]] == ["forecast"]
    calls = [e["item"] for e in client.events("conversation.item.done") if "output" in e["item"]]
    assert [(c["name"], c["arguments"], c["output"]) for c in calls] == [
        ("forecast", '{"day": 1}', "Rain.")
    ]
    assert of(client, "response.done") == ["response.done"] * 2
    assert client.events("response.output_text.done")[0]["text"] == "It rains."
    # The token went to the server, and nowhere else.
    (asked,) = servers.opened
    assert dict(asked.headers) == {"X-Key": SECRET, "Authorization": f"Bearer {SECRET}"}
    assert SECRET not in shown
    assert SECRET not in f"{asked} {to_plain(asked)}"


@in_virtual_time
async def test_the_owners_servers_are_visible_only_to_clients_that_name_them() -> None:
    """Some clients end the connection at an item of unknown type."""
    for named in (False, True):
        picture = CallResult("Map:", ("data:image/png;base64,aGk=",))
        owners = ScriptedToolServers((ScriptedToolServer(result=picture),))
        llm = ScriptedLlm(answers=[("Wait.", *CALLS)], deltas=("It rains.",))
        async with wired(Cast(llm=llm), defaults=KNOWN, tool_servers=owners) as client:
            await attach(client, *([OURS] if named else []))
            await ask(client)
            await ask(client)
        assert bool(of(client, "mcp")) == named
        assert len(owners.owners[0].calls) == 1
        items = [event["item"]["type"] for event in client.events("conversation.item.done")]
        assert ("mcp_call" in items) == named
        assert items.count("message") == (6 if named else 5)  # one is the picture
        indexes = [event["output_index"] for event in client.events("response.output_item.added")]
        assert indexes == ([0, 1, 0, 0] if named else [0, 0, 0])


@in_virtual_time
async def test_a_response_ends_before_a_slow_call() -> None:
    llm = ScriptedLlm(answers=[CALLS], deltas=("Sorry.",))
    slow = ScriptedToolServer(takes_s=2, result=CallResult(error="no", error_code=-32603))
    servers = ScriptedToolServers(clients={URL: slow})
    async with wired(Cast(llm=llm), defaults=KNOWN, tool_servers=servers) as client:
        await attach(client, SERVER)
        await ask(client, 5)
    kinds = of(client, "response.done", "mcp_call.")
    assert kinds == [
        "response.mcp_call.in_progress",
        "response.done",
        "response.mcp_call.failed",
        "response.done",
    ]
    (call,) = [e["item"] for e in client.events("conversation.item.done") if "error" in e["item"]]
    assert call["error"] == {"type": "protocol_error", "code": -32603, "message": "no"}


@in_virtual_time
async def test_the_official_example_of_an_approval() -> None:
    """The steps of openai-ruby's ``examples/realtime/mcp_approval.rb``, which itself requests the
    answer after the call."""
    llm = ScriptedLlm(answers=[CALLS], deltas=("It ", 0.5, "rains."))
    servers = ScriptedToolServers(clients={URL: ScriptedToolServer()})
    async with wired(Cast(llm=llm), defaults=KNOWN, tool_servers=servers) as client:
        await attach(client, {**SERVER, "require_approval": "always"})
        choice = {"type": "mcp", "server_label": "w", "name": "forecast"}
        await ask(client, tool_choice=choice)
        requests = [e["item"] for e in client.events("conversation.item.done")]
        (request,) = [i for i in requests if i["type"] == "mcp_approval_request"]
        answer = {"approval_request_id": request["id"], "approve": True, "id": "answer"}
        answer |= {"type": "mcp_approval_response", "reason": "It is harmless."}
        await client.send("conversation.item.create", item=answer)
        await asyncio.sleep(0.7)  # the next answer has begun
        await client.send("response.create", response={"tool_choice": "none"})
        await asyncio.sleep(3)
    called = client.events("response.mcp_call_arguments.done")[0]["item_id"]
    assert client.events("response.mcp_call.completed")[0]["item_id"] == called
    assert [e["text"] for e in client.events("response.output_text.done")] == ["It rains."]
    assert client.events("error") == []
    assert llm.offered[0][1].name == "forecast"


@in_virtual_time
async def test_a_late_request_for_the_answer_after_a_call_adds_none() -> None:
    """The Agents SDK requests it when the call is over."""
    llm = ScriptedLlm(answers=[CALLS], deltas=("It rains.",))
    servers = ScriptedToolServers(clients={URL: ScriptedToolServer()})
    async with wired(Cast(llm=llm), defaults=KNOWN, tool_servers=servers) as client:
        await attach(client, SERVER)
        await ask(client)
        await client.send("response.create")
        await asyncio.sleep(2)
        assert len(of(client, "response.done")) == 2
        await client.send("response.create")
        await asyncio.sleep(2)
        assert len(of(client, "response.done")) == 3


@in_virtual_time
async def test_a_server_that_is_down_is_an_error() -> None:
    down = ScriptedToolServer(problem="nothing answers at its address", tools=())
    servers = ScriptedToolServers(clients={URL: down})
    llm = ScriptedLlm(deltas=("Hello.",))
    async with wired(Cast(llm=llm), defaults=KNOWN, tool_servers=servers) as client:
        await attach(client, SERVER)
        await ask(client)
    assert of(client, "mcp") == ["mcp_list_tools.in_progress", "mcp_list_tools.failed"]
    (error,) = client.events("error")
    assert "nothing answers" in error["error"]["message"]
    assert client.events("response.output_text.done")[0]["text"] == "Hello."


# --- what a client may name --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "param", "says"),
    [
        ({"server_url": "http://192.168.1.1/mcp"}, "server_url", "tools.client_urls"),
        ({"server_url": None}, "server_url", "it has weather"),
        ({"server_label": "two words"}, "server_label", "pattern"),
        ({"connector_id": "connector_gmail"}, "", "server_url"),
        ({"authorization": f"{SECRET}\r\nX: y"}, "", "character"),
        ({"headers": {"X": f"{SECRET}\n"}}, "", "character"),
        ({"headers": {"X Y": SECRET}}, "", "character"),
        ({"headers": {"host": "router.example"}}, "", "no header may name another"),
        ({"server_label": "weather", "server_url": None, "headers": {"X": SECRET}}, "", "needs no"),
        ({"require_approval": "sometimes"}, "require_approval", "never"),
        ({"headers": {"X": {"secret": SECRET}}}, "headers.X", "string"),
    ],
)
def test_other_servers_are_refused(tool: dict[str, Any], param: str, says: str) -> None:
    session = {"type": "realtime", "tools": [{**SERVER, **tool}]}
    error = Client(KNOWN).refused("session.update", session=session)
    assert error["param"] == f"session.tools[0].{param}".rstrip(".")
    assert says in error["message"]
    assert SECRET not in error["message"]


def test_a_server_is_named_once_and_only_in_the_session() -> None:
    client = Client(KNOWN)
    session = {"type": "realtime", "tools": [SERVER, SERVER]}
    assert "two servers" in client.refused("session.update", session=session)["message"]
    response = {"tools": [SERVER]}
    assert "session.update" in client.refused("response.create", response=response)["message"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ServerRequest("w", URL, approved=ToolFilter())),
        ({"require_approval": None}, ServerRequest("w", URL)),
        ({"require_approval": "always"}, ServerRequest("w", URL)),
        (
            {"require_approval": {"always": {"tool_names": ["a"]}}},
            ServerRequest("w", URL, approved=ToolFilter(), approved_singly=ToolFilter(("a",))),
        ),
        (
            {"require_approval": {"never": {"read_only": True}}},
            ServerRequest("w", URL, approved=ToolFilter(read_only=True)),
        ),
        (
            {"allowed_tools": ["a"]},
            ServerRequest("w", URL, allowed=ToolFilter(("a",)), approved=ToolFilter()),
        ),
        (
            {"allowed_tools": {"read_only": True}},
            ServerRequest("w", URL, allowed=ToolFilter(None, True), approved=ToolFilter()),
        ),
        (
            {"server_label": "weather", "server_url": None, "require_approval": None},
            ServerRequest("weather", approved=ToolFilter()),
        ),
    ],
)
def test_server_options_of_a_client_are_read(
    asked: dict[str, Any], expected: ServerRequest
) -> None:
    shown, config = Client(KNOWN).updated(tools=[{**SERVER, **asked}])
    assert config.servers == (expected,)
    assert shown["tools"][0]["server_label"] == expected.label
