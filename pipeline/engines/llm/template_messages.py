"""Messages for chat templates without tools or system messages, and calls as data."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any

from pipeline.engines.llm.pictures import joined
from pipeline.engines.llm.tool_calls.syntax import HERMES
from pipeline.messages import Message, Tool

_MOST_LEVELS = 64
"""Nesting limit of arguments in the history and of schemas; deeper values are left out."""

_TOOLS_AS_TEXT = """\
You can call functions. They are described between <tools> and </tools>, one JSON object a line:
<tools>
{lines}
</tools>
To call one, write this with the function's name and its arguments, and nothing behind it:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>"""


def in_words(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """Tools, calls and their results as text, for a template that has no place for them."""
    described = _with_tools(messages, tools) if tools else messages
    return alternating([as_text(message) for message in described])


def _with_tools(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """Describe the tools at the end of the first system message."""
    lines = "\n".join(_json(function_data(tool)["function"]) for tool in tools)
    text = _TOOLS_AS_TEXT.format(lines=lines)
    if messages and messages[0].role == "system":
        return [Message("system", f"{messages[0].content}\n\n{text}"), *messages[1:]]
    return [Message("system", text), *messages]


def as_text(message: Message) -> Message:
    """A call or its result in the notation that ``_TOOLS_AS_TEXT`` explains."""
    if message.role == "tool":
        return Message("user", f"<tool_response>\n{message.content}\n</tool_response>")
    if not message.tool_calls:
        return message
    calls = [call_data(call)["function"] for call in message.tool_calls]
    texts = [HERMES.written(call["name"], call["arguments"]) for call in calls]
    return Message("assistant", "\n".join(filter(None, [message.content, *texts])))


def alternating(messages: Sequence[Message]) -> list[Message]:
    """Merge neighbours: many templates refuse two messages of the same role in a row."""
    return _merged(messages, ("user", "assistant"), "\n")


def late_system_as_user(messages: Sequence[Message]) -> list[Message]:
    """Turn system messages after the first ones into user messages, merged with the next one."""
    early = list(takewhile(lambda message: message.role == "system", messages))
    late = [
        Message("user", message.content) if message.role == "system" else message
        for message in messages[len(early) :]
    ]
    return [*early, *_merged(late, ("user",), "\n\n")]


def _merged(messages: Sequence[Message], roles: Collection[str], between: str) -> list[Message]:
    """Merge neighbouring messages that share one of ``roles``."""
    result: list[Message] = []
    for message in messages:
        if result and result[-1].role == message.role and message.role in roles:
            result[-1] = joined(result[-1], message, between)
        else:
            result.append(message)
    return result


def without_system(messages: Sequence[Message]) -> list[Message]:
    """Put system messages in front of the user's first message."""
    texts = [m.content for m in messages if m.role == "system"]
    others = [m for m in messages if m.role != "system"]
    if not texts:
        return list(messages)
    merged = Message("user", "\n\n".join(texts))
    if others and others[0].role == "user":
        return [joined(merged, others[0], "\n\n"), *others[1:]]
    return [merged, *others]


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


# --- calls -------------------------------------------------------------------------------------


def call_data(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function", call)
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {"arguments": arguments}
    if is_deep(arguments):
        arguments = {}
    shown = {"name": function.get("name", ""), "arguments": arguments}
    return {"id": call.get("id", ""), "type": "function", "function": shown}


def called_name(call: Mapping[str, Any]) -> str:
    return str(call.get("function", call).get("name", ""))


def function_data(tool: Tool) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": {} if is_deep(tool.parameters) else dict(tool.parameters),
    }
    return {"type": "function", "function": function}


def is_deep(data: Any, levels: int = _MOST_LEVELS) -> bool:
    """Whether ``data`` is nested too deeply for templates, which recurse."""
    inner = data.values() if isinstance(data, Mapping) else data
    if not isinstance(data, Mapping | list | tuple):
        return False
    return levels == 0 or any(is_deep(one, levels - 1) for one in inner)
