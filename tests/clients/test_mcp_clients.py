"""MCP with OpenAI's unmodified Agents SDK for JavaScript: hosted servers that our server calls."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.mcp.servers import McpServers
from app.models.weights import WeightsCache
from app.settings.tools import ToolSettings
from reachy_voice.testing import Cast, ScriptedLlm
from tests.clients.installed import HERE, node_modules
from tests.mcp.test_mcp_connection import PROGRAM, connected, over_http, think
from tests.support.beside import beside
from tests.support.scripted_server import Served, servers
from tests.support.staged_server import StagedAssistant

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]


@pytest.fixture
def modules(cache: WeightsCache) -> Path:
    return node_modules(cache.directory)


@asynccontextmanager
async def serving_tools(url: str = "") -> AsyncIterator[Served]:
    command = () if url else (sys.executable, str(PROGRAM))
    owners = {"mcp": {"house": {"command": command}}} if command else {}
    found = McpServers(
        ToolSettings.model_validate({**owners, "client_urls": (url,) if url else ()})
    )
    assistant = StagedAssistant(
        cast=Cast(llm=ScriptedLlm(think=think)), tool_servers=found, tool_server_urls=(url,)
    )
    async with beside(found.run()), servers() as start:
        yield await start(assistant)


async def talk(served: Served, modules: Path, folder: Path, **plan: Any) -> dict[str, Any]:
    """What the SDK saw for one question."""
    (folder / "node_modules").symlink_to(modules)
    program = folder / "agents_mcp.mjs"
    shutil.copy(HERE / "node" / program.name, program)
    argument = json.dumps({"url": served.url, **plan})
    node = await asyncio.create_subprocess_exec(
        "node", str(program), argument, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(120):
        output, _ = await node.communicate()
    report: dict[str, Any] = json.loads(output)
    return report


@pytest.mark.parametrize(
    ("approve", "said"), [(True, "Rain in Bern."), (False, "The tool has failed:")]
)
async def test_a_hosted_server_is_called_when_the_sdk_approves(
    modules: Path, tmp_path: Path, approve: bool, said: str
) -> None:
    async with over_http() as place, connected(place), serving_tools(place.url) as served:
        report = await talk(served, modules, tmp_path, server_url=place.url, approve=approve)
    assert report["errors"] == []
    assert "forecast" in report["tools"]
    (answer,) = report["said"]
    assert said in answer
    assert report["responses"] == 2
    assert [name for name, _ in report["calls"]] == ["forecast"]


async def test_a_server_of_the_owner_is_called_by_its_label(modules: Path, tmp_path: Path) -> None:
    async with serving_tools() as served:
        report = await talk(served, modules, tmp_path)
    assert (report["errors"], report["said"]) == ([], ["Rain in Bern."])
    assert report["responses"] == 2
    assert report["calls"] == [["forecast", "Rain in Bern."]]
