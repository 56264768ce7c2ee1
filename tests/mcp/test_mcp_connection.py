"""Real MCP servers by the official SDK: a program on stdio, and one over HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.types import AudioContent, CallToolResult, ImageContent, ResourceLink

from app.doctor.checks import check_tool_servers
from app.mcp import connection
from app.mcp.connection import McpServer, ServerPlace
from app.mcp.results import MOST_CHARS, NO_OUTPUT
from app.mcp.servers import McpServers
from app.settings.load import load_settings
from app.settings.tools import ToolSettings
from pipeline.engines.contract import ToolCall
from pipeline.errors import ConfigError
from pipeline.tools.contract import CallResult
from reachy_voice.testing import Cast, ScriptedLlm
from tests.support.beside import beside
from tests.support.far_server import free_port
from tests.support.protocol_client import text_item
from tests.support.wired import wired

pytestmark = pytest.mark.machine

PROGRAM = Path(__file__).parent.parent / "support" / "mcp_program.py"
TOOLS = ["forecast", "fail", "flood", "picture", "sleep", "secret"]
SECRET = "sesame-0815"


def program(**environment: str) -> ServerPlace:
    return ServerPlace(command=(sys.executable, str(PROGRAM)), environment=environment)


@asynccontextmanager
async def connected(
    place: ServerPlace, timeout_s: float = 30, **options: Any
) -> AsyncIterator[McpServer]:
    found = asyncio.Event()
    server = McpServer("t", place, timeout_s, changed=found.set, **options)
    async with beside(server.run()):
        async with asyncio.timeout(60):
            await found.wait()
        yield server


@asynccontextmanager
async def over_http(*command: str) -> AsyncIterator[ServerPlace]:
    """The same program, or another one, over HTTP on a port that it is told as an argument, or as
    ``PORT``."""
    port = free_port()
    environ = {**os.environ, "PORT": str(port)}
    command = command or (sys.executable, str(PROGRAM), str(port))
    serving = await asyncio.create_subprocess_exec(*command, env=environ)
    try:
        yield ServerPlace(f"http://127.0.0.1:{port}/mcp")
    finally:
        serving.terminate()
        await serving.wait()


async def test_a_program_is_called() -> None:
    async with connected(program(TOKEN=SECRET)) as server:
        assert [tool.name for tool in server.tools] == TOOLS
        assert server.tools[0].read_only
        assert (await server.call("forecast", {"city": "Bern"})).text == "Rain in Bern."
        assert (await server.call("secret", {})).text == SECRET
        assert len((await server.call("flood", {})).text) < MOST_CHARS + 100
        (image,) = (await server.call("picture", {})).images
        assert image.startswith("data:image/png;base64,")
        failed = await server.call("forecast", {})
        assert failed.error
        assert failed.error_code is None


async def test_a_server_over_http_is_called() -> None:
    async with over_http() as place, connected(place, allowed=("forecast",)) as server:
        assert [tool.name for tool in server.tools] == ["forecast"]
        assert await server.call("forecast", {"city": "Bern"}) == CallResult("Rain in Bern.")


async def test_names_that_a_server_lacks_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with connected(program(), allowed=("Forecast", "fail", "lights")) as server:
        assert [tool.name for tool in server.tools] == ["fail"]
        said = f"it has no tool Forecast, lights; it has {', '.join(TOOLS)}"
        assert f"tools.mcp.t.allowed: {said}" in caplog.text
        assert server.absent == said


async def test_a_call_ends_when_it_is_cancelled_or_takes_too_long(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    async with connected(program(MARKER=str(marker)), timeout_s=2) as server:
        late = await server.call("sleep", {"seconds": 60})
        assert late.error == "there was no answer within 2 s"
        marker.unlink(missing_ok=True)
        calling = asyncio.create_task(server.call("sleep", {"seconds": 60}))
        assert (await server.call("forecast", {"city": "Bern"})).text  # the other call has begun
        calling.cancel()
        await asyncio.wait({calling})
        assert (await server.call("forecast", {"city": "Bern"})).text
    assert marker.read_text() == "cancelled"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (ServerPlace(f"http://127.0.0.1:1/mcp?key={SECRET}", {"X": SECRET}), "nothing answers"),
        (ServerPlace(command=("/nowhere/at/all",)), "No such file"),
        (ServerPlace(command=("true",)), "closed the connection"),
    ],
)
async def test_an_unusable_server_is_reported_with_a_reason(
    place: ServerPlace, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        assert why in await McpServer("t", place, 5).probe()
    assert SECRET not in f"{caplog.text} {place}"


@pytest.mark.parametrize(
    ("content", "text", "images"),
    [
        ([], NO_OUTPUT, 0),
        ([ImageContent(data="aGk=", mime_type="image/webp")], "cannot be shown", 0),
        ([ImageContent(data="/9j/", mime_type="image/jpeg")], "follows", 1),
        ([ImageContent(data="/9\nj/\r\n", mime_type="image/jpeg")], "follows", 1),
        ([ImageContent(data="/9j/", mime_type="image/PNG; charset=binary")], "follows", 1),
        ([AudioContent(data="aGk=", mime_type="audio/wav")], "cannot be played", 0),
        ([ResourceLink(name="page", uri="http://x/")], "page: http://x/", 0),
    ],
)
def test_results_are_converted_for_the_model(content: list[Any], text: str, images: int) -> None:
    result = connection.call_result(CallToolResult(content=content))
    assert text in result.text
    assert len(result.images) == images


def test_an_error_without_words_does_not_say_that_all_is_done() -> None:
    error = connection.call_result(CallToolResult(content=[], is_error=True)).error
    assert error
    assert "Done" not in error


# --- the owner's settings ----------------------------------------------------------------------


def think(messages: Any, tools: Any, choice: Any) -> Any:
    """Ask for the forecast of Bern, and repeat it."""
    if messages[-1].role == "tool":
        return (messages[-1].content,)
    names = [tool.name for tool in tools]
    return (ToolCall("forecast", '{"city": "Bern"}'),) if "forecast" in names else ("No.",)


async def test_the_owners_server_works_for_unaware_clients() -> None:
    """As a client sees it: a text turn, with a real program behind it."""
    command = (sys.executable, str(PROGRAM))
    servers = McpServers(ToolSettings.model_validate({"mcp": {"w": {"command": command}}}))
    running = asyncio.create_task(servers.run())
    await servers.owners[0].wait_for_tools()
    said = asyncio.Event()
    async with wired(Cast(llm=ScriptedLlm(think=think)), tool_servers=servers) as client:
        client.scene.bus.tap(
            lambda each: said.set() if "Rain in Bern." in str(each.event) else None
        )
        await client.send(
            "session.update", session={"type": "realtime", "output_modalities": ["text"]}
        )
        asked = text_item("What is the weather in Bern?")
        await client.send("conversation.item.create", item=asked)
        await client.send("response.create")
        async with asyncio.timeout(60):
            await said.wait()
        await client.settle()
    running.cancel()
    await asyncio.wait({running})
    assert not [kind for kind in client.recorder.types if "mcp" in kind or "function" in kind]


@pytest.fixture
def settings() -> Callable[..., ToolSettings]:
    def load(*overrides: str) -> ToolSettings:
        return load_settings(None, overrides, {}).settings.tools

    return load


def test_settings_of_servers(settings: Callable[..., ToolSettings]) -> None:
    assert not settings().used
    assert settings("tools.client_urls=[http://x/mcp]").client_urls == ("http://x/mcp",)
    house = f"tools.mcp.house={{url: http://x/mcp, headers: {{Authorization: {SECRET}}}}}"
    found = settings(house)
    assert found.mcp["house"].headers["Authorization"].get_secret_value() == SECRET
    assert SECRET not in f"{found} {found.model_dump_json()}"
    for bad in ("{}", "{url: http://x/, command: [y]}", "{url: ftp://x}", "{cmd: [x]}"):
        with pytest.raises(ConfigError):
            settings(f"tools.mcp.house={bad}")
    with pytest.raises(ConfigError, match="known here: url, command,"):
        settings("tools.mcp.house={url: http://x/, kind: sse}")
    with pytest.raises(ConfigError, match=r"tools\.mcp\.house\.command\?"):
        settings("tools.mcp.house={comand: [x]}")


@pytest.mark.parametrize("header", ['X: "a\\n"', "X: ä", "X Y: a", "'': a", "X: ' a'"])
def test_a_header_that_cannot_be_sent_is_refused(
    settings: Callable[..., ToolSettings], header: str
) -> None:
    """Such as a key that was pasted with the end of its line."""
    with pytest.raises(ConfigError, match="has a character that none may have"):
        settings(f"tools.mcp.house={{url: http://x/, headers: {{{header}}}}}")


@pytest.mark.parametrize("secret", ["{headers: {X-Key: 8150815}}", "{environment: {PIN: 8150815}}"])
def test_a_number_in_place_of_a_secret_is_not_shown(
    settings: Callable[..., ToolSettings], secret: str
) -> None:
    with pytest.raises(ConfigError, match="valid string") as refused:
        settings(f"tools.mcp.house={secret}")
    assert "8150815" not in str(refused.value)


def test_the_doctor_checks_each_server(settings: Callable[..., ToolSettings]) -> None:
    found = settings("tools.mcp.gone={command: [/nowhere/at/all]}")
    (check,) = check_tool_servers(found, "reachy-voice setup")
    assert (check.name, check.state) == ("MCP gone", "warn")
    found = settings(f"tools.mcp.t={{command: [{sys.executable}, {PROGRAM}], allowed: [light]}}")
    (check,) = check_tool_servers(found, "reachy-voice setup")
    assert (check.state, check.fix) == ("warn", "Correct tools.mcp.t.allowed")
    assert check.detail.startswith("it has no tool light; it has forecast, ")
    assert list(check_tool_servers(settings(), "")) == []


def test_a_missing_package_is_named(
    settings: Callable[..., ToolSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = settings("tools.client_urls=[http://x/]")
    (check,) = check_tool_servers(found, "script/setup")
    assert (check.state, check.fix) == ("fail", "Run: script/setup")
    assert "cannot import mcp" in check.detail
