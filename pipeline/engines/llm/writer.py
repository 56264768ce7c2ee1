"""Writes one answer, token by token: free text, and calls that fit their tools' schemas."""

from __future__ import annotations

import codecs
import json
import logging
from collections.abc import Sequence
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.contract import FinishReason, TextDelta, ToolCall
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.sampler import Sampler
from pipeline.engines.llm.template_messages import call_data
from pipeline.engines.llm.tool_calls.gemma import QUOTE
from pipeline.engines.llm.tool_calls.grammar import CallGrammars
from pipeline.engines.llm.tool_calls.parser import CallParser, Part
from pipeline.errors import EngineError
from pipeline.messages import LlmRequest, Tool

log = logging.getLogger("reachy_voice.llm")

_CALL_TOKENS = 512
"""A call that has begun may exceed the answer's limit by this many tokens."""
_MOST_SAME_CALLS = 2
"""How often one call may be made, with the same arguments, before the user speaks again. Asked to
speak about its call, a small model makes it again, and clients ask after each call."""
_OTHER_TOOL_NATS = 5.0
"""How much likelier another name than those of the offered tools must be for the model to mean a
tool that it has not. It was 6 to 17 for the default's with tools that it had not learnt, 0 with
those that it has."""
_MOST_ATTEMPTS = 3
"""Attempts at a call that does not fit its schema."""
_MOST_IDLE_TOKENS = 8
"""Most tokens between two calls of a calls-only answer; a mark has up to six."""
_CLOSING_TOKENS = 128
"""With only this many tokens left, a call ends as soon as its schema allows."""


