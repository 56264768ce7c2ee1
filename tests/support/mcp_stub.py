"""An MCP server over HTTP that lies, floods, stalls and redirects, which no SDK would do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.scripted_tool_servers import NO_ARGUMENTS

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
