"""An MCP server that is a program: one message a line, on its standard input and output.

The SDK's own transport has no limit for a line, and reads as fast as a program writes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    jsonrpc_message_adapter,
)
from pydantic_core import from_json

from app.mcp.pacing import MOST_BYTES, Pacing, whole_letters

LEAVE_S = 2.0
"""Time for a program to end after its input has ended, and again after each signal."""

log = logging.getLogger("reachy_voice.mcp")

Received = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Received], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def program(
    command: Sequence[str], environment: Mapping[str, str], on_end: Callable[[], None]
) -> AsyncIterator[Streams]:
    """A transport of the SDK. ``on_end`` is called when no more messages will come. Raises
    ``OSError``."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**get_default_environment(), **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=MOST_BYTES,
        start_new_session=True,
    )
    arriving, incoming = anyio.create_memory_object_stream[Received]()
    outgoing, leaving = anyio.create_memory_object_stream[SessionMessage]()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(_read(process, arriving, on_end))
        writing = group.create_task(_write(process, leaving))
        try:
            with incoming, outgoing:
                yield incoming, outgoing
        finally:
            reading.cancel()
            await asyncio.wait({reading})
            await _stop(process)
            writing.cancel()


async def _read(
    process: asyncio.subprocess.Process,
    arriving: MemoryObjectSendStream[Received],
    on_end: Callable[[], None],
) -> None:
    stdout, pacing = process.stdout, Pacing()
    assert stdout is not None
    with arriving, suppress(anyio.BrokenResourceError):
        try:
            while line := await stdout.readline():
                await pacing.wait(line)
                with suppress(ValueError):  # not a message: programs print all sorts of things
                    await arriving.send(SessionMessage(_message(line)))
        except ValueError:
            log.warning("an MCP server is ended: it has sent too long a message")
    on_end()


def _message(line: bytes) -> JSONRPCMessage:
    """Raises ``ValueError`` if it is none. A malformed answer is an error, which ends its call."""
    text = whole_letters(line).decode(errors="replace")
    try:
        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:
        match from_json(text):
            case {"jsonrpc": _, "id": int() | str() as number, **rest} if "method" not in rest:
                error = ErrorData(code=PARSE_ERROR, message="Failed to parse JSON")  # as over HTTP
                return JSONRPCError(jsonrpc="2.0", id=number, error=error)
        raise


async def _write(
    process: asyncio.subprocess.Process, leaving: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    stdin = process.stdin
    assert stdin is not None
    with leaving, suppress(ConnectionError):
        async for each in leaving:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            stdin.write(f"{text}\n".encode())
            await stdin.drain()
    stdin.close()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Once its input is closed, end the program and its children, as the protocol says."""
    ending = {asyncio.create_task(each) for each in (_drain(process), process.wait())}
    try:
        for number in (signal.SIGTERM, signal.SIGKILL, None):
            _, ending = await asyncio.wait(ending, timeout=LEAVE_S)
            if not ending or number is None:
                return
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
    finally:
        for each in ending:
            each.cancel()


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Empty the output: a full pipe could keep the program from ending."""
    while process.stdout and await process.stdout.read(2**16):
        pass
