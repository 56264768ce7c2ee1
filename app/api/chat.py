"""``POST /v1/chat/completions``. Shapes: ``openai.types.chat``."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.access.api_errors import ApiError, parsed
from app.api.answering import RequestBody, streamed_events, whole
from app.api.turnstile import Passage, Turnstile
from pipeline.engines.contract import Finished, TextDelta, ToolCall
from pipeline.engines.stages import LlmStage
from pipeline.items import UNSEEN_IMAGE
from pipeline.messages import Image, LlmRequest, Message, Role, Sampling, Tool, ToolChoice, Usage

MOST_STOPS = 4
"""As in the API reference."""
PICTURE = re.compile(rb'"data:[^"]*')
"""Matches pictures in a body, and other texts that begin alike."""
AS_JSON = "answer"
"""Name of the tool whose arguments are the answer, if it must be JSON."""


class Function(RequestBody):
    name: str = ""
    arguments: str = ""
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)


class Call(RequestBody):
    id: str = ""
    function: Function


class OfferedTool(RequestBody):
    type: Literal["function"]
    function: Function


class MessagePart(RequestBody):
    type: Literal["text", "refusal", "image_url"]
    text: str = ""
    refusal: str = ""
    image_url: dict[str, Any] = Field(default_factory=dict, exclude=True)
    """Left out of what ``_check_size`` measures."""


class ChatMessage(RequestBody):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[MessagePart, ...] | None = None
    refusal: str | None = None
    tool_calls: tuple[Call, ...] = ()
    tool_call_id: str = ""


class JsonSchema(RequestBody):
    schema_: dict[str, Any] = Field(default_factory=dict, alias="schema")


class ResponseFormat(RequestBody):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema = JsonSchema()


class ChatRequest(RequestBody):
    messages: tuple[ChatMessage, ...] = Field(min_length=1)
    model: str = ""
    stream: bool = False
    stream_options: dict[str, Any] = Field(default_factory=dict)
    tools: tuple[OfferedTool, ...] = ()
    tool_choice: Literal["none", "auto", "required"] | OfferedTool = "auto"
    parallel_tool_calls: bool = True
    functions: tuple[Any, ...] = ()
    """The older form of ``tools``."""
    response_format: ResponseFormat = ResponseFormat()
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    stop: str | Annotated[tuple[str, ...], Field(max_length=MOST_STOPS)] | None = None
    n: Literal[1] | None = 1
    logprobs: Literal[False] | None = False

    @property
    def stops(self) -> tuple[str, ...]:
        stops = (self.stop,) if isinstance(self.stop, str) else self.stop or ()
        return tuple(filter(None, stops))


async def complete(
    request: Request,
    body: bytes,
    most_bytes: int,
    turnstile: Turnstile,
    llm: LlmStage,
    sampling: Sampling,
    model: str,
) -> Response:
    """``most_bytes``: largest request, without its pictures. ``sampling``: the settings', for what
    the request leaves out. Raises ``ApiError``, ``ReachyVoiceError``."""
    _check_size(PICTURE.sub(b"", body), most_bytes)  # first: a million small parts take seconds
    asked = parsed(ChatRequest, body)
    _check_size(asked.model_dump_json(exclude_unset=True).encode(), most_bytes)
    prompt = await asyncio.to_thread(_prompt, asked, sampling)  # a large schema takes 0.5 s
    head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": model}
    answer = Completion(as_json=asked.response_format.type != "text", stops=asked.stops)

    def pieces(passage: Passage) -> AsyncGenerator[Piece, None]:
        return answer.pieces(llm, prompt, passage)

    if asked.stream:
        usage = asked.stream_options.get("include_usage") is True
        head["object"] = "chat.completion.chunk"
        return await streamed_events(
            request, turnstile, lambda passage: _chunks(pieces(passage), answer, head, usage)
        )

    async def make(passage: Passage) -> Response:
        async for _ in pieces(passage):
            pass
        choice = {
            "index": 0,
            "message": {"role": "assistant", **answer.message()},
            "logprobs": None,
            "finish_reason": answer.reason,
        }
        shown = {**head, "object": "chat.completion", "choices": [choice]}
        return JSONResponse({**shown, "usage": _usage(answer.usage)})

    return await whole(request, turnstile, make)


# --- the request -------------------------------------------------------------------------------


def _check_size(text: bytes, most_bytes: int) -> None:
    if len(text) > most_bytes:
        why = f"Without pictures, the body may have {most_bytes} bytes (limits.http_body_kb)."
        raise ApiError(413, "request_too_large", why)


def _prompt(asked: ChatRequest, usual: Sampling) -> LlmRequest:
    functions = [each.function for each in asked.tools]
    tools = [Tool(f.name, f.description, f.parameters or {"type": "object"}) for f in functions]
    choice = _choice(asked)
    if asked.response_format.type != "text":
        if tools:
            message = "Give tools or a response_format of JSON, not both."
            raise ApiError(400, "invalid_value", message, "response_format")
        from pipeline.engines.llm.tool_calls.schema_check import why_unwritable

        schema = asked.response_format.json_schema.schema_ or {"type": "object"}
        is_object = schema.get("type") == "object"
        if why := why_unwritable(schema) if is_object else "it is not of the type object":
            message = f"No answer can be made to fit the schema: {why}"
            raise ApiError(400, "invalid_value", message, "response_format.json_schema.schema")
        tools = [Tool(AS_JSON, "Your whole answer.", schema)]
        choice = ToolChoice("named", AS_JSON, parallel=False)
    sampling = replace(
        usual,
        **asked.model_dump(include={"temperature", "top_p", "seed"}, exclude_none=True),
        max_tokens=asked.max_completion_tokens or asked.max_tokens,
        stops=() if asked.response_format.type != "text" else asked.stops,
    )
    return LlmRequest(tuple(map(_message, asked.messages)), tools, choice, sampling)


def _choice(asked: ChatRequest) -> ToolChoice:
    if asked.functions:
        raise ApiError(400, "invalid_value", "Give functions as 'tools'.", "functions")
    if asked.tool_choice == "required" and not asked.tools:
        raise ApiError(400, "invalid_value", "There are no tools to choose from.", "tool_choice")
    if isinstance(asked.tool_choice, OfferedTool):
        name = asked.tool_choice.function.name
        if name not in [each.function.name for each in asked.tools]:
            raise ApiError(400, "invalid_value", f"No tool is called {name!r}.", "tool_choice")
        return ToolChoice("named", name, asked.parallel_tool_calls)
    return ToolChoice(asked.tool_choice, parallel=asked.parallel_tool_calls)


def _message(given: ChatMessage) -> Message:
    role: Role = "system" if given.role == "developer" else given.role
    content, images = _content(given.content or given.refusal)
    calls = tuple(
        {"id": each.id, "type": "function", "function": each.function.model_dump(include=_CALLED)}
        for each in given.tool_calls
    )
    return Message(role, content, calls, given.tool_call_id, images)


_CALLED = {"name", "arguments"}


def _content(given: str | Sequence[MessagePart] | None) -> tuple[str, tuple[Image, ...]]:
    if given is None or isinstance(given, str):
        return given or "", ()
    text, images = "", []
    for part in given:
        if part.type != "image_url":
            text += part.text or part.refusal
            continue
        url = str(part.image_url.get("url", ""))
        if not url.startswith("data:"):
            message = "Only pictures as data: URLs are read; this server fetches nothing."
            raise ApiError(400, "invalid_value", message, "messages")
        images.append(Image(len(text), len(UNSEEN_IMAGE), url))
        text += UNSEEN_IMAGE
    return text, tuple(images)


# --- the answer --------------------------------------------------------------------------------


Piece = str | Mapping[str, Any]
"""Text, or a tool call in the API's form."""


