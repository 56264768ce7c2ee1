"""MCP servers that lie, flood, stall, redirect and change: each costs at most its own call."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from mcp.types import CallToolResult, ImageContent

from app.mcp import connection, http, stdio
from app.mcp import pacing as pacing_module
from app.mcp.connection import McpServer, ServerPlace
from app.mcp.results import NO_OUTPUT, UNREADABLE, call_result
from pipeline.realtime.wire import MAX_SHOWN_CHARS
from pipeline.tools.contract import CallResult
from reachy_voice.testing.virtual_time import in_virtual_time
from tests.mcp.test_mcp_connection import connected
from tests.support.beside import beside
from tests.support.scripted_tool_servers import NO_ARGUMENTS

pytestmark = pytest.mark.machine

FORECAST = {"name": "forecast", "inputSchema": NO_ARGUMENTS}
TEXT = {"content": [{"type": "text", "text": "Rain."}]}
MEBIBYTE = b"x" * 2**20


@dataclass
class Asked:
    """One request. ``method``: JSON-RPC's, or HTTP's if it has none."""

    method: str
    id: Any
    headers: Mapping[str, str]
    send: asyncio.StreamWriter

    async def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        head = {"Content-Length": str(len(body)), "Connection": "close", **headers}
        await self.begin(status, head)
        self.send.write(body)

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Odd", *(f"{name}: {text}" for name, text in headers.items())]
        self.send.write("\r\n".join([*lines, "", ""]).encode())
        await self.send.drain()

    async def say(self, **outcome: Any) -> None:
        """Answer with ``result`` or ``error``."""
        message = {"jsonrpc": "2.0", "id": self.id, **outcome}
        session = {"Mcp-Session-Id": "s"} if self.method == "initialize" else {}
        headers = {"Content-Type": "application/json", **session}
        await self.answer(200, json.dumps(message).encode(), **headers)


Answer = Callable[[Asked], Awaitable[None]]


@dataclass
class McpStub:
    """``answers``: by method, in place of the usual ones."""

    tools: list[Mapping[str, Any]] = field(default_factory=lambda: [FORECAST])
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def methods(self) -> list[str]:
        return [each.method for each in self.asked]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            pairs = (line.partition(": ") for line in head[1:] if line)
            headers = {name.lower(): text for name, _, text in pairs}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            message = json.loads(body) if body else {}
            method = message.get("method", head[0].partition(" ")[0])
            asked = Asked(method, message.get("id"), headers, writer)
            self.asked.append(asked)
            await self.answers.get(method, self.usual)(asked)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def usual(self, asked: Asked) -> None:
        match asked.method:
            case "initialize":
                capabilities = {"tools": {"listChanged": True}}
                info = {"name": "stub", "version": "1"}
                version = "2025-06-18"
                result = {"protocolVersion": version, "capabilities": capabilities}
                await asked.say(result={**result, "serverInfo": info})
            case "tools/list":
                await asked.say(result={"tools": self.tools})
            case "tools/call":
                await asked.say(result=TEXT)
            case "server/discover":
                await asked.say(error={"code": -32601, "message": "no"})
            case "GET":
                await asked.answer(405)
            case _:
                await asked.answer(202)


@asynccontextmanager
async def mcp_stub(**options: Any) -> AsyncIterator[McpStub]:
    stub = McpStub(**options)
    listening = await asyncio.start_server(stub.serve, "127.0.0.1")
    stub.port = listening.sockets[0].getsockname()[1]
    try:
        yield stub
    finally:
        listening.close()


@asynccontextmanager
async def stubbed(
    timeout_s: float = 30, **options: Any
) -> AsyncIterator[tuple[McpStub, McpServer]]:
    """A stub, and the server that our side makes of it."""
    async with mcp_stub(**options) as stub, connected(ServerPlace(stub.url), timeout_s) as server:
        yield stub, server


def flood(kind: str, beginning: bytes, **headers: str) -> Answer:
    """Send without end, as long as the client reads."""

    async def answer(asked: Asked) -> None:
        await asked.begin(200, {"Content-Type": kind, **headers})
        asked.send.write(beginning)
        while True:
            asked.send.write(MEBIBYTE)
            await asked.send.drain()

    return answer


def redirect(location: str, status: int = 307) -> Answer:
    async def answer(asked: Asked) -> None:
        await asked.answer(status, Location=location)

    return answer


async def never(asked: Asked) -> None:
    """Say nothing until the client is gone."""
    await asyncio.get_running_loop().create_future()


SECRET = "sesame-0815"
RAIN = CallResult("Rain.")
JSON, EVENTS = "application/json", "text/event-stream"


async def many_parts(asked: Asked) -> None:
    await asked.answer(200, b"[" + b"{}," * 2**18, **{"Content-Type": JSON})


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (flood(JSON, b'{"jsonrpc": "2.0", "x": "'), "longer than 8 MiB"),
        (many_parts, "more than 100000 parts"),
        (flood(EVENTS, b"data: "), "too long"),
        (flood(EVENTS, b"data: [" + b"{}," * 2**18), "ended without a response"),
        (flood(JSON, b"", **{"Content-Encoding": "gzip"}), "compressed"),
        (flood(EVENTS, b"", **{"Content-Encoding": "none, GZIP"}), "compressed"),
        (never, "no answer within"),
    ],
)
async def test_an_endless_answer_costs_one_call(answer: Answer, why: str) -> None:
    timeout_s = 3 if answer is never else 60  # the machine may be busy
    async with stubbed(timeout_s) as (stub, server):
        stub.answers["tools/call"] = answer
        assert why in str((await server.call("forecast", {})).error)
        del stub.answers["tools/call"]
        assert await server.call("forecast", {}) == RAIN
        assert stub.methods().count("initialize") == 1


async def test_a_server_that_never_closes_does_not_delay_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "CLOSE_S", 0.1)
    async with mcp_stub(answers={"DELETE": never}) as stub:
        async with asyncio.timeout(10), connected(ServerPlace(stub.url)):
            pass
        assert stub.methods()[-1] == "DELETE"


async def test_a_secret_does_not_follow_a_redirect(caplog: pytest.LogCaptureFixture) -> None:
    async with mcp_stub() as other, mcp_stub() as stub:
        place = ServerPlace(stub.url, {"Authorization": SECRET})
        location = other.url.replace("/mcp", f"/{SECRET}?{SECRET}")
        for status in (301, 307):
            for method in ("initialize", "server/discover"):
                stub.answers = {method: redirect(location, status) for method in stub.answers or ()}
                stub.answers[method] = redirect(location, status)
            with caplog.at_level(logging.DEBUG):
                problem = await McpServer("t", place, 5).probe()
            assert problem == "it redirects to another address"
        assert other.asked == []
        assert SECRET not in caplog.text
        assert stub.asked[0].headers["authorization"] == SECRET


async def test_an_error_repeats_no_words_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(asked: Asked) -> None:
        await asked.say(error={"code": -32050, "message": f"bad token {SECRET}"})

    async def deny(asked: Asked) -> None:
        await asked.answer(401, f"bad token {SECRET}".encode())

    table = (refuse, "it answers with error -32050"), (deny, "it answers with HTTP 401")
    for answer, why in table:
        async with mcp_stub(answers={"initialize": answer}) as stub:
            with caplog.at_level(logging.DEBUG):
                assert await McpServer("t", ServerPlace(stub.url), 5).probe() == why
    assert SECRET not in caplog.text


async def test_an_odd_notification_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def tell(asked: Asked) -> None:
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {SECRET: SECRET}}
        answer = {"jsonrpc": "2.0", "id": asked.id, "result": {"content": []}}
        events = "".join(f"data: {json.dumps(each)}\n\n" for each in (note, answer))
        await asked.answer(200, events.encode(), **{"Content-Type": EVENTS})

    async with mcp_stub(answers={"tools/call": tell}) as stub:
        with caplog.at_level(logging.DEBUG):
            async with connected(ServerPlace(stub.url)) as server:
                assert (await server.call("forecast", {})).error is None
    assert SECRET not in caplog.text


async def refuse(asked: Asked) -> None:
    await asked.say(error={"code": -32600, "message": "no"})


async def hang_up(asked: Asked) -> None:
    asked.send.transport.abort()


async def tear(asked: Asked) -> None:
    await asked.begin(200, {"Content-Type": JSON, "Content-Length": "99"})
    await hang_up(asked)


@pytest.mark.parametrize(
    ("answer", "why"), [(refuse, "no"), (hang_up, "closed the connection"), (tear, "closed the")]
)
async def test_a_failed_call_does_not_affect_others(answer: Answer, why: str) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(asked: Asked) -> None:
        begun.set()
        await go_on.wait()
        await stub.usual(asked)

    async with stubbed() as (stub, server):
        stub.answers["tools/call"] = slow
        calling = asyncio.create_task(server.call("forecast", {}))
        await begun.wait()
        stub.answers["tools/call"] = answer
        assert why in str((await server.call("forecast", {})).error)
        go_on.set()
        assert await calling == RAIN


async def forget(asked: Asked) -> None:
    await asked.answer(404)


async def refuse_session(asked: Asked) -> None:
    """As the official TypeScript examples do: with 400 instead of 404."""
    error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
    message = {"jsonrpc": "2.0", "error": error, "id": None}
    await asked.answer(400, json.dumps(message).encode(), **{"Content-Type": JSON})


@pytest.mark.parametrize(
    ("refuse", "methods", "says"),
    [
        (forget, ["tools/call"], ""),
        (refuse_session, ["tools/call", "tools/list", "GET"], "No valid session"),
    ],
)
async def test_a_server_that_has_forgotten_the_session_is_connected_again(
    refuse: Answer, methods: Sequence[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RETRY_S", (0.01, 0.1))
    again = asyncio.Event()

    async def begin(asked: Asked) -> None:
        stub.answers = {"tools/list": list_again}
        await stub.usual(asked)

    async def list_again(asked: Asked) -> None:
        again.set()
        await stub.usual(asked)

    async with stubbed() as (stub, server):
        stub.answers = {**dict.fromkeys(methods, refuse), "initialize": begin}
        error = (await server.call("forecast", {})).error
        assert error
        assert says in error
        async with asyncio.timeout(20):
            await again.wait()
    assert stub.methods().count("initialize") == 2


async def test_an_unreadable_answer_is_told_in_plain_words() -> None:
    async def truncate(asked: Asked) -> None:
        await asked.answer(200, b'{"jsonrpc": "2.0", "id', **{"Content-Type": JSON})

    async def page(asked: Asked) -> None:
        await asked.answer(200, b"<html>", **{"Content-Type": "text/html"})

    async with stubbed() as (stub, server):
        for answer in (truncate, page):
            stub.answers["tools/call"] = answer
            error = (await server.call("forecast", {})).error
            assert error == "its answer is not of the form that it must have"


@pytest.mark.parametrize("coding", ["none", "Identity", "utf-8"])
async def test_only_a_compressed_answer_is_refused(coding: str) -> None:
    async def answer(asked: Asked) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": asked.id, "result": TEXT})
        headers = {"Content-Type": EVENTS, "Content-Encoding": coding}
        await asked.answer(200, f"data: {body}\n\n".encode(), **headers)

    async with stubbed(answers={"tools/call": answer}) as (_, server):
        assert await server.call("forecast", {}) == RAIN


@pytest.mark.parametrize(
    ("odd", "usable"),
    [
        ({"inputSchema": {}}, False),
        ({"inputSchema": None}, False),
        ({"inputSchema": {"type": ["object", "null"]}}, False),
        ({"name": 5}, False),
        ({"outputSchema": {"anyOf": []}}, True),
        ({"icons": [{"src": "x", "sizes": "48x48"}]}, True),
    ],
)
async def test_a_malformed_tool_does_not_take_the_others(
    odd: dict[str, Any], usable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tools = [FORECAST, {**FORECAST, "name": "odd", **odd}]
    async with stubbed(tools=tools) as (_, server):
        assert [tool.name for tool in server.tools] == ["forecast", *["odd"] * usable]
        assert await server.call("forecast", {}) == RAIN
    assert ("malformed" in caplog.text) != usable


async def test_a_tool_without_a_name_is_left_out() -> None:
    """Models by URL refuse each request that offers one."""
    tools = [{**FORECAST, "name": ""}, FORECAST]
    async with stubbed(tools=tools) as (_, server):
        assert [tool.name for tool in server.tools] == ["forecast"]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [*TEXT["content"], {"type": "hologram"}]}, f"Rain.\n{UNREADABLE}"),
        ({"content": [{"type": "text", "text": "Rain.", "_meta": "odd"}]}, "Rain."),
        ({**TEXT, "isError": None, "structuredContent": None}, "Rain."),
        ({"structuredContent": {"rain": True}}, '{"rain": true}'),
        ({"content": "Rain."}, UNREADABLE),
        ({}, NO_OUTPUT),
    ],
)
async def test_a_malformed_part_of_a_result_does_not_take_the_others(
    result: dict[str, Any], text: str
) -> None:
    async def answer(asked: Asked) -> None:
        await asked.say(result=result)

    async with stubbed(answers={"tools/call": answer}) as (_, server):
        assert await server.call("forecast", {}) == CallResult(text)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"Rain \ud83d", "Rain \ufffd"),
        (r"\uDE00 Rain", "\ufffd Rain"),
        (r"\ud83d\uD83D\ude00\ude00", "\ufffd\U0001f600\ufffd"),
        (r"C:\\ud83d", r"C:\ud83d"),
    ],
)
@pytest.mark.parametrize("kind", [JSON, EVENTS, "program"])
async def test_half_a_letter_is_replaced(kind: str, written: str, read: str) -> None:
    """JavaScript leaves one where it cuts a text."""

    async def answer(asked: Asked) -> None:
        result = json.dumps(TEXT).replace("Rain.", written)
        body = f'{{"jsonrpc": "2.0", "id": {asked.id}, "result": {result}}}'
        event = f"data: {body}\n\n" if kind == EVENTS else body
        await asked.answer(200, event.encode(), **{"Content-Type": kind})

    async with mcp_stub(answers={"tools/call": answer}) as stub:
        program = ServerPlace(command=(sys.executable, "-c", PROGRAM))
        place = program if kind == "program" else ServerPlace(stub.url)
        async with connected(place, 10) as server:
            assert await server.call("forecast", {"written": written}) == CallResult(read)


async def test_changed_tools_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRY_S", (0.01, 0.1))
    change, changed = asyncio.Event(), asyncio.Event()

    async def stream(asked: Asked) -> None:
        await asked.begin(200, {"Content-Type": EVENTS})
        await change.wait()
        note = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        asked.send.write(f"data: {json.dumps(note)}\n\n".encode())
        await never(asked)

    async with mcp_stub(answers={"GET": stream}) as stub:
        server = McpServer("t", ServerPlace(stub.url), 5, changed=changed.set)
        async with beside(server.run()), asyncio.timeout(20):
            await changed.wait()
            changed.clear()
            stub.tools = [FORECAST, {**FORECAST, "name": "erase"}]
            change.set()
            await changed.wait()
    assert [tool.name for tool in server.tools] == ["forecast", "erase"]


async def test_the_size_of_the_tool_list_is_limited() -> None:
    long = {**FORECAST, "description": "天" * 1000}
    schema = {"type": "object", "properties": {"x" * 10_000: {}}}
    tools = [{**long, "name": f"t{n}", "inputSchema": schema} for n in range(63)]
    tools.insert(1, {**FORECAST, "name": "n" * 1000})
    async with stubbed(tools=tools) as (_, server):
        shown = [[tool.name, tool.description, tool.parameters] for tool in server.tools]
    assert 20 < len(shown) < 60
    assert len(json.dumps(shown)) < MAX_SHOWN_CHARS


async def test_a_server_with_endless_pages_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def more(asked: Asked) -> None:
        await asked.say(result={"tools": [], "nextCursor": "more"})

    monkeypatch.setattr(connection, "ANSWER_S", 0.5)
    async with mcp_stub(answers={"tools/list": more}) as stub:
        problem = await McpServer("t", ServerPlace(stub.url), 30).probe()
    assert problem == "it has not listed its tools within 0.5 s"


@pytest.mark.parametrize("data", ["", "aGk=", "not base64", "iVBORw0KGgo"])
def test_a_broken_picture_is_named_in_words(data: str) -> None:
    result = call_result(CallToolResult(content=[ImageContent(data=data, mime_type="image/png")]))
    assert result.images == ()
    assert "cannot be shown" in result.text


PROGRAM = """
import json, sys
def say(id, **outcome):
    print(json.dumps({"jsonrpc": "2.0", "id": id, **outcome}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    match asked["method"]:
        case "initialize":
            capabilities, info = {"tools": {}}, {"name": "stub", "version": "1"}
            version = {"protocolVersion": "2025-06-18", "capabilities": capabilities}
            say(asked["id"], result={**version, "serverInfo": info})
        case "tools/list":
            tool = {"name": "forecast", "inputSchema": {"type": "object"}}
            say(asked["id"], result={"tools": [tool]})
        case "tools/call":
            print("Hello")
            sys.stdout.buffer.write(b"\\xff\\xfe\\n")
            sys.stdout.flush()
            last = asked["params"]["arguments"].get("last")
            if last == "die":
                sys.exit(3)
            while last == "endless":
                sys.stdout.write("x" * 2**20)
            text = asked["params"]["arguments"].get("written", "Rain.")
            result = '"result": {"content": [{"type": "text", "text": "%s"}]}' % text
            result = asked["params"]["arguments"].get("outcome", result)
            print('{"jsonrpc": "2.0", "id": %d, %s}' % (asked["id"], result), flush=True)
            if last == "leave":
                sys.exit()
        case "server/discover":
            if "strict" in sys.argv:
                sys.exit(1)
            say(asked["id"], error={"code": -32601, "message": "no"})
"""


@pytest.mark.parametrize(
    "outcome", ['"error": "no"', '"error": {"message": "no"}', '"result": "no"']
)
async def test_a_malformed_answer_of_a_program_ends_its_call(outcome: str) -> None:
    async with connected(ServerPlace(command=(sys.executable, "-c", PROGRAM)), 10) as server:
        failed = await server.call("forecast", {"outcome": outcome})
        assert failed.error == "its answer is not of the form that it must have"
        assert await server.call("forecast", {}) == RAIN


async def test_a_program_that_ends_at_the_newer_greeting_is_greeted_as_before() -> None:
    """Those made with rmcp, the Rust SDK, take only ``initialize`` as the first message."""
    place = ServerPlace(command=(sys.executable, "-c", PROGRAM, "strict"))
    assert await McpServer("t", place, 5).probe() == ""
    async with connected(place) as server:
        assert await server.call("forecast", {}) == RAIN


@pytest.mark.parametrize(("last", "says"), [("leave", "Rain."), ("die", ""), ("endless", "")])
async def test_a_program_that_ends_or_floods_is_started_again(
    last: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RETRY_S", (0.01, 0.1))
    monkeypatch.setattr(stdio, "LEAVE_S", 0.1)
    place, began = ServerPlace(command=(sys.executable, "-c", PROGRAM)), 0
    again = asyncio.Event()
    begin = McpServer._begin

    async def note(self: McpServer, client: Any) -> None:
        nonlocal began
        await begin(self, client)
        began += 1
        if began == 2:
            again.set()

    monkeypatch.setattr(McpServer, "_begin", note)
    async with asyncio.timeout(60), connected(place) as server:
        assert await server.call("forecast", {}) == RAIN  # invalid UTF-8 does no harm
        answer = await server.call("forecast", {"last": last})
        assert (answer.text, answer.error) == (
            says,
            None if says else "it has closed the connection",
        )
        await again.wait()
        assert await server.call("forecast", {}) == RAIN


@in_virtual_time
async def test_a_flood_is_read_slowly() -> None:
    loop, pacing = asyncio.get_running_loop(), pacing_module.Pacing()
    await pacing.wait(b"x" * pacing_module.BURST_BYTES)
    assert loop.time() == 0
    for data in (b"x" * pacing_module.BYTES_PER_S, b"{}\n" * 256):
        began = loop.time()
        await pacing.wait(data)
        assert loop.time() - began == pytest.approx(1, abs=0.01)


async def test_a_flood_of_events_does_not_block_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing_module, "BYTES_PER_S", 1)
    notes = flood(EVENTS, b'data: {"jsonrpc": "2.0", "method": "notifications/odd"}\n\n' * 4096)
    async with asyncio.timeout(60), stubbed(answers={"GET": notes}) as (_, server):
        assert await server.call("forecast", {}) == RAIN


async def test_no_pattern_of_the_server_checks_a_result() -> None:
    """Python's ``re`` would take years for this pattern and block all conversations."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(x+)+$"}}}

    async def answer(asked: Asked) -> None:
        await asked.say(result={**TEXT, "structuredContent": {"a": "x" * 40 + "!"}})

    tools, answers = [{**FORECAST, "outputSchema": schema}], {"tools/call": answer}
    async with stubbed(tools=tools, answers=answers) as (_, server):
        assert await server.call("forecast", {}) == RAIN


async def test_only_a_few_unusable_tools_are_examined(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, why_unusable = 0, connection._why_unusable

    def look(tool: Any) -> str:
        nonlocal looked
        looked += 1
        return why_unusable(tool)

    monkeypatch.setattr(connection, "_why_unusable", look)
    schema = {"type": "object", "properties": {"a": {"type": 5}}}
    tools = [{"name": f"t{n}", "inputSchema": schema} for n in range(1000)]
    async with stubbed(tools=[FORECAST, *tools]) as (_, server):
        assert [tool.name for tool in server.tools] == ["forecast"]
    assert looked == 1 + connection.MOST_TOOLS
    assert len(caplog.messages) == 2