class Writer:
    """One answer.

    A call follows a grammar from its beginning; the text that its syntax requires before the
    function's name is written for the model. A call without marks follows the grammar once its name
    is known. An answer that must be a call begins with one. If no call is wanted, tokens that would
    begin one are rejected before the first word, and end the answer after it.
    """

    def __init__(
        self,
        model: Model,
        grammars: CallGrammars,
        request: LlmRequest,
        *,
        room: int,
        thought_end: str = "",
    ) -> None:
        """``thought_end`` is the mark that closes the thought in which the prompt ends."""
        self._model = model
        self._grammars = grammars
        self._syntax = grammars.syntax
        choice, sampling = request.tool_choice, request.sampling
        self._tools = choice.callable(request.tools)
        self._forced = bool(self._tools) and choice.forces
        self._most_calls = choice.most_calls
        answers = [each.content for each in request.messages if each.role == "assistant"]
        self._sampler = Sampler(model, sampling, answers)
        since = takewhile(lambda each: each.role != "user", reversed(request.messages))
        self._made = [call_data(call)["function"] for each in since for call in each.tool_calls]
        """Calls since the user spoke."""
        self._has_words = self._names_tool = False
        self._parser = CallParser(
            self._syntax,
            self._tools,
            bare=bool(self._tools or (request.tools and self._syntax.unmarked)),
            thought_end="" if self._forced else thought_end,
        )
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._closers = self._single_tokens("}", "]")
        self._quotes: list[int] = []
        self._calls_before = 0
        self._room = room
        """Tokens until the context is full."""
        self._most = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        self._stops = sampling.stops
        self._text = ""
        self._ends_with_call = self._ends_early = False
        self._calls: list[ToolCall] = []
        self._attempts = 0
        self._idle = 0
        """Tokens since the last call, in a calls-only answer."""
        self.generated = 0
        self.finish_reason: FinishReason | None = None
        """Why the answer has ended, once it has."""

    def begin(self) -> list[int]:
        """The tokens that the answer must begin with."""
        if not self._forced or self._most <= 0:
            return []
        tokens = self._begin_call()
        self.generated += len(tokens)
        return tokens

    def may_go_on(self) -> bool:
        """Whether another token may follow. If not, ``finish_reason`` says why."""
        if self.finish_reason is None and self.generated >= self._limit():
            self.finish_reason = "stop" if self._ends_with_call else "length"
        return self.finish_reason is None

    def write(self, logits: NDArray[np.float32]) -> tuple[list[int], list[Part]]:
        """The next tokens, and the parts that they add to the answer; both empty once it has
        ended."""
        token = self._choose(logits)
        if token is None or self._model.ends(token):
            self.finish_reason = "stop"
            return [], []
        text = self._decoder.decode(self._bytes(token))
        tokens, parts = self._take(token, text)
        if self.generated + len(tokens) > self._room:
            self.finish_reason = "length"
            return [], []
        parts = self._judge(parts, len(tokens))
        tokens += self._again(len(tokens))
        self.generated += len(tokens)
        return tokens, parts

    def finish(self) -> list[Part]:
        """The text and calls that were held back until the end."""
        last = self._decoder.decode(b"", final=True)
        parts = [*self._parser.feed(last), *self._parser.finish()]
        return [] if self._forced or self._at_stop or self._ends_early else parts

    @property
    def failure(self) -> EngineError | None:
        """Why a forced call failed, once the answer is over."""
        if not self._forced or self._parser.calls or self.finish_reason == "length":
            return None
        return EngineError(
            "The language model wrote no tool call that fits its schema",
            why=f"the answer had to be a call, and all {self._attempts} attempts were rejected",
            fix="Simplify the schema of the tool's parameters (the log says what is wrong with it)",
        )

    @property
    def _at_stop(self) -> bool:
        return any(stop in self._text for stop in self._stops)

    # --- choosing

    def _limit(self) -> int:
        return min(self._room, self._most + _CALL_TOKENS) if self._parser.in_call else self._most

    def _choose(self, logits: NDArray[np.float32]) -> int | None:
        if self._sampler.bound:
            hurry = self.generated >= self._limit() - _CLOSING_TOKENS
            closers = self._quotes if self._parser.in_text else [*self._closers, *self._quotes]
            token = self._sampler.sample(logits, preferred_tokens=closers if hurry else ())
            if self._names_tool and token is not None and self._has_words:
                self._ends_early = float(logits.max() - logits[token]) > _OTHER_TOOL_NATS
            self._names_tool = False
            return None if self._ends_early else token
        has_begun = self._parser.has_spoken or bool(self._calls)
        is_refused = None if self._tools or has_begun else self._begins_call
        token = self._sampler.sample(logits, is_refused=is_refused)
        self._ends_early = has_begun and token is not None and self._is_no_speech(token)
        return None if self._ends_early else token

    def _is_no_speech(self, token: int) -> bool:
        """Whether it begins another turn, or a call that is not wanted: the answer is over, and
        what other tokens would go on to say is senseless."""
        if token in self._model.control_tokens:
            return not (self._model.ends(token) or self._bytes(token))
        return not self._tools and self._begins_call(token)

    def _begins_call(self, token: int) -> bool:
        return self._parser.suspects(self._bytes(token).decode("utf-8", "replace"))

    def _bytes(self, token: int) -> bytes:
        """The text of a token; for a control token, only if the syntax of calls contains it."""
        text = self._model.piece(token)
        if text:
            return text
        mark = self._model.piece(token, special=True)
        in_syntax = mark.decode("utf-8", "replace") in self._syntax.spelled
        return mark if in_syntax else b""

    # --- taking

    def _take(self, token: int, text: str) -> tuple[list[int], list[Part]]:
        """If a call begins in ``text``, replace what follows its mark with the required syntax."""
        parser = self._parser
        if not self._tools or parser.in_call:
            return [token], parser.feed(text)
        parts = parser.feed(text, pause=True)
        if not parser.begun:
            return [token], parts
        unread = parser.drop_unread()
        if parser.named:
            name = parser.commit()
            self._bind([tool for tool in self._tools if tool.name == name], bare=True)
        else:
            self._bind(self._tools)
        parser.feed(parser.rest)
        marked = self._tokens(text.removesuffix(unread)) if unread else [token]
        return [*marked, *self._tokens(parser.rest)], parts

    def _begin_call(self) -> list[int]:
        """Begin a call now. Returns its first tokens."""
        begin = self._parser.begin()
        self._bind(self._tools)
        return self._tokens(begin)

    def _again(self, tokens: int) -> list[int]:
        """Retry a rejected call, which may fit with other random choices."""
        if not self._sampler.bound or self._parser.in_call:
            return []
        self._sampler.release()
        again = self._parser.calls == self._calls_before and self.finish_reason is None
        room = self._limit() - self.generated - tokens
        if not again or self._attempts >= _MOST_ATTEMPTS or room <= len(self._syntax.begin):
            return []
        return self._begin_call()

    def _judge(self, parts: list[Part], tokens: int) -> list[Part]:
        """Decide whether the answer has ended, and drop unwanted parts."""
        self._idle = 0 if self._sampler.bound else self._idle + tokens
        if self._forced and self._idle > _MOST_IDLE_TOKENS:
            self.finish_reason = "stop"
        result: list[Part] = []
        for part in parts:
            if isinstance(part, TextDelta) and self._forced:
                self.finish_reason = "stop"
                break
            if isinstance(part, ToolCall):
                # A repeating model does not stop by itself.
                if part in self._calls or self._is_enough(part):
                    self.finish_reason = "stop"
                    break
                self._calls.append(part)
                self._attempts = 0
                if len(self._calls) >= self._most_calls:
                    self.finish_reason = "stop"
            else:
                self._has_words = True
                self._text += part.text if self._stops else ""
                if self._at_stop:
                    self.finish_reason = "stop"
            result.append(part)
            self._ends_with_call = isinstance(part, ToolCall)
            if self.finish_reason:
                break
        return result

    def _is_enough(self, call: ToolCall) -> bool:
        """Whether the words before this call are the answer, as it has been made often enough."""
        same = {"name": call.name, "arguments": json.loads(call.arguments)}
        return self._has_words and self._made.count(same) >= _MOST_SAME_CALLS

    def _bind(self, tools: Sequence[Tool], *, bare: bool = False) -> None:
        self._attempts += 1
        self._names_tool = not (bare or self._forced)
        self._calls_before = self._parser.calls
        gemma = self._syntax.values == "gemma" and not bare
        self._quotes = self._single_tokens(QUOTE if gemma else '"')
        self._sampler.bind(self._grammars.matcher(tools, bare=bare))

    def _tokens(self, text: str) -> list[int]:
        return self._model.tokenize(text, special=True)

    def _single_tokens(self, *texts: str) -> list[int]:
        token_lists = [self._tokens(text) for text in texts]
        return [tokens[0] for tokens in token_lists if len(tokens) == 1]