@dataclass(eq=False)
class Completion:
    as_json: bool = False
    """It is the arguments of one call."""
    stops: Sequence[str] = ()
    """Texts that end it."""
    text: str = ""
    calls: list[Mapping[str, Any]] = field(default_factory=list)
    reason: str = "stop"
    usage: Usage = field(default_factory=Usage)
    _sent: int = 0

    async def pieces(
        self, llm: LlmStage, prompt: LlmRequest, passage: Passage
    ) -> AsyncGenerator[Piece, None]:
        """Yield what can be sent, as it comes. Waits while a conversation needs the model."""
        await passage.quiet()
        conversation, over = llm.open(), False
        try:
            async with aclosing(conversation.reply(prompt, passage.work)) as deltas:
                async for delta in deltas:
                    match delta:
                        case Finished(reason, usage):
                            self.usage = usage
                            self.reason = self.reason if over else reason
                        case TextDelta() | ToolCall() if over:  # the engine knows no stops
                            break
                        case ToolCall(_, text) if self.as_json:
                            self.text = text
                        case ToolCall(name, arguments):
                            self.calls.append(_call(name, arguments))
                            yield {"index": len(self.calls) - 1, **self.calls[-1]}
                        case TextDelta(text) if not self.as_json:
                            self.text += text
                    over = over or self._cut()
                    yield self._sendable(over)
                    await passage.quiet()
        finally:
            conversation.close()
        if self.calls:
            self.reason = "tool_calls"
        yield self._sendable(over=True)

    def _cut(self) -> bool:
        """End the text at the first stop in it, if any; returns whether there was one."""
        found = [at for stop in self.stops if (at := self.text.find(stop)) >= 0]
        if found:
            self.text = self.text[: min(found)]
        return bool(found)

    def _sendable(self, over: bool) -> str:
        """The text not sent yet, without an end that may begin a stop."""
        rest = 0 if over else max((len(stop) - 1 for stop in self.stops), default=0)
        end = max(self._sent, len(self.text) - rest)
        piece, self._sent = self.text[self._sent : end], end
        return piece

    def message(self) -> dict[str, Any]:
        """The fields of an assistant message that is sent in one piece."""
        calls = {"tool_calls": self.calls} if self.calls else {}
        return {"content": self.text or (None if self.calls else ""), "refusal": None, **calls}


def _call(name: str, arguments: str) -> Mapping[str, Any]:
    function = {"name": name, "arguments": arguments}
    call_id = f"call_{secrets.token_hex(12)}"
    return {"id": call_id, "type": "function", "function": function}


async def _chunks(
    pieces: AsyncGenerator[Piece, None], answer: Completion, head: Mapping[str, Any], usage: bool
) -> AsyncGenerator[Any, None]:
    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**head, "choices": [choice], **({"usage": None} if usage else {})}

    begun = False
    async with aclosing(pieces):
        async for piece in pieces:
            if not begun:
                yield chunk({"role": "assistant", "content": ""})
                begun = True
            if piece:
                is_text = isinstance(piece, str)
                yield chunk({"content": piece} if is_text else {"tool_calls": [piece]})
    yield chunk({}, answer.reason)
    if usage:
        yield {**head, "choices": [], "usage": _usage(answer.usage)}
    yield "[DONE]"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.generated,
        "total_tokens": usage.prompt + usage.generated,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }
