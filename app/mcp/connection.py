"""One MCP server, kept connected; its tools, and calls of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import jsonschema  # noqa: F401  (the SDK would import it in the middle of a call)
import mcp_types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from app.mcp.results import call_result
from pipeline.engines.llm.tool_calls.schema_check import why_unusable
from pipeline.tools.contract import CallResult, ServerTool

ANSWER_S = 10.0
"""Longest wait for a server to connect, or to list its tools."""
RETRY_S = 1.0, 60.0
"""First and longest pause before a server is connected again."""
MOST_TOOLS = 64
"""Of one server. Each costs the model some hundred tokens of its context."""
MOST_SCHEMA_CHARS = 16_000
MOST_DESCRIPTION_CHARS = 1024
LOST = (mcp_types.CONNECTION_CLOSED, mcp_types.INVALID_REQUEST)
"""The second is the SDK's code for a session that the server has forgotten."""

log = logging.getLogger("reachy_voice.mcp")
for _name in ("mcp", "httpx2", "httpcore2"):
    # They log addresses, which may hold a key, and what could not be read, which may be words.
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Where a server is: at a ``url``, or the program ``command``."""

    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A connected client."""
        if self.command:
            program, *arguments = self.command
            parameters = StdioServerParameters(
                command=program, args=arguments, env=dict(self.environment)
            )
            async with Client(parameters, read_timeout_seconds=ANSWER_S) as client:
                yield client
            return
        timeout = httpx2.Timeout(ANSWER_S, read=None)  # a call may take longer than a connection
        http = await asyncio.to_thread(httpx2.AsyncClient, headers=self.headers, timeout=timeout)
        async with http:
            transport = streamable_http_client(self.url, http_client=http)
            async with Client(transport, read_timeout_seconds=ANSWER_S) as client:
                yield client


class McpServer:
    """``run`` it in a task. A ``pipeline.tools.contract.ToolServer``."""

    def __init__(
        self,
        label: str,
        place: ServerPlace,
        timeout_s: float,
        allowed: Sequence[str] | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """It has no tools but ``allowed``; ``changed`` is called when there are other tools than
        before."""
        self.label = label
        self.tools: Sequence[ServerTool] = ()
        self.problem = ""
        """Why it cannot be used now."""
        self._place = place
        self._timeout_s = timeout_s
        self._allowed = allowed
        self._changed = changed
        self._client: Client | None = None
        self._tried = asyncio.Event()
        self._lost = asyncio.Event()

    async def wait_for_tools(self) -> str:
        await self._tried.wait()
        return self.problem

    async def probe(self) -> str:
        """Connect once; returns why that cannot be done, or an empty text."""
        task = asyncio.create_task(self.run())
        try:
            return await self.wait_for_tools()
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def run(self) -> None:
        pause_s, longest_s = RETRY_S
        while True:
            problem = "the connection was lost"
            try:
                async with self._place.client() as client:
                    await self._begin(client)
                    pause_s = RETRY_S[0]
                    await self._lost.wait()
            except Exception as error:  # of the SDK, of transports, of programs: all must be borne
                problem = _why(error)
            self._client = None
            self._lost.clear()
            if problem != self.problem:
                log.warning("the MCP server %s cannot be used: %s", self.label, problem)
            self.problem = problem
            self._tried.set()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    async def _begin(self, client: Client) -> None:
        before = self.tools
        async with asyncio.timeout(ANSWER_S):  # of all pages: a server may name ever another one
            self.tools = await self._list(client)
        self._client, self.problem = client, ""
        self._tried.set()
        log.info("the MCP server %s has %d tools", self.label, len(self.tools))
        if self.tools != before:
            self._changed()

    async def _list(self, client: Client) -> tuple[ServerTool, ...]:
        tools: list[ServerTool] = []
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                if self._allowed is not None and tool.name not in self._allowed:
                    continue
                if why := _why_unusable(tool.input_schema):
                    log.warning("%s: the tool %s is left out: %s", self.label, tool.name[:64], why)
                    continue
                if len(tools) == MOST_TOOLS:
                    log.warning(
                        "%s has more than %d tools; the others are left out. Name those that you "
                        "need: tools.mcp.%s.allowed",
                        self.label,
                        MOST_TOOLS,
                        self.label,
                    )
                    return tuple(tools)
                tools.append(_tool(tool))
            if not (cursor := page.next_cursor):
                return tuple(tools)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        if self._client is None:
            return CallResult(error=f"The server {self.label} cannot be used: {self.problem}.")
        code = None
        try:
            result = await self._client.call_tool(
                name, dict(arguments), read_timeout_seconds=self._timeout_s
            )
        except MCPError as error:
            code, why = error.code, _why(error)
            if code in LOST:
                self._lost.set()
            elif code == mcp_types.REQUEST_TIMEOUT:
                why = f"there was no answer within {self._timeout_s:g} s"
        except Exception as error:  # such as a malformed result
            why = _why(error)
        else:
            if result.is_error:
                log.warning("%s: the tool %s reports an error", self.label, name[:64])
            return call_result(result)
        # The server's own words may repeat the user's.
        reason = f"error {code}" if code is not None else why
        log.warning("%s: the call of %s has failed: %s", self.label, name[:64], reason)
        return CallResult(error=why, error_code=code)


def _tool(tool: mcp_types.Tool) -> ServerTool:
    hints = tool.annotations
    return ServerTool(
        tool.name,
        (tool.description or "")[:MOST_DESCRIPTION_CHARS],
        tool.input_schema,
        bool(hints and hints.read_only_hint),
    )


def _why_unusable(schema: Mapping[str, Any]) -> str:
    if len(str(schema)) > MOST_SCHEMA_CHARS:
        return f"its schema has more than {MOST_SCHEMA_CHARS} characters"
    if schema.get("type") != "object":
        return "its schema is not of the type object"
    return why_unusable(schema)


def _why(error: BaseException) -> str:
    """The reason, without an address, which may hold a secret."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case MCPError(code=mcp_types.CONNECTION_CLOSED):
            return "it has closed the connection"
        case MCPError():
            return str(error)[:300]
        case TimeoutError():
            return f"it has not listed its tools within {ANSWER_S:g} s"
        case OSError() if error.strerror:
            return error.strerror
        case httpx2.ConnectError():
            return "nothing answers at its address"
        case _:
            return type(error).__name__
