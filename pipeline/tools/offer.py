"""Which tools the model is offered, and under which names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pipeline.commands import ServerRequest
from pipeline.messages import Tool, ToolOrigin
from pipeline.tools.contract import ToolServer

MOST_TOOLS = 128
"""Most tools in one session, including the client's; the API's own limit."""
NAME_CHARS = 64
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that OpenAI does not allow in function names; many servers enforce the same."""


def offer_tools(
    functions: Sequence[Tool], servers: Iterable[tuple[ToolServer, ServerRequest | None]]
) -> tuple[Tool, ...]:
    """The client's ``functions``, which keep their names, then the tools of the servers, in order.
    A name already taken is prefixed with the server's label. A server without a request is the
    owner's, and hidden from the client."""
    tools = list(functions)
    names = {tool.name for tool in functions}
    for server, request in servers:
        for tool in server.tools:
            if request and not request.allowed.admits(tool.name, tool.read_only):
                continue
            if (name := _free(tool.name, server.label, names)) and len(tools) < MOST_TOOLS:
                names.add(name)
                shown = request is not None
                origin = ToolOrigin(server.label, tool.name, shown, tool.read_only, tool.offered)
                tools.append(Tool(name, tool.description, tool.parameters, origin))
    return tuple(tools)


def _free(name: str, label: str, names: set[str]) -> str:
    candidates = (_NOT_IN_NAMES.sub("_", text)[:NAME_CHARS] for text in (name, f"{label}_{name}"))
    return next((each for each in candidates if each not in names), "")
