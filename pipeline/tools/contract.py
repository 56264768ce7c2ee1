"""What a session needs from tool servers; ``app.mcp`` has those that speak MCP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.commands import ServerRequest


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool under its server's own name."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """A valid JSON schema."""
    read_only: bool = False
    offered: bool = True
    """See ``pipeline.messages.ToolOrigin``."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call returned."""

    text: str = ""
    images: tuple[str, ...] = ()
    """Data URLs of PNG or JPEG."""
    error: str | None = None
    """Tells the model and the client why it failed."""
    error_code: int | None = None
    """JSON-RPC's, if the server refused it."""


class ToolServer(Protocol):
    """One server: the owner's or one client's."""

    @property
    def label(self) -> str: ...

    @property
    def tools(self) -> Sequence[ServerTool]:
        """The tools in its latest list."""
        ...

    async def wait_for_tools(self) -> str:
        """Wait until the tools are known. Returns why they cannot be, or an empty string."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        """Call a tool. A failure is returned as a result. The time is limited; cancelling tells the
        server."""
        ...

    async def run(self) -> None:
        """Stay connected until cancelled."""
        ...


class ToolServers(Protocol):
    """All tool servers of this process."""

    @property
    def owners(self) -> Sequence[ToolServer]:
        """The owner's servers, shared by all sessions. The caller runs them."""
        ...

    def open(self, request: ServerRequest, changed: Callable[[], None]) -> ToolServer:
        """A client's server, for one session, which runs it. ``changed`` is called when its tools
        change."""
        ...


class RunningToolServers(ToolServers, Protocol):
    async def run(self) -> None:
        """Keep the owner's servers connected until cancelled."""
        ...


class NoToolServers:
    """For a process without tool servers."""

    owners: Sequence[ToolServer] = ()

    async def run(self) -> None:
        pass

    def open(self, request: ServerRequest, changed: Callable[[], None]) -> ToolServer:
        raise NotImplementedError("the protocol refuses servers that the owner does not allow")
