"""What a server is asked, and what of its answer counts. Sans-I/O."""

from __future__ import annotations

import codecs
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pipeline.engines.by_url.families import Family
from pipeline.engines.contract import ToolCall
from pipeline.engines.llm.pictures import FORGOTTEN_IMAGE, seen
from pipeline.engines.llm.tool_calls.parser import CallParser, Part
from pipeline.engines.llm.tool_calls.schema_check import fits
from pipeline.engines.llm.tool_calls.syntax import HERMES
from pipeline.messages import Message, Sampling, Tool, ToolChoice

log = logging.getLogger("reachy_voice.llm")

MOST_CALLS = 16
NOTHING_SAID = "."
"""Where a prompt that is read ahead ends without the user: many templates want them to be last."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question to a model."""

    model: str
    family: Family
    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)
    sampling: Sampling = field(default_factory=Sampling)
    form: Literal["free", "schema", "any arguments"] = "free"
    """What the server is to hold the model to, where the answer must be a call."""

    @property
    def forced(self) -> bool:
        """Whether the answer must be a call."""
        return bool(self.tools) and self.choice.kind in ("required", "named")

    @property
    def offered(self) -> Sequence[Tool]:
        """What the server is told of. Not all servers can be made to call a named tool; all can be
        offered that one alone."""
        if self.choice.kind == "named":
            return [tool for tool in self.tools if tool.name == self.choice.name]
        return self.tools

    @property
    def callable(self) -> Sequence[Tool]:
        """What may be called; some servers do not know ``none``."""
        return [] if self.choice.kind == "none" else self.offered

    @property
    def tool_choice(self) -> str:
        """``none`` beside a form: the model is told of the tools, and answers in that form."""
        if self.form != "free":
            return "none"
        return "required" if self.forced else self.choice.kind

    @property
    def private(self) -> Iterator[str]:
        """What people have said in it, or tools have told."""
        for message in self.messages:
            if message.role != "system":
                yield message.content
            for call in message.tool_calls:
                yield arguments_text(call["function"]["arguments"])

    def read_ahead(self, said: str) -> Asked:
        """The same prompt, to be read without an answer. ``said``: the words so far of what the
        user says next."""
        messages = list(self.messages)
        if messages and messages[-1].role == "user":
            if said:
                messages[-1] = replace(messages[-1], content=f"{messages[-1].content} {said}")
        else:
            messages.append(Message("user", said or NOTHING_SAID))
        sampling = replace(self.sampling, max_tokens=1)
        return replace(self, messages=messages, sampling=sampling)


def for_eyes(message: Message) -> Message:
    """As a model reads it that can see: with the pictures that are kept, and told of the others."""
    return seen(message, lambda image: None if image.url else FORGOTTEN_IMAGE)


def for_the_blind(message: Message) -> Message:
    """As a model reads it that cannot see: a sentence is in each picture's place."""
    return replace(message, images=()) if message.images else message


