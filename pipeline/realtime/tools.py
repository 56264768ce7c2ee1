"""Tools and the choice among them: the wire's shape <-> ``pipeline.engines.contract``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.messages import Tool, ToolChoice
from pipeline.realtime.session_schema import FunctionTool
from pipeline.realtime.wire import invalid

_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}


def shown_tool(tool: FunctionTool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description or "",
        "parameters": tool.parameters or dict(_NO_ARGUMENTS),
    }


def tool_from_shown(shown: Mapping[str, Any]) -> Tool:
    return Tool(shown["name"], shown["description"], shown["parameters"])


def tool_choice(
    given: str | Mapping[str, Any], parallel: bool | None, tools: Sequence[Tool], path: str
) -> ToolChoice:
    """``given`` as the schema lets it through; ``parallel`` ``None``: several calls are welcome.

    ``path`` names the field for errors. Raises ``WireError`` when a tool is named that is not
    among ``tools``.
    """
    several = parallel is not False
    match given:
        case "none":
            return ToolChoice("none", parallel=several)
        case "required":
            return ToolChoice("required", parallel=several)
        case {"name": str(name)}:
            if all(tool.name != name for tool in tools):
                why = f"there is no tool '{name[:64]}'; offer it in 'tools', or choose another"
                raise invalid(f"{path}.name", why)
            return ToolChoice("named", name, several)
    return ToolChoice("auto", parallel=several)
