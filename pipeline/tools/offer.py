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
    A name already taken is prefixed with the server's label, or numbered. A server without a
    request is the owner's, and hidden from the client."""
    tools, names = list(functions), {tool.name for tool in functions}
    for server, request in servers:
        for tool in {each.name: each for each in server.tools}.values():
            if request and not request.allowed.admits(tool.name, tool.read_only):
                continue
            if len(tools) < MOST_TOOLS:
                names.add(name := _free(tool.name, server.label, names))
                shown = request is not None
                origin = ToolOrigin(server.label, tool.name, shown, tool.read_only, tool.offered)
                tools.append(Tool(name, tool.description, tool.parameters, origin))
    return tuple(tools)


def _free(name: str, label: str, names: set[str]) -> str:
    plain, other = (_NOT_IN_NAMES.sub("_", each)[:NAME_CHARS] for each in (name, f"{label}_{name}"))
    numbered = (f"{plain[: NAME_CHARS - 4]}_{n}" for n in range(2, MOST_TOOLS + 2))
    return next(each for each in (plain, other, *numbered) if each not in names)
