"""One MCP server, kept connected; its tools, and calls of them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.client import ConnectMode
from mcp.client.session import IncomingMessage, MessageHandlerFnT
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

from app.mcp.http import HTTP_ERROR, http_client
from app.mcp.pacing import MOST_BYTES
from app.mcp.results import MALFORMED, call_result, mend_results
from app.mcp.stdio import program
from pipeline.engines.llm.tool_calls.schema_check import why_unusable
from pipeline.tools.contract import CallResult, ServerTool

ANSWER_S = 10.0
"""Longest wait for a server to connect, or to list its tools."""
RETRY_S = 1.0, 60.0
"""First and longest pause before a server is connected again."""
MOST_TOOLS = 64
"""Most tools of one server. Each costs the model some hundred tokens of its context."""
MOST_SCHEMA_CHARS = 16_000
MOST_DESCRIPTION_CHARS = 1024
MOST_NAME_CHARS = 128
"""Longest name of a tool; the protocol's own limit."""
MOST_LIST_CHARS = 400_000
"""Most JSON for all tools of a server: a client that names it gets them in one message."""
FORGOTTEN, CLOSED = "Session terminated", "Connection closed"
"""The SDK's messages when the server has forgotten our session, or has ended the connection."""

UNREADABLE = "Failed to parse JSON", "Failed to parse SSE message", "Unexpected content type"
"""How its messages about answers that it cannot read begin; what follows is for its authors."""

_TORN = "the connection was lost"
_MALFORMED = "its answer is not of the form that it must have"

log = logging.getLogger("reachy_voice.mcp")
for _name in ("mcp", "client", "httpx2", "httpcore2"):  # the second is the SDK's, too
    # They log addresses, which may hold a key, and unreadable messages, which may hold speech.
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Where a server is: at a ``url``, or the program ``command``."""

    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @asynccontextmanager
    async def client(
        self,
        timeout_s: float,
        hear: MessageHandlerFnT,
        on_end: Callable[[], None],
        greeting: ConnectMode,
    ) -> AsyncIterator[Client]:
        """A connected client, whose calls take ``timeout_s`` at most. ``hear`` gets messages that
        the server sends unasked; ``on_end`` is called when it has closed the connection."""
        async with AsyncExitStack() as stack:
            transport: Transport
            if self.command:
                transport = program(self.command, self.environment, on_end)
            else:
                answer_s = timeout_s + ANSWER_S
                http = await asyncio.to_thread(http_client, self.headers, answer_s)
                await stack.enter_async_context(http)
                transport = streamable_http_client(
                    self.url, http_client=http, max_sse_event_size=MOST_BYTES
                )
            client = Client(
                transport, mode=greeting, read_timeout_seconds=ANSWER_S, message_handler=hear
            )
            yield await stack.enter_async_context(client)


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
        """``allowed``: the only tools to offer; ``None``: all. ``changed`` is called when the tools
        have changed."""
        self.label = label
        self.tools: Sequence[ServerTool] = ()
        self.problem = ""
        """Why it cannot be used now."""
        self.absent = ""
        """Names in ``allowed`` that it does not have, and what it has; empty: it has them all."""
        self._place = place
        self._timeout_s = timeout_s
        self._allowed = allowed
        self._changed = changed
        self._client: Client | None = None
        self._tried = asyncio.Event()
        self._lost = False
        self._greeting: ConnectMode = "auto"
        """``legacy``: without the newer greeting, ``server/discover``."""
        self._news = asyncio.Event()
        """Set when the connection is lost, or the server's tools have changed."""

    async def wait_for_tools(self) -> str:
        await self._tried.wait()
        return self.problem

    async def probe(self) -> str:
        """Connect once; returns why that fails, or an empty text."""
        task = asyncio.create_task(self.run())
        try:
            return await self.wait_for_tools()
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def run(self) -> None:
        pause_s, longest_s = RETRY_S
        while True:
            async with asyncio.TaskGroup() as group:  # else the SDK would lose a cancellation
                connection = group.create_task(self._connect())
            if connection.result():
                pause_s = RETRY_S[0]
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    async def _connect(self) -> bool:
        """Connect until the connection ends; returns whether the tools could be listed."""
        problem, begun, self._lost = "", False, False
        self._news.clear()
        try:
            async with self._place.client(
                self._timeout_s, self._hear, self._lose, self._greeting
            ) as client:
                mend_results(client)
                try:
                    await self._begin(client)
                    begun = True
                    await self._follow(client)
                    problem = _TORN
                except Exception as error:
                    problem = _why(error)  # before the SDK turns it into another error
        except Exception as error:  # from the SDK, transports or programs: none may end ``run``
            problem = problem or _why(error)
        finally:
            self._client = None
        if self._lost and not begun:  # many programs end at the newer greeting
            self._greeting = "legacy" if self._greeting == "auto" else "auto"
            if self._greeting == "legacy":
                return await self._connect()
        if problem != self.problem:
            log.warning("the MCP server %s cannot be used: %s", self.label, problem)
        self.problem = problem
        self._tried.set()
        return begun

    async def _begin(self, client: Client) -> None:
        before = self.tools
        async with asyncio.timeout(ANSWER_S):  # for all pages: a server may always name one more
            self.tools = await self._list(client)
        self._client, self.problem = client, ""
        self._tried.set()
        log.info("the MCP server %s has %d tools", self.label, len(self.tools))
        if self.tools != before:
            self._changed()

    async def _follow(self, client: Client) -> None:
        """List the tools again whenever they have changed, until the connection is lost."""
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen(client))
            while True:
                await self._news.wait()
                if self._lost:
                    break
                await asyncio.sleep(RETRY_S[0])  # they may change all the time
                self._news.clear()
                await self._begin(client)
            listening.cancel()

    async def _listen(self, client: Client) -> None:
        """Ask for a message when the tools change; older servers send one without being asked."""
        with suppress(MCPError, RuntimeError, TimeoutError):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._news.set()

    async def _hear(self, message: IncomingMessage) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._news.set()

    def _lose(self) -> None:
        self._lost = True
        self._news.set()

    async def _list(self, client: Client) -> tuple[ServerTool, ...]:
        tools: list[ServerTool] = []
        unusable: list[str] = []
        names: list[str] = []
        chars, full, cursor = 0, False, None
        while not full:
            page = await client.list_tools(cursor=cursor, cache_mode="bypass")
            for tool in page.tools:
                names.append(tool.name)
                if self._allowed is not None and tool.name not in self._allowed:
                    continue
                if full := MOST_TOOLS in (len(tools), len(unusable)):
                    break
                await asyncio.sleep(0)  # checking a schema may take 0.2 s
                if why := _why_unusable(tool):
                    unusable.append(f"{tool.name[:64]}: {why}")
                    continue
                chars += len(json.dumps(tool.input_schema)) + len(json.dumps(tool.description))
                if full := chars > MOST_LIST_CHARS:
                    break
                tools.append(_tool(tool))
            if not (cursor := page.next_cursor):
                break
        if unusable:
            log.warning(
                "%s: %d tools cannot be used, such as %s", self.label, len(unusable), unusable[0]
            )
        if full:
            log.warning(
                "%s has more than %d tools, or %d characters of them; the others are left out. "
                "Name those that you need: tools.mcp.%s.allowed",
                *(self.label, MOST_TOOLS, MOST_LIST_CHARS, self.label),
            )
        if not full:
            self._compare(names)
        return tuple(tools)

    def _compare(self, names: Sequence[str]) -> None:
        """Warn of names in ``allowed`` that are not among the server's."""
        wrong = ", ".join(name for name in self._allowed or () if name not in names)
        before, has = self.absent, ", ".join(names)[:MOST_DESCRIPTION_CHARS] or "none"
        self.absent = f"it has no tool {wrong}; it has {has}" if wrong else ""
        if self.absent not in ("", before):
            log.warning("tools.mcp.%s.allowed: %s", self.label, self.absent)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        client = self._client
        if client is None:
            return CallResult(error=f"The server {self.label} cannot be used: {self.problem}.")
        code = None
        try:
            asked = CallToolRequest(
                params=CallToolRequestParams(name=name, arguments={**arguments})
            )
            # ``client.call_tool`` would also check the result, by Python's regular expressions,
            # which may take forever; we treat it as text.
            result = await client.session.send_request(asked, CallToolResult, self._timeout_s)
        except MCPError as error:
            code, why, reason = error.code, _why(error, words=True), _why(error)
            if code == mcp_types.REQUEST_TIMEOUT:
                why = reason = f"there was no answer within {self._timeout_s:g} s"
            elif client is self._client:
                self._lost |= error.message in (FORGOTTEN, CLOSED)
                # If it has forgotten us and says so in another way, it will list no tools either.
                self._news.set()
        except Exception as error:  # such as a malformed result
            why = reason = _why(error)
        else:
            if result.is_error:
                log.warning("%s: the tool %s reports an error", self.label, name[:64])
            return call_result(result)
        log.warning("%s: the call of %s has failed: %s", self.label, name[:64], reason)
        return CallResult(error=why, error_code=None if code == HTTP_ERROR else code)


