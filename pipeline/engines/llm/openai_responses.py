"""Language models by URL: ``POST /v1/responses``, as llama-server, vLLM, Ollama (from 0.13.3),
LM Studio (from 0.3.29) and OpenAI offer it. Nothing is stored there: each request has all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.by_url.pool import Pool
from pipeline.engines.contract import FinishReason
from pipeline.engines.llm.openai_chat import usage_of
from pipeline.engines.llm.pictures import pieces
from pipeline.engines.llm.url_conversation import UrlLlm, UrlLlmOptions
from pipeline.engines.llm.url_prompts import (
    Asked,
    Complained,
    Garbled,
    RawCall,
    arguments_text,
    decoded,
    format_fields,
    sampling_fields,
)
from pipeline.engines.registry import Kind, UrlEngineSpec
from pipeline.messages import Image, Message, Usage

LEAST_OUTPUT_TOKENS = 16
"""OpenAI refuses a smaller limit; other servers take any."""


class ResponsesOptions(UrlLlmOptions):
    engine: Literal["openai-responses"] = "openai-responses"


class ResponsesApi:
    path = "responses"

    def body(self, asked: Asked, *, stream: bool) -> dict[str, Any]:
        messages = list(asked.messages)
        body: dict[str, Any] = {"model": asked.model or None}
        if messages and messages[0].role == "system":
            body["instructions"] = messages.pop(0).content
        body |= {
            "input": [item for at, message in enumerate(messages) for item in _items(at, message)],
            "stream": stream,
            "store": False,
            **sampling_fields(asked),
            **asked.family.responses,
        }
        if asked.sampling.max_tokens is not None:
            cloud = asked.family.name == "OpenAI"
            least = LEAST_OUTPUT_TOKENS if cloud else 1
            body["max_output_tokens"] = max(least, asked.sampling.max_tokens)
        if asked.offered:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
                for tool in asked.offered
            ]
            body |= {"tool_choice": asked.tool_choice, **format_fields(asked)}
            if not asked.choice.parallel:
                body["parallel_tool_calls"] = False
        return body

    def reader(self) -> ResponsesReader:
        return ResponsesReader()

    def usage(self, answer: Any) -> Usage:
        return responses_usage(answer) or Usage()


def _items(at: int, message: Message) -> list[dict[str, Any]]:
    """A message as items; with all fields that the strictest of the servers want (vLLM: ids)."""
    if message.role == "tool":
        call_id = message.tool_call_id
        return [{"type": "function_call_output", "call_id": call_id, "output": message.content}]
    items: list[dict[str, Any]] = []
    if message.role == "assistant" and message.content:
        text = {"type": "output_text", "text": message.content, "annotations": []}
        items.append(
            {
                "type": "message",
                "id": f"msg_{at}",
                "role": "assistant",
                "status": "completed",
                "content": [text],
            }
        )
    elif message.role != "assistant":
        content = [_part(piece) for piece in pieces(message)] or [_part("")]
        items.append({"type": "message", "role": message.role, "content": content})
    for call in message.tool_calls:
        function = call["function"]
        items.append(
            {
                "type": "function_call",
                "call_id": call["id"],
                "name": function["name"],
                "arguments": arguments_text(function["arguments"]),
            }
        )
    return items


def _part(piece: str | Image) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "input_text", "text": piece}
    return {"type": "input_image", "image_url": piece.url, "detail": "auto"}


class ResponsesReader:
    """An ``AnswerReader`` of response events. Not all servers repeat an event's ``type`` as its
    name, and llama-server ends all items at the end of the stream. What ends a response lists the
    calls; where it does not, those that ended count, and else those whose pieces came."""

    def __init__(self) -> None:
        self.ended: FinishReason | None = None
        self.usage: Usage | None = None
        self._pieces: dict[Any, RawCall] = {}
        self._done: list[RawCall] = []
        self._listed: list[RawCall] = []

    @property
    def calls(self) -> Sequence[RawCall]:
        return self._listed or self._done or list(self._pieces.values())

    def feed(self, data: str) -> str:
        if data.strip() == "[DONE]":
            return ""
        event = decoded(data)
        match event.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                delta = event.get("delta")
                return delta if isinstance(delta, str) else ""
            case "response.output_item.added":
                self._begin(event)
            case "response.function_call_arguments.delta":
                self._go_on(event)
            case "response.output_item.done":
                self._done += _calls([event.get("item")])
            case "response.completed" | "response.incomplete" as kind:
                self._end(event, whole=kind == "response.completed")
            case "response.failed" | "error":
                response = event.get("response")
                raise Complained(response if isinstance(response, dict) else {"error": event})
        return ""

    def _begin(self, event: dict[str, Any]) -> None:
        item = event.get("item")
        if isinstance(item, dict) and item.get("type") == "function_call":
            call = RawCall(str(item.get("call_id") or ""), str(item.get("name") or ""))
            self._pieces[item.get("id") or event.get("output_index") or call.key] = call

    def _go_on(self, event: dict[str, Any]) -> None:
        delta = event.get("delta")
        keys = (event.get("item_id"), event.get("output_index"))
        known = next((self._pieces[key] for key in keys if key in self._pieces), None)
        call = known or next(reversed(self._pieces.values()), None)
        if call is not None and isinstance(delta, str):
            call.arguments += delta

    def _end(self, event: dict[str, Any], *, whole: bool) -> None:
        response = event.get("response")
        if not isinstance(response, dict):
            raise Garbled("the end of its answer has no response")
        self.usage = responses_usage(response)
        output = response.get("output")
        self._listed = _calls(output if isinstance(output, list) else [])
        self.ended = "stop" if whole and response.get("status") != "incomplete" else "length"


def _calls(items: list[Any]) -> list[RawCall]:
    return [
        RawCall(
            str(item.get("call_id") or ""),
            str(item.get("name") or ""),
            arguments_text(item.get("arguments") or ""),
        )
        for item in items
        if isinstance(item, dict) and item.get("type") == "function_call"
    ]


def responses_usage(answer: Any) -> Usage | None:
    """The tokens that a response tells."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return None
    details = usage.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return usage_of(usage.get("input_tokens"), cached, usage.get("output_tokens"))


def build(options: ResponsesOptions, pool: Pool) -> UrlEngine:
    engine = UrlEngine(Kind.LLM, options.engine, options, pool)
    engine.stage = UrlLlm(engine, options, ResponsesApi())
    return engine


SPEC = UrlEngineSpec(
    name="openai-responses",
    kind=Kind.LLM,
    options=ResponsesOptions,
    build=build,
    summary="a server with /v1/responses: llama-server, vLLM, Ollama, LM Studio, OpenAI",
)
