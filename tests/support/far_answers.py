"""What language models' servers answer, each kind in its own words (``far_server``)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

Answered = dict[str, Any] | list[bytes]
"""An answer at once, or the events of a stream."""


class Far(Protocol):
    """What a server is, and has to say."""

    @property
    def kind(self) -> str: ...

    @property
    def words(self) -> Sequence[str]: ...

    @property
    def thoughts(self) -> Sequence[str]: ...

    @property
    def calls(self) -> Sequence[tuple[str, str]]: ...

    @property
    def models(self) -> Sequence[str]: ...


def data(event: Any, name: str = "") -> bytes:
    """One server-sent event."""
    text = event if isinstance(event, str) else json.dumps(event)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def model(far: Far, id: str) -> dict[str, Any]:
    """One entry of ``GET /v1/models``."""
    owners = {
        "llama-server": "llamacpp",
        "ollama": "library",
        "lm-studio": "organization_owner",
    }
    model: dict[str, Any] = {
        "id": id,
        "object": "model",
        "owned_by": owners.get(far.kind, far.kind),
    }
    if far.kind == "vllm":
        model |= {"max_model_len": 5000}
    if far.kind == "llama-server":
        model |= {"meta": {"n_ctx_train": 262144}}
    return model


# --- chat completions --------------------------------------------------------------------------


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
        if far.kind == "ollama":  # whole, and all with one index
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


# --- responses ---------------------------------------------------------------------------------


def responses(far: Far, asked: Any) -> Answered:
    """``POST /v1/responses``."""
    usage = {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 12},
        "output_tokens": 7,
    }
    if not asked.get("stream"):
        return {"object": "response", "status": "completed", "usage": usage}
    events = list(_response_events(far, asked, usage))
    named = [data(event, event["type"]) for event in events]
    done = [data("[DONE]")] if far.kind in ("ollama", "lm-studio") else []
    return [*named, *done]


def _response_events(far: Far, asked: Any, usage: Any) -> Iterator[Any]:
    yield {"type": "response.created", "response": {"id": "resp_1"}}
    for thought in far.thoughts:
        yield {"type": "response.reasoning_text.delta", "item_id": "rs_1", "delta": thought}
    words = far.words[: asked.get("max_output_tokens") or None]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    for word in words:
        delta = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": word}
        yield {"type": "response.output_text.delta", **delta}
    text = [{"type": "output_text", "text": "".join(words)}]
    yield {"type": "response.output_text.done", "item_id": "msg_1", "text": text[0]["text"]}
    done: list[Any] = [{**item, "content": text}]
    for number, (name, arguments) in enumerate(far.calls):
        call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
        where = {"output_index": number + 1}
        added = {**call, "name": name, "arguments": ""}
        yield {"type": "response.output_item.added", **where, "item": added}
        for at in range(0, len(arguments), 5):
            delta = {"item_id": f"fc_{number}", "delta": arguments[at : at + 5]}
            yield {"type": "response.function_call_arguments.delta", **where, **delta}
        done.append({**call, "name": name, "arguments": arguments})
    for item in done:
        yield {"type": "response.output_item.done", "item": item}
    cut = len(words) < len(far.words)
    status = "incomplete" if cut else "completed"
    output = done if far.kind in ("openai", "vllm") else []
    response = {"status": status, "usage": usage, "output": output}
    if cut:
        response["incomplete_details"] = {"reason": "max_output_tokens"}
    yield {"type": f"response.{status}", "response": response}
