"""Answers of language model servers, in the dialect of each kind (for ``far_server``)."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from pipeline.engines.llm.jinja_dialect import compile_template

if TYPE_CHECKING:
    from tests.support.far_server import FarServer as Far

Answered = dict[str, Any] | list[bytes]
"""A whole answer, or the events of a stream."""


def data(event: Any, name: str = "") -> bytes:
    """One server-sent event."""
    text = event if isinstance(event, str) else json.dumps(event)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def model(far: Far, id: str) -> dict[str, Any]:
    """One entry of ``GET /v1/models``."""
    owners = {
        "llama-server": "llamacpp",
        "llama-router": "llamacpp",
        "ollama": "library",
        "lm-studio": "organization_owner",
    }
    model: dict[str, Any] = {
        "id": id,
        "object": "model",
        "owned_by": owners.get(far.kind, far.kind),
    }
    if far.kind == "llama-router":
        model |= {"status": {"value": "loaded" if id in far.loaded else "unloaded"}}
    if far.kind == "vllm":
        model |= {"max_model_len": 5000}
    if far.kind == "llama-server":
        model |= {"meta": {"n_ctx_train": 262144}}
    return model


# --- chat completions --------------------------------------------------------------------------


def refusal(template: str, body: Any) -> str:
    """Why a chat template refuses a request; empty if it does not."""
    messages = copy.deepcopy(body["messages"])
    for call in (call for message in messages for call in message.get("tool_calls", ())):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    try:
        compile_template(template)(messages=messages, tools=body.get("tools"))
    except TemplateError as problem:
        return f"Jinja Exception: {problem}"
    return ""


def has_open_calls(messages: Sequence[Any]) -> bool:
    """Whether some call or output lacks its counterpart: OpenAI and vLLM refuse such a prompt."""
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return True
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return True
        else:
            waiting = {call["id"] for call in message.get("tool_calls", ())}
    return bool(waiting)


def chat(far: Far, asked: Any) -> Answered:
    """``POST /v1/chat/completions``."""
    usage: dict[str, Any] = {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}
    if far.kind != "ollama":
        usage |= {"prompt_tokens_details": {"cached_tokens": 12}}
    if not asked.get("stream"):
        message = {"role": "assistant", "content": "H"}
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        return {"object": "chat.completion", "choices": [choice], "usage": usage}
    events = [*_chat_deltas(far, asked), *_chat_end(far, asked, usage), "[DONE]"]
    return [data(event) for event in events]


def _chunk(far: Far, delta: Any, reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    if far.kind == "vllm":
        choice |= {"logprobs": None}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": far.models[0],
        "choices": [choice],
    }


def _chat_deltas(far: Far, asked: Any) -> Iterator[Any]:
    assistant = {"role": "assistant"}
    each = assistant if far.kind == "ollama" else {}
    if far.kind != "ollama":
        yield _chunk(far, {**assistant, "content": "" if far.kind == "vllm" else None})
    thinking = "reasoning" if far.kind in ("vllm", "ollama") else "reasoning_content"
    for thought in far.thoughts:
        # Ollama sends an empty content beside it.
        yield _chunk(far, {**each, thinking: thought} | ({"content": ""} if each else {}))
    for word in far.words[: asked.get("max_tokens") or None]:
        yield _chunk(far, {**each, "content": word})
    yield from (_chunk(far, delta) for delta in _call_deltas(far, each))


def _call_deltas(far: Far, each: Any) -> Iterator[Any]:
    for number, (name, arguments) in enumerate(far.calls):
        function: dict[str, Any] = {"name": name, "arguments": ""}
        call = {"index": number, "id": f"call_{number}", "type": "function"}
        if far.kind == "ollama":  # each call whole, all with one index
            whole = {**call, "index": 0, "function": {"name": name, "arguments": arguments}}
            yield {**each, "content": "", "tool_calls": [whole]}
            continue
        yield {"tool_calls": [{**call, "function": function}]}
        for at in range(0, len(arguments), 5):
            piece = {"arguments": arguments[at : at + 5]}
            yield {"tool_calls": [{"index": number, "function": piece}]}


def _chat_end(far: Far, asked: Any, usage: Any) -> Iterator[Any]:
    cut = (asked.get("max_tokens") or len(far.words)) < len(far.words)
    yield _chunk(far, {}, "length" if cut else "tool_calls" if far.calls else "stop")
    if (asked.get("stream_options") or {}).get("include_usage"):
        last = {**_chunk(far, {}), "choices": [], "usage": usage}
        if far.kind == "llama-server":
            last |= {"timings": {"cache_n": 12, "prompt_n": 8}}
        yield last
