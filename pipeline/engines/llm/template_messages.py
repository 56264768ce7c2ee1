"""Rewrites a conversation so that a model's chat template can take it.

Templates refuse, drop or move what they do not expect. ``Capabilities`` describes one template, and
``adapted`` writes a conversation for it. All templates get at most one system message in front,
then the user's first message, no two messages of one side in a row, and at the end the user or a
tool. Appending messages never changes the beginning, which the model has already read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from pipeline.engines.llm.pictures import joined
from pipeline.engines.llm.tool_calls.syntax import HERMES
from pipeline.messages import Message, Tool

CUE = Message("user", "(It is your turn to speak.)")
"""Stands in where a template needs the user: before an assistant who begins, and after one who
spoke last, since servers would continue that message or refuse it."""
OKAY = "Okay."
"""The assistant's words between a result and the user, if the template requires some."""
_CALL_ID_CHARS = 9
"""Mistral's templates refuse any other length."""
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


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a chat template can take."""

    system: bool = True
    """A system message at the front. If not, it is put before the user's first message."""
    late_system: bool = True
    """System messages in mid-conversation. If not, they become notes in the user's messages; at the
    front they would change what the model has already read."""
    tools: bool = True
    """Tools, calls and results. If not, they are described in words."""
    speech_with_calls: bool = True
    """Speech and calls in one message, in this order."""
    several_calls: bool = True
    """Several calls in one message. If not, each call gets its own message, followed by its
    result."""
    any_order: bool = True
    """The user directly after a tool. If not, both sides must alternate, apart from calls."""
    any_call_id: bool = True
    """Call ids of any length."""


STRICT = Capabilities(late_system=False, several_calls=False, any_order=False, any_call_id=False)
"""What the strictest templates with tool support can take."""
BARE = Capabilities(system=False, late_system=False, tools=False)
"""What every template can take: two sides that alternate."""


def adapted(
    messages: Sequence[Message], tools: Sequence[Tool], capabilities: Capabilities
) -> list[Message]:
    """``messages`` for a template with these capabilities. ``tools``: those that the assistant may
    call; they are described in words only if the template cannot take them."""
    front = list(takewhile(lambda message: message.role == "system", messages))
    talk: Iterable[Message] = _with_news(messages[len(front) :])
    texts = [message.content for message in front]
    if capabilities.tools:
        talk = _with_calls(talk, capabilities)
    else:
        texts += [_description(tools)] if tools else []
        talk = map(as_text, talk)
    if not capabilities.late_system:
        talk = map(_note, talk)
    turns = _in_turns(list(talk), capabilities)
    if not texts:
        return turns
    system = Message("system", "\n\n".join(texts))
    if capabilities.system:
        return [system, *turns]
    return [joined(replace(system, role="user"), turns[0], "\n\n"), *turns[1:]]


# --- turns -------------------------------------------------------------------------------------


def _with_news(talk: Sequence[Message]) -> list[Message]:
    """``talk`` with each result that came too late to follow its call as a user message."""
    names: dict[str, str] = {}
    open_ids: set[str] = set()
    messages = []
    for message in talk:
        if message.role != "tool":
            open_ids = {str(call.get("id", "")) for call in message.tool_calls}
            names |= {str(call.get("id", "")): called_name(call) for call in message.tool_calls}
        elif message.tool_call_id in open_ids:
            open_ids.remove(message.tool_call_id)
        else:
            of = names.get(message.tool_call_id, "an earlier call")
            message = Message("user", f"(The result of {of} has come in: {message.content})")
        messages.append(message)
    return messages


def _note(message: Message) -> Message:
    return Message("user", f"(System: {message.content})") if message.role == "system" else message


def _in_turns(talk: Sequence[Message], capabilities: Capabilities) -> list[Message]:
    """``talk`` such that the user begins, nobody but tools speaks twice in a row, and the user or a
    tool is last."""
    turns = _merged(talk if talk and talk[0].role == "user" else [CUE, *talk])
    if not capabilities.any_order:
        turns = _alternating(turns)
    return turns if turns[-1].role in ("user", "tool") else [*turns, CUE]


