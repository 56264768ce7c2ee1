"""Builds a server's prompt and filters its answer. Sans-I/O."""

from __future__ import annotations

import codecs
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pipeline.engines.by_url.failures import first_of
from pipeline.engines.by_url.families import Family
from pipeline.engines.by_url.sse import EventReader
from pipeline.engines.contract import ToolCall
from pipeline.engines.llm.pictures import FORGOTTEN_IMAGE, in_words
from pipeline.engines.llm.template_messages import Capabilities
from pipeline.engines.llm.tool_calls.parser import CallParser, Part
from pipeline.engines.llm.tool_calls.schema_check import fitted
from pipeline.engines.llm.tool_calls.syntax import HERMES
from pipeline.messages import Message, Sampling, Tool, ToolChoice

log = logging.getLogger("reachy_voice.llm")

NOTHING_SAID = "."
"""Stands for the user's message while there is none: many templates want the user to be last."""


@dataclass(frozen=True, slots=True)
class UrlRequest:
    model: str
    family: Family
    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)
    sampling: Sampling = field(default_factory=Sampling)
    form: Literal["free", "schema", "any arguments"] = "free"
    """How the server constrains an answer that must be a call."""
    capabilities: Capabilities = field(default_factory=Capabilities)
    """What the template of the server's model can take."""

    @property
    def forced(self) -> bool:
        """Whether the answer must be a call."""
        return bool(self.tools) and self.choice.forces

    @property
    def offered(self) -> Sequence[Tool]:
        """The tools in the request. Not all servers can force a named tool, so it is offered
        alone."""
        return self.choice.offered(self.tools)

    @property
    def callable(self) -> Sequence[Tool]:
        """The tools that may be called; some servers ignore ``none``."""
        return self.choice.callable(self.tools)

    @property
    def tool_choice(self) -> str:
        """``none`` if a form is set: the model sees the tools and answers in that form."""
        if self.form != "free":
            return "none"
        return "required" if self.forced else self.choice.kind

    @property
    def private(self) -> Iterator[str]:
        """What people said in this conversation, and what tools returned."""
        for message in self.messages:
            if message.role != "system":
                yield message.content
            for call in message.tool_calls:
                yield arguments_text(call["function"]["arguments"])

    @property
    def fixed(self) -> str:
        """Instructions and tools."""
        tools = (json.dumps([tool.description, tool.parameters]) for tool in self.tools)
        front = (each.content for each in self.messages[:1] if each.role == "system")
        return "\n".join((*front, *tools))

    @property
    def talk(self) -> str:
        """Everything else that the model reads."""
        talk = [each for at, each in enumerate(self.messages) if at or each.role != "system"]
        calls = (json.dumps(call, ensure_ascii=False) for each in talk for call in each.tool_calls)
        return "\n".join((*(each.content for each in talk), *calls))

    def read_ahead(self, words: str) -> UrlRequest:
        """The same prompt, to be read but not answered. ``words``: the user's next words so far."""
        messages = list(self.messages)
        if messages and messages[-1].role == "user":
            if words:
                messages[-1] = replace(messages[-1], content=f"{messages[-1].content} {words}")
        else:
            messages.append(Message("user", words or NOTHING_SAID))
        sampling = replace(self.sampling, max_tokens=1)
        return replace(self, messages=messages, sampling=sampling)


def for_eyes(message: Message) -> Message:
    """``message`` for a model with vision: pictures that were kept, and a note for the others."""
    return in_words(message, lambda image: None if image.url else FORGOTTEN_IMAGE)


def for_the_blind(message: Message) -> Message:
    """``message`` for a model without vision: a sentence in place of each picture."""
    return replace(message, images=()) if message.images else message


def arguments_text(arguments: Any) -> str:
    """The arguments of a call in the history as JSON text, which the API expects."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def sampling_fields(request: UrlRequest) -> dict[str, Any]:
    """Sampling fields: those that all servers share, and those named by the family."""
    sampling = request.sampling
    names = request.family.sampling
    fields: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if sampling.seed is not None:
        fields["seed"] = sampling.seed
    if sampling.stops:
        fields["stop"] = list(sampling.stops)
    for ours in ("min_p", "repeat_penalty"):
        if ours in names:
            fields[names[ours]] = getattr(sampling, ours)
    return fields


def format_fields(request: UrlRequest) -> dict[str, Any]:
    """``response_format`` for one call as JSON; empty if the answer is free."""
    if request.form == "free":
        return {}
    tools = request.callable
    if request.form == "any arguments":
        tools = [replace(tool, parameters={}) for tool in tools]
    schema = {"name": "call", "schema": call_schema(tools)}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def call_schema(tools: Sequence[Tool]) -> dict[str, Any]:
    """The schema of a call of one of ``tools``: an object with a name and arguments."""
    if len(tools) == 1:
        return _object(tools[0], "#")
    return {"anyOf": [_object(tool, f"#/anyOf/{i}") for i, tool in enumerate(tools)]}


def _object(tool: Tool, place: str) -> dict[str, Any]:
    """``place``: path of this object in the whole schema, for references."""
    arguments = _moved({"type": "object", **tool.parameters}, f"{place}/properties/arguments")
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(schema: Any, place: str) -> Any:
    """``schema`` with its references adjusted for ``place``."""
    if isinstance(schema, Mapping):
        result = {key: _moved(value, place) for key, value in schema.items()}
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            result["$ref"] = place + reference.removeprefix("#")
        return result
    return [_moved(one, place) for one in schema] if isinstance(schema, list) else schema


# --- answers -----------------------------------------------------------------------------------


class StreamError(Exception):
    """An error in the middle of a stream; ``body`` is the server's report."""

    def __init__(self, body: Any) -> None:
        super().__init__("the server reports an error")
        self.body = body