def _tool(tool: mcp_types.Tool) -> ServerTool:
    read_only = bool(tool.annotations and tool.annotations.read_only_hint)
    description = (tool.description or "")[:MOST_DESCRIPTION_CHARS]
    return ServerTool(tool.name, description, tool.input_schema, read_only)


def _why_unusable(tool: mcp_types.Tool) -> str:
    schema = tool.input_schema
    if not 0 < len(tool.name) <= MOST_NAME_CHARS:
        return f"its name must have 1 to {MOST_NAME_CHARS} characters"
    if len(str(schema)) > MOST_SCHEMA_CHARS:
        return f"its schema has more than {MOST_SCHEMA_CHARS} characters"
    if schema == MALFORMED:
        return "it is malformed, or its schema is not of the type object"
    return why_unusable(schema)


def _why(error: BaseException, *, words: bool = False) -> str:
    """The reason, without an address, which may hold a secret. ``words``: use the server's own
    words, which may repeat a secret, or what the user said."""
    if isinstance(error, BaseExceptionGroup):
        whys = [_why(each, words=words) for each in error.exceptions]
        return next((why for why in whys if why != _TORN), _TORN)
    match error:
        case MCPError(message=message) if message.startswith("SSE stream failed: "):
            return "its answer is too long, or no stream of events"
        case MCPError(message=message) if message.startswith(UNREADABLE):
            return _MALFORMED
        case MCPError(code=mcp_types.REQUEST_TIMEOUT):
            return f"there was no answer within {ANSWER_S:g} s"
        case MCPError(message=message) if message == CLOSED:
            # Its code also stands for any server error.
            return "it has closed the connection"
        case MCPError(message=message) if message.startswith("Redirect to "):  # the SDK's words
            return "it redirects to another address"
        case MCPError(code=code, message=message):
            return message[:300] if words or code == HTTP_ERROR else f"it answers with error {code}"
        case TimeoutError():
            return f"it has not listed its tools within {ANSWER_S:g} s"
        case OSError() if error.strerror:
            return error.strerror
        case anyio.BrokenResourceError() | anyio.ClosedResourceError():
            return _TORN  # often only the consequence of another error
        case RuntimeError() | ValueError():
            return _MALFORMED
        case _:
            return type(error).__name__
