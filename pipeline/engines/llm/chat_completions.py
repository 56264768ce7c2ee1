"""The body and the stream of ``POST /v1/chat/completions``, as used by llama-server, vLLM,
Ollama, LM Studio, SGLang and OpenAI. Sans-I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.engines.contract import FinishReason
from pipeline.engines.llm.pictures import pieces
from pipeline.engines.llm.template_messages import adapted, call_data, function_data
from pipeline.engines.llm.url_prompts import (
    MalformedAnswer,
    RawCall,
    StreamError,
    UrlRequest,
    arguments_text,
    decoded,
    format_fields,
    sampling_fields,
)
from pipeline.messages import Image, Message, Usage

PATH = "chat/completions"


def body_of(request: UrlRequest, *, stream: bool) -> dict[str, Any]:
    messages = adapted(request.messages, request.offered, request.capabilities)
    body: dict[str, Any] = {
        "model": request.model or None,
        "messages": [_message(message) for message in messages],
        "stream": stream,
        **sampling_fields(request),
        **request.family.chat,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    if request.sampling.max_tokens is not None:
        body[request.family.most] = request.sampling.max_tokens
    if request.offered:
        body |= format_fields(request)
    if request.offered and request.capabilities.tools:
        body["tool_choice"] = request.tool_choice
        body["tools"] = [function_data(tool) for tool in request.offered]
        if not request.choice.parallel:
            body["parallel_tool_calls"] = False
    return body


def _message(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.images:
        plain["content"] = [_part(piece) for piece in pieces(message)]
    if message.role == "tool":
        plain["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        plain["tool_calls"] = [_call(call) for call in message.tool_calls]
    return plain


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    data = call_data(call)
    function = data["function"]
    return {**data, "function": {**function, "arguments": arguments_text(function["arguments"])}}


def _part(piece: str | Image) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    return {"type": "image_url", "image_url": {"url": piece.url}}


class ChatReader:
    """Parses a stream of ``chat.completion.chunk`` objects.

    Pieces of a call share an ``index``. Older versions of Ollama send no index, or the same one for
    all calls, so a new ``id`` with a name also starts a call (older versions of vLLM send a new id
    with each piece); Gemini sends no id either, but whole calls.
    ``reasoning_content`` (llama-server, LM Studio, SGLang) and ``reasoning`` (vLLM, Ollama) are
    thoughts.
    """

    def __init__(self) -> None:
        self.finish_reason: FinishReason | None = None
        self.usage: Usage | None = None
        self._thoughts, self.content = "", ""
        self.calls: list[RawCall] = []
        """All calls, once ``finish_reason`` is set."""

    def feed(self, data: str) -> str:
        """The text in an event, without thoughts. Raises ``StreamError``, ``MalformedAnswer``."""
        if not data.strip():
            return ""  # a keep-alive
        if data.strip() == "[DONE]":
            self.finish_reason = self.finish_reason or "stop"  # some servers send no reason
            return ""
        chunk = decoded(data)
        self.usage = usage_of(chunk) or self.usage
        choices = chunk.get("choices")
        if not choices:
            return ""
        if not isinstance(choices, list) or not isinstance(choices[0], dict):
            raise MalformedAnswer("a chunk of its answer has no choice")
        choice = choices[0]
        delta = choice.get("delta" if choice.get("delta") is not None else "message") or {}
        if not isinstance(delta, dict):
            raise MalformedAnswer("a chunk of its answer has no delta")
        self._thoughts += _text(delta.get("reasoning_content") or delta.get("reasoning"))
        for piece in delta.get("tool_calls") or ():
            self._take(piece)
        reason = choice.get("finish_reason")
        if reason in ("error", "abort"):
            raise StreamError({"error": f"its finish_reason is {reason!r}"})
        if reason and reason != "null":
            self.finish_reason = "length" if reason == "length" else "stop"
        content = _text(delta.get("content") or delta.get("refusal"))
        self.content += content
        return content

    @property
    def misplaced(self) -> str:
        """The answer of a model that does not think, if all of it came as a thought: some parsers
        of vLLM expect one."""
        ended = self.finish_reason == "stop" and not (self.calls or self.content)
        return self._thoughts if ended else ""

    def _take(self, piece: Any) -> None:
        function = (piece.get("function") or {}) if isinstance(piece, dict) else None
        if not isinstance(function, dict):
            raise MalformedAnswer("a call of its answer has no function")
        key, index = piece.get("id") or "", piece.get("index")
        name, arguments = function.get("name"), function.get("arguments")
        call = self._of(index, str(key), named=bool(name))
        if isinstance(name, str) and not call.name:
            call.name = name
        if arguments is not None:
            call.arguments += arguments_text(arguments)

    def _of(self, index: Any, key: str, *, named: bool) -> RawCall:
        """The newest call that a piece may belong to, or a new one."""
        for call in reversed(self.calls):
            if named and not key and call.whole:
                break
            if call.index == index and (not (key and call.key and named) or key == call.key):
                return call
        self.calls.append(RawCall(key, index=index))
        return self.calls[-1]


def _text(content: Any) -> str:
    """The words in ``content``, which may be a list of parts (Mistral), thoughts among them."""
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def usage_of(answer: Any) -> Usage | None:
    """The token counts in a chunk or an answer. ``timings``: llama-server's own figures, for builds
    that report cached tokens only there."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return None
    details, timings = usage.get("prompt_tokens_details"), answer.get("timings")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if not cached and isinstance(timings, dict):
        cached = timings.get("cache_n")
    counts = (usage.get("prompt_tokens"), cached, usage.get("completion_tokens"))
    prompt, hits, generated = (n if isinstance(n, int) and n > 0 else 0 for n in counts)
    hits = min(hits, prompt)
    return Usage(prompt, hits, prompt - hits, generated)
