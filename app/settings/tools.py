"""The ``tools`` section: servers of MCP tools."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from pipeline.realtime.tool_servers import is_header
from pipeline.settings import Section

Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Secrets = dict[str, SecretStr]


class McpServerSettings(Section):
    """An MCP server: at a URL (streamable HTTP), or a program (stdio)."""

    url: str | None = Field(default=None, pattern=r"^https?://")
    """Its address."""
    command: tuple[str, ...] = ()
    """Or the program and its arguments; it is started once, for all conversations."""
    headers: Secrets = Field(default_factory=dict, repr=False)
    """HTTP headers for the URL, such as {Authorization: Bearer ...}."""
    environment: Secrets = Field(default_factory=dict, repr=False)
    """Environment variables for the program, beside PATH, HOME and the like."""
    allowed: tuple[str, ...] | None = None
    """The only tools that may be called; null: all."""
    timeout_s: float = Field(default=30, gt=0, le=600)
    """Seconds that a call may take."""

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if (self.url is None) == (not self.command):
            raise ValueError("needs either a url or a command")
        for name, secret in self.headers.items():
            if not is_header(name, secret.get_secret_value()):
                raise ValueError(f"the header {name!r} has a character that none may have")
        return self


class ToolSettings(Section):
    """Tools that this server calls itself, beside those that clients bring (docs/mcp.md)."""

    mcp: dict[Label, McpServerSettings] = Field(default_factory=dict)
    """MCP servers for all conversations, each under a name of your choice."""
    clock: Literal["never", "phrases", "always"] = "phrases"
    """Timers, alarms and reminders: asked for in plain phrases; or also as tools of the model."""
    client_urls: tuple[str, ...] = ()
    """Addresses of other MCP servers that clients may use, exactly as clients write them."""

    @property
    def used(self) -> bool:
        """Whether the MCP SDK is needed."""
        return bool(self.mcp or self.client_urls)
