"""The owner's MCP servers, each connected once for all sessions, and the clients' own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from pydantic import SecretStr

from app.mcp.connection import McpServer, ServerPlace
from app.settings.tools import McpServerSettings, ToolSettings
from pipeline.commands import ServerRequest

CLIENTS_TIMEOUT_S = 30.0
"""Time-out for a call to a client's server."""


class McpServers:
    """A ``pipeline.tools.contract.ToolServers``. ``run`` keeps the owner's connected."""

    def __init__(self, settings: ToolSettings, changed: Callable[[], None] = lambda: None) -> None:
        """``changed`` is called when the tools of the owner's servers have changed."""
        self.owners = tuple(
            McpServer(label, _place(each), each.timeout_s, each.allowed, changed)
            for label, each in settings.mcp.items()
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for owner in self.owners:
                group.create_task(owner.run())

    def open(self, request: ServerRequest, changed: Callable[[], None]) -> McpServer:
        place = ServerPlace(request.url, dict(request.headers))
        return McpServer(request.label, place, CLIENTS_TIMEOUT_S, changed=changed)


def _place(settings: McpServerSettings) -> ServerPlace:
    headers, environment = _plain(settings.headers), _plain(settings.environment)
    return ServerPlace(settings.url or "", headers, settings.command, environment)


def _plain(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: secret.get_secret_value() for name, secret in secrets.items()}
