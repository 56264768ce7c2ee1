"""Tool servers with fixed tools, results and delays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.commands import ServerRequest
from pipeline.tools.contract import CallResult, ServerTool

RAIN = CallResult("Rain.")
NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}


def tool(name: str) -> ServerTool:
    return ServerTool(name, f"The tool {name}.", NO_ARGUMENTS)


@dataclass(eq=False)
class ScriptedToolServer:
    label: str = "weather"
    tools: Sequence[ServerTool] = (tool("forecast"),)
    result: CallResult = RAIN
    takes_s: float = 0.5
    problem: str = ""
    """Why its tools cannot be listed; empty if they can."""
    calls: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    cancelled: int = 0
    running: bool = False
    changed: Callable[[], None] = lambda: None
    """Call it when the tools have changed."""

    async def wait_for_tools(self) -> str:
        await asyncio.sleep(0.1)
        return self.problem

    async def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        self.calls.append((name, arguments))
        try:
            await asyncio.sleep(self.takes_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.result

    async def run(self) -> None:
        self.running = True
        try:
            await asyncio.Event().wait()
        finally:
            self.running = False


@dataclass(eq=False)
class ScriptedToolServers:
    owners: Sequence[ScriptedToolServer] = ()
    clients: Mapping[str, ScriptedToolServer] = field(default_factory=dict)
    """By address."""
    opened: list[ServerRequest] = field(default_factory=list)

    def open(self, request: ServerRequest, changed: Callable[[], None]) -> ScriptedToolServer:
        self.opened.append(request)
        server = self.clients[request.url]
        server.label, server.changed = request.label, changed
        return server