def _merged(talk: Sequence[Message]) -> list[Message]:
    turns: list[Message] = []
    for message in talk:
        last = turns[-1] if turns else None
        if (
            last
            and last.role == message.role != "tool"
            and not (last.tool_calls or message.tool_calls)
        ):
            turns[-1] = joined(last, message, "\n")
        else:
            turns.append(message)
    return turns


def _alternating(turns: Sequence[Message]) -> list[Message]:
    """``turns`` with exactly one spoken message of the assistant between two of the user's, after
    its calls."""
    result: list[Message] = []
    speech: list[str] = []
    for message in turns:
        if message.role == "assistant" and not message.tool_calls:
            speech.append(message.content)
            continue
        if message.role == "user" and result:
            result.append(Message("assistant", "\n".join(speech) or OKAY))
            speech.clear()
        result.append(message)
    return [*result, Message("assistant", "\n".join(speech))] if speech else result


# --- tools -------------------------------------------------------------------------------------


def _with_calls(talk: Iterable[Message], capabilities: Capabilities) -> list[Message]:
    """``talk`` with calls and results arranged as the template can take them."""
    result: list[Message] = []
    for message in talk:
        if message.role == "tool":
            at = len(result)
            if not capabilities.several_calls:  # after its call, before the next one
                at = _behind_call(result, message.tool_call_id)
            result.insert(at, message)
        else:
            result += _apart(message, capabilities)
    return result if capabilities.any_call_id else [_with_short_ids(one) for one in result]


def _behind_call(talk: Sequence[Message], call_id: str) -> int:
    matches = (any(call.get("id") == call_id for call in one.tool_calls) for one in reversed(talk))
    return next((len(talk) - back for back, match in enumerate(matches) if match), len(talk))


def _apart(message: Message, capabilities: Capabilities) -> list[Message]:
    """``message``, split into speech and calls where the template would lose some of them."""
    speech, calls = message.content, message.tool_calls
    if not calls:
        return [message]
    groups = [calls] if capabilities.several_calls else [(call,) for call in calls]
    if not speech or capabilities.speech_with_calls:
        first, *others = groups
        return [replace(message, tool_calls=first), *(_call(group) for group in others)]
    return [replace(message, tool_calls=()), *map(_call, groups)]


def _call(calls: Sequence[Mapping[str, Any]]) -> Message:
    return Message("assistant", "", tuple(calls))


def _with_short_ids(message: Message) -> Message:
    calls = tuple({**call, "id": _short(str(call.get("id", "")))} for call in message.tool_calls)
    call_id = _short(message.tool_call_id) if message.role == "tool" else ""
    return replace(message, tool_calls=calls, tool_call_id=call_id)


def _short(call_id: str) -> str:
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
    return digest[:_CALL_ID_CHARS]


def _description(tools: Sequence[Tool]) -> str:
    lines = "\n".join(_json(function_data(tool)["function"]) for tool in tools)
    return _TOOLS_AS_TEXT.format(lines=lines)


def as_text(message: Message) -> Message:
    """``message`` with its calls or result in the notation that ``_TOOLS_AS_TEXT`` explains."""
    if message.role == "tool":
        return Message("user", f"<tool_response>\n{message.content}\n</tool_response>")
    if not message.tool_calls:
        return message
    calls = [call_data(call)["function"] for call in message.tool_calls]
    texts = [HERMES.written(call["name"], call["arguments"]) for call in calls]
    return Message("assistant", "\n".join(filter(None, [message.content, *texts])))


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


# --- calls -------------------------------------------------------------------------------------


def call_data(call: Mapping[str, Any]) -> dict[str, Any]:
    """A call as templates expect it, with its arguments as an object whatever the client sent."""
    function = call.get("function", call)
    data = {
        "name": function.get("name", ""),
        "arguments": _arguments(function.get("arguments", {})),
    }
    return {"id": call.get("id", ""), "type": "function", "function": data}


def _arguments(arguments: Any) -> Mapping[str, Any]:
    data = arguments
    if isinstance(arguments, str):
        try:
            data = json.loads(arguments.strip() or "{}")
            json.dumps(data, allow_nan=False)
        except (ValueError, RecursionError):
            data = None
    if is_deep(data):
        return {}
    return data if isinstance(data, Mapping) else {"arguments": arguments}


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