class MalformedAnswer(Exception):
    """The answer does not follow the API."""


@dataclass(slots=True)
class RawCall:
    """A call, perhaps incomplete."""

    key: str
    name: str = ""
    arguments: str = ""
    index: Any = None

    @property
    def whole(self) -> bool:
        """Whether nothing of it is missing."""
        try:
            return isinstance(json.loads(self.arguments), dict)
        except (ValueError, RecursionError):
            return False


def decoded(data: str) -> dict[str, Any]:
    """One event's JSON object. Raises ``StreamError``, ``MalformedAnswer``."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedAnswer("an event of its stream is not JSON") from None
    if not isinstance(event, dict):
        raise MalformedAnswer("an event of its stream is not an object")
    if event.get("error") or event.get("object") == "error":
        raise StreamError(event)
    return event


def error_in(begin: bytes) -> dict[str, Any] | None:
    """The error at the beginning of an answer with status 200: in the body (some proxies) or in an
    event (LM Studio, which sends the status before it tries its template)."""
    reader = EventReader()
    events = [*reader.feed(begin), *reader.finish()]
    try:
        answer = first_of(json.loads(events[0] if events else begin))
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) and answer.get("error") else None


class ReplyParser:
    """Extracts text and calls from a server's stream.

    Thoughts are left out of the text. Calls that the server left in the text are extracted, each
    once. Only calls of offered tools whose arguments fit are kept. ``thought_end``: as in
    ``CallParser``.
    """

    def __init__(self, request: UrlRequest, thought_end: str = "") -> None:
        self._request = request
        self._tools = {tool.name: tool for tool in request.callable}
        # Of the families' own marks only those of Hermes: Gemma's are left to the server's parser.
        may_call = bool(request.callable)
        self._parser = CallParser(
            HERMES,
            request.callable,
            bare=may_call,
            thought_end=thought_end,
        )
        self._calls: list[ToolCall] = []
        self._pairs = codecs.getincrementaldecoder("utf-16-le")("replace")
        """Some servers cut their text within surrogate pairs."""

    @property
    def missing(self) -> bool:
        """Whether the answer had to be a call but is not."""
        return self._request.forced and not self._calls

    @property
    def closed_thought(self) -> str:
        return self._parser.closed_thought

    def text(self, text: str) -> Iterator[Part]:
        units = text.encode("utf-16-le", "surrogatepass")
        yield from self._select(self._parser.feed(self._pairs.decode(units)))

    def finish(self, calls: Sequence[RawCall]) -> Iterator[Part]:
        yield from self._select(self._parser.feed(self._pairs.decode(b"", final=True)))
        yield from self._select(self._parser.finish())
        yield from self._select(call for raw in calls if (call := self._check(raw)))

    def _select(self, parts: Iterable[Part]) -> Iterator[Part]:
        for part in parts:
            if isinstance(part, ToolCall):
                if part in self._calls or len(self._calls) >= self._request.choice.most_calls:
                    continue
                self._calls.append(part)
            elif self._request.forced:
                continue  # only calls are wanted
            yield part

    def _check(self, raw: RawCall) -> ToolCall | None:
        """The call if it is valid; otherwise log why not and return ``None``."""
        bare_name = raw.name.removeprefix("functions.")  # the namespace of gpt-oss's prompts
        tool = self._tools.get(raw.name) or self._tools.get(bare_name)
        if tool is None:
            log.warning("Ignoring a call of a tool that was not offered")
            return None
        try:
            whole = raw.arguments.encode("utf-16", "surrogatepass").decode("utf-16")
            arguments = json.loads(whole.strip() or "{}", strict=False) or {}
            if isinstance(arguments, str):  # encoded twice
                arguments = json.loads(arguments, strict=False)
            meant = fitted(arguments, tool.parameters) if isinstance(arguments, dict) else None
            text = json.dumps(meant, ensure_ascii=False, allow_nan=False)
            text.encode()
        except (ValueError, RecursionError):
            log.warning("Ignoring a malformed call of %s", raw.name)
            return None
        if meant is None:
            log.warning("Ignoring a call of %s whose arguments do not fit its schema", raw.name)
            return None
        return ToolCall(tool.name, text)
