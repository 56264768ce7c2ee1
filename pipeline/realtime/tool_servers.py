"""MCP servers that a client names, and their tools on the wire."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pipeline.commands import ServerRequest, ToolFilter
from pipeline.events import ToolListing
from pipeline.realtime.items import item_to_wire
from pipeline.realtime.schema import (
    MOST_SERVERS,
    AnyTool,
    ApprovalFilters,
    McpTool,
    ToolFilterFields,
)
from pipeline.realtime.wire import Send, WireError, invalid

_SECRET = {"authorization", "headers"}


def shown_server(tool: McpTool) -> dict[str, Any]:
    """A server as shown in ``session.updated``: without its secrets."""
    return tool.model_dump(exclude=_SECRET, exclude_none=True)


def server_requests(
    tools: Sequence[AnyTool], owners: Sequence[str], allowed_urls: Sequence[str]
) -> tuple[ServerRequest, ...]:
    """The servers among ``tools``. ``owners``: labels of the owner's servers; ``allowed_urls``:
    other servers that a client may use. Raises ``WireError``."""
    requests: dict[str, ServerRequest] = {}
    for at, tool in enumerate(tools):
        if not isinstance(tool, McpTool):
            continue
        path, label = f"session.tools[{at}]", tool.server_label
        if label in requests:
            raise invalid(f"{path}.server_label", f"there are two servers '{label}'")
        if len(requests) >= MOST_SERVERS:
            raise invalid(path, f"a session has {MOST_SERVERS} MCP servers at most")
        if tool.connector_id or tool.tunnel_id:
            raise invalid(path, "connectors and tunnels are OpenAI's; give a 'server_url'")
        if tool.server_url is None and label not in owners:
            raise invalid(f"{path}.server_url", _whose(label, owners))
        if tool.server_url is not None and tool.server_url not in allowed_urls:
            raise _not_allowed(f"{path}.server_url")
        requests[label] = _request(tool, path)
    return tuple(requests.values())


def _whose(label: str, owners: Sequence[str]) -> str:
    known = f"has {', '.join(owners)}" if owners else "has none"
    return f"it is missing, and of the owner's servers (tools.mcp) '{label}' is none: it {known}"


def _not_allowed(path: str) -> WireError:
    return invalid(
        path,
        "this server calls no MCP server that its owner has not allowed; add the address to "
        "tools.client_urls in its settings",
    )


def _request(tool: McpTool, path: str) -> ServerRequest:
    headers = dict(tool.headers or {})
    if tool.authorization:
        headers["Authorization"] = f"Bearer {tool.authorization}"
    if not all(is_header(*each) for each in headers.items()):
        raise invalid(path, "a header or the authorization has a character that none may have")
    if any(name.lower() == "host" for name in headers):  # it would reach another site there
        raise invalid(path, "the host is that of the 'server_url'; no header may name another")
    if headers and tool.server_url is None:
        raise invalid(path, "the owner's own server needs no headers and no authorization")
    approval = tool.require_approval
    approved = singly = None
    if isinstance(approval, ApprovalFilters):
        approved, singly = _filter(approval.never), _filter(approval.always)
        if approved is None and singly:
            approved = ToolFilter()
    elif approval == "never" or (approval is None and tool.server_url is None):
        approved = ToolFilter()
    return ServerRequest(
        label=tool.server_label,
        url=tool.server_url or "",
        headers=tuple(headers.items()),
        allowed=_filter(tool.allowed_tools) or ToolFilter(),
        approved=approved,
        approved_singly=singly,
    )


def _filter(given: list[str] | ToolFilterFields | None) -> ToolFilter | None:
    if given is None:
        return None
    if isinstance(given, list):
        return ToolFilter(tuple(given))
    names = None if given.tool_names is None else tuple(given.tool_names)
    return ToolFilter(names, given.read_only)


def is_header(name: str, value: str) -> bool:
    """Whether HTTP can carry this header."""
    is_name = re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name, re.ASCII)
    return bool(is_name) and value.isascii() and value.isprintable() and value == value.strip()


def show_listing(event: ToolListing, send: Send) -> None:
    """Send that a server's tools are being listed, are known, or cannot be listed."""
    item, status = event.item, event.item.status
    place = {"previous_item_id": event.previous_item_id, "item": item_to_wire(item)}
    kind = {"incomplete": "failed"}.get(status, status)
    send(f"conversation.item.{'added' if kind == 'in_progress' else 'done'}", **place)
    send(f"mcp_list_tools.{kind}", item_id=item.id)
