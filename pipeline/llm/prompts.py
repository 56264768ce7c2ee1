"""From messages and tools to prompt tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from pipeline.engines import Message, Tool
from pipeline.errors import PromptTooLong
from pipeline.llm.chat_template import CHATML, ChatTemplate, Piece
from pipeline.llm.kv_cache import common_prefix
from pipeline.llm.llama_model import Model
from pipeline.llm.tool_calls.grammar import CallGrammars

_LONG_CHARS = 32_768
_REMEMBERED_PREFIXES = 16
_PROBES = ("Hello", "0, 1, 2")
"""Two user messages whose first tokens differ, so what their prompts share is no user's."""


class Prompts:
    """Writes one model's prompts. ``arguments``: further variables for the chat template.
    ``most_tokens``: of a prompt that is worth the time to read it to its end.
    """

    def __init__(
        self, model: Model, arguments: Mapping[str, Any], most_tokens: int | None = None
    ) -> None:
        self._model = model
        self._most_tokens = most_tokens
        self._template = self._read(model.chat_template() or CHATML, arguments)
        with_tools = model.chat_template("tool_use")
        self._tool_template = self._read(with_tools, arguments) if with_tools else self._template
        self.calls = CallGrammars(self._tool_template.syntax)
        self.in_thoughts = self._template.ends_in_thoughts
        """Whether prompts end inside of a thought."""
        self._prefixes: OrderedDict[tuple[Any, ...], list[int]] = OrderedDict()

    def whole(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        """Everything, up to where the assistant begins to speak. Raises ``PromptTooLong`` if that
        is seen from afar, else it is for the caller to see."""
        tokens: list[int] = []
        calls = any(message.tool_calls or message.role == "tool" for message in messages)
        template = self._tool_template if tools or calls else self._template
        for piece in template.render(messages, tools):
            self._look_at(piece, len(tokens))
            tokens += self._model.tokenize(piece.text, special=not piece.plain)
            if self._most_tokens and len(tokens) > self._most_tokens:
                raise PromptTooLong(len(tokens), self._most_tokens)
        if self._model.starts_with_bos and tokens[:1] != [self._model.bos]:
            tokens.insert(0, self._model.bos)
        return tokens

    def prefix(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        """The part before anybody has said anything: instructions and tools."""
        system = tuple(takewhile(lambda message: message.role == "system", messages))
        key = (tuple(m.content for m in system), tuple(map(repr, tools)))
        if key not in self._prefixes:
            some, others = (self.whole([*system, Message("user", t)], tools) for t in _PROBES)
            self._prefixes[key] = some[: common_prefix(some, others)]
            if len(self._prefixes) > _REMEMBERED_PREFIXES:
                self._prefixes.popitem(last=False)
        self._prefixes.move_to_end(key)
        return self._prefixes[key]

    def _look_at(self, piece: Piece, before: int) -> None:
        """Read a long text in blocks first, and no further than it may go."""
        text, limit = piece.text, self._most_tokens
        if limit is None or len(text) <= _LONG_CHARS:
            return
        for start in range(0, len(text), _LONG_CHARS):
            block = text[start : start + _LONG_CHARS]
            before += len(self._model.tokenize(block, special=not piece.plain))
            # A border makes a few tokens of one.
            if before - 8 * (start // _LONG_CHARS) > limit:
                raise PromptTooLong(before, limit)

    def _read(self, source: str, arguments: Mapping[str, Any]) -> ChatTemplate:
        model = self._model
        return ChatTemplate(
            source,
            bos=model.text(model.bos),
            eos=model.text(model.eos),
            control_texts=list(model.control_tokens.values()),
            arguments=arguments,
        )
