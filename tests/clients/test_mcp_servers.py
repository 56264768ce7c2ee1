"""MCP servers from the registries, unmodified, whose tools our server calls: a Python program and a
JavaScript one on stdio, and the latter over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.mcp.connection import ServerPlace
from app.models.weights import WeightsCache
from tests.clients.installed import node_modules, python_with_clients
from tests.mcp.test_mcp_connection import connected, over_http

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

EVERYTHING = Path("@modelcontextprotocol", "server-everything", "dist", "index.js")


@asynccontextmanager
async def everything(program: Path, transport: str) -> AsyncIterator[ServerPlace]:
    command = ("node", str(program), transport)
    if transport == "stdio":
        yield ServerPlace(command=command)
    else:
        async with over_http(*command) as place:
            yield place


async def test_mcp_server_time(cache: WeightsCache) -> None:
    program = python_with_clients(cache.directory).with_name("mcp-server-time")
    place = ServerPlace(command=(str(program), "--local-timezone", "Europe/Zurich"))
    async with connected(place) as server:
        assert {tool.name for tool in server.tools} == {"get_current_time", "convert_time"}
        noon = {"source_timezone": "Europe/Zurich", "time": "12:00", "target_timezone": "UTC"}
        result = await server.call("convert_time", noon)
        assert re.fullmatch(r"1[01]:00", json.loads(result.text)["target"]["datetime"][11:16])
        wrong = await server.call("get_current_time", {"timezone": "Nowhere"})
        assert "Invalid timezone" in str(wrong.error)


@pytest.mark.parametrize("transport", ["stdio", "streamableHttp"])
async def test_server_everything(cache: WeightsCache, transport: str) -> None:
    program = node_modules(cache.directory) / EVERYTHING
    async with everything(program, transport) as place, connected(place, timeout_s=2) as server:
        names = [tool.name for tool in server.tools]
        assert {"echo", "get-sum", "get-tiny-image", "trigger-long-running-operation"} <= {*names}
        assert (await server.call("get-sum", {"a": 1, "b": 2})).text == "The sum of 1 and 2 is 3."
        (image,) = (await server.call("get-tiny-image", {})).images
        assert image.startswith("data:image/png;base64,")
        assert (await server.call("get-sum", {"a": "one"})).error
        slow = await server.call("trigger-long-running-operation", {"duration": 60, "steps": 5})
        assert slow.error == "there was no answer within 2 s"
        assert (await server.call("echo", {"message": "still here"})).text == "Echo: still here"