def arguments_text(arguments: Any) -> str:
    """Arguments of a call in the history as the JSON text that the API wants."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def sampling_fields(asked: Asked) -> dict[str, Any]:
    """What all servers call the same, and what this family calls otherwise."""
    sampling = asked.sampling
    names = asked.family.sampling
    fields: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if sampling.seed is not None:
        fields["seed"] = sampling.seed
    for ours in ("min_p", "repeat_penalty"):
        if ours in names:
            fields[names[ours]] = getattr(sampling, ours)
    return fields


def format_fields(asked: Asked) -> dict[str, Any]:
    """``response_format``: one call as JSON, where it is asked for by its schema."""
    if asked.form == "free":
        return {}
    tools = asked.callable
    if asked.form == "any arguments":
        tools = [replace(tool, parameters={}) for tool in tools]
    schema = {"name": "call", "schema": call_schema(tools)}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def call_schema(tools: Sequence[Tool]) -> dict[str, Any]:
    """Of one call of one of ``tools``, as an object with a name and arguments."""
    if len(tools) == 1:
        return _object(tools[0], "#")
    return {"anyOf": [_object(tool, f"#/anyOf/{i}") for i, tool in enumerate(tools)]}


def _object(tool: Tool, place: str) -> dict[str, Any]:
    """``place``: of this object in the whole schema, which references point into."""
    arguments = _moved({"type": "object", **tool.parameters}, f"{place}/properties/arguments")
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(schema: Any, place: str) -> Any:
    """With references as they are when it stands at ``place``."""
    if isinstance(schema, Mapping):
        moved = {key: _moved(value, place) for key, value in schema.items()}
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            moved["$ref"] = place + reference.removeprefix("#")
        return moved
    return [_moved(one, place) for one in schema] if isinstance(schema, list) else schema


# --- answers -----------------------------------------------------------------------------------


class Complained(Exception):
    """An error in the middle of a stream; ``body`` is what the server says."""

    def __init__(self, body: Any) -> None:
        super().__init__("the server reports an error")
        self.body = body


class Garbled(Exception):
    """What came is not what the API says."""


@dataclass(slots=True)
class RawCall:
    """A call as far as it has come."""

    key: str
    name: str = ""
    arguments: str = ""
    index: Any = None


def decoded(data: str) -> dict[str, Any]:
    """One event's JSON object. Raises ``Complained``, ``Garbled``."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise Garbled("an event of its stream is no JSON") from None
    if not isinstance(event, dict):
        raise Garbled("an event of its stream is no object")
    if event.get("error"):
        raise Complained(event)
    return event


class Parts:
    """Text and calls out of what a server streams.

    Thoughts that stand in the text are left out, and calls that a server has not taken out of the
    text are taken out here, each once. Only calls of tools that were offered, whose arguments fit,
    come out.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._tools = {tool.name: tool for tool in asked.callable}
        # Only the marks of Hermes: what others write looks different to each server's own parser.
        may_call = bool(asked.callable)
        self._parser = CallParser(HERMES, asked.callable, bare=may_call, anywhere=asked.forced)
        self._made: list[ToolCall] = []
        self._pairs = codecs.getincrementaldecoder("utf-16-le")("replace")
        """Some servers cut their text within surrogate pairs."""

    @property
    def missing(self) -> bool:
        """Whether a call had to be made, and none was."""
        return self._asked.forced and not self._made

    def text(self, text: str) -> Iterator[Part]:
        units = text.encode("utf-16-le", "surrogatepass")
        yield from self._wanted(self._parser.feed(self._pairs.decode(units)))

    def finish(self, calls: Sequence[RawCall]) -> Iterator[Part]:
        yield from self._wanted(self._parser.feed(self._pairs.decode(b"", final=True)))
        yield from self._wanted(self._parser.finish())
        yield from self._wanted(call for raw in calls if (call := self._checked(raw)))

    def _wanted(self, parts: Iterable[Part]) -> Iterator[Part]:
        for part in parts:
            if isinstance(part, ToolCall):
                one = self._asked.choice.kind == "named" or not self._asked.choice.parallel
                if part in self._made or len(self._made) >= (1 if one else MOST_CALLS):
                    continue
                self._made.append(part)
            elif self._asked.forced:
                continue  # a call is asked for, and no words
            yield part

    def _checked(self, raw: RawCall) -> ToolCall | None:
        """The call, if it can be made. A line in the log says why it cannot."""
        tool = self._tools.get(raw.name)
        if tool is None:
            log.warning("A call of a tool that was not offered is left out")
            return None
        try:
            whole = raw.arguments.encode("utf-16", "surrogatepass").decode("utf-16")
            arguments = json.loads(whole.strip() or "{}", strict=False)
            text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
            text.encode()
        except (ValueError, RecursionError):
            log.warning("A call of %s is malformed, and is left out", raw.name)
            return None
        if not isinstance(arguments, dict) or not fits(arguments, tool.parameters):
            log.warning("A call of %s whose arguments do not fit its schema is left out", raw.name)
            return None
        return ToolCall(raw.name, text)
