"""An MCP server by the official SDK, as a program: on stdio, or over HTTP at the port that is its
argument."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from typing import Any

from mcp.server.mcpserver import Image, MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("tests", log_level="CRITICAL")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def forecast(city: str) -> str:
    """The weather of tomorrow."""
    return f"Rain in {city}."


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ValueError("no such place")


@server.tool()
def flood() -> str:
    """A megabyte."""
    return "x" * 1_000_000


@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=PNG, format="png")


@server.tool()
async def sleep(seconds: float) -> str:
    """Takes long."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        if marker := os.environ.get("MARKER"):
            with open(marker, "w") as file:  # noqa: ASYNC230
                file.write("cancelled")
        raise
    return "Awake."


@server.tool()
def secret() -> Any:
    """What only the owner's settings say."""
    return os.environ.get("TOKEN", "none")


if __name__ == "__main__":
    if sys.argv[1:]:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
