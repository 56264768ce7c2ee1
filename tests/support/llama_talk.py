"""Talking to a llama.cpp engine in tests: questions with certain answers, and wished ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.engines.contract import (
    Delta,
    EndOfTurn,
    Finished,
    LlmSession,
    TextDelta,
    ToolCall,
    Warmed,
)
from pipeline.engines.llm.llama_cpp import LlamaCpp
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.sampler import Sampler
from pipeline.engines.llm.tool_calls.schema_check import fits
from pipeline.messages import LlmRequest, Message, Sampling, Tool, ToolChoice, Usage
from tests.support.deltas import text_of
from tests.support.recordings import Token
from tests.support.robot_tools import robot_tools

if TYPE_CHECKING:
    from llguidance import LLMatcher

MODEL = "smollm2-135m-instruct"
SYSTEM = Message("system", "You are a helpful robot. Answer in one short sentence.")


def asks(statement: str, question: str, times: int = 8) -> list[Message]:
    """A question whose answer has been said so often that rounding cannot change it.

    Cell positions change the order of additions, which shifts the logits of quantized weights by up
    to 0.8; here the best token leads by 1.4 or more.
    """
    return [SYSTEM, Message("user", f"{statement} " * times + question)]


FRANCE = asks("The capital of France is Paris.", "What is the capital of France?")
SPAIN = asks("The capital of Spain is Madrid.", "What is the capital of Spain?")
LEFT = [SYSTEM, Message("user", "Please look to the left.")]
LONG = asks("The capital of Spain is Madrid.", "What is the capital of Spain?", 32)
GREEDY = Sampling(temperature=0, repeat_penalty=1, max_tokens=6)
AUTO = ToolChoice()
SHORT_TOOLS = robot_tools()[:3]


def replies(
    session: LlmSession,
    messages: Sequence[Message],
    *,
    tools: Sequence[Tool] = (),
    tool_choice: ToolChoice = AUTO,
    sampling: Sampling = GREEDY,
    cancel: Token | None = None,
) -> Iterator[Delta | None]:
    request = LlmRequest(messages, tools, tool_choice, sampling)
    return session.reply(request, cancel or Token())


def answer(session: LlmSession, messages: Sequence[Message], **how: Any) -> tuple[str, Finished]:
    """The whole text and the end event."""
    return joined(list(replies(session, messages, **how)))


def told(steps: Iterable[Delta | None]) -> list[Delta]:
    """Everything in the answer, with its end."""
    return [item for item in steps if item and not isinstance(item, EndOfTurn)]


def begin(steps: Iterator[Delta | None]) -> None:
    """Run until the first words."""
    next(item for item in steps if isinstance(item, TextDelta))


def joined(items: Sequence[Delta | None]) -> tuple[str, Finished]:
    *others, end = told(items)
    assert isinstance(end, Finished)
    return text_of(others), end


def check(call: object, tools: Sequence[Tool] = SHORT_TOOLS) -> None:
    """Check that it calls one of the tools with fitting arguments."""
    assert isinstance(call, ToolCall)
    (tool,) = (tool for tool in tools if tool.name == call.name)
    assert fits(json.loads(call.arguments), tool.parameters)


def random_text(model: Model, grammar: LLMatcher, quotes: Sequence[str], seed: int) -> str:
    """Random text that ``grammar`` allows, soon steered to an end. ``quotes``: what ends a text."""
    ends = [t for text in (*quotes, "}", "]", ",") for t in model.tokenize(text, special=False)]
    sampler = Sampler(model, Sampling(seed=seed, temperature=1))
    sampler.bind(grammar)
    chance, data = np.random.default_rng(seed), b""
    for step in range(400):
        logits = chance.normal(size=model.vocab_tokens).astype(np.float32)
        logits[ends] += 7
        token = sampler.sample(logits, preferred_tokens=ends if step > 60 else ())
        assert token is not None
        if model.ends(token):
            break
        data += model.piece(token) or model.piece(token, special=True)
    return data.decode()


def nudge(patch: pytest.MonkeyPatch, model: Model, *wishes: str) -> None:
    """Make the model say ``wishes`` and then end, wherever no grammar is set."""
    tokens = [token for wish in wishes for token in model.tokenize(wish, special=True)]
    push(patch, (*tokens, model.eos), under_grammar=False)


def push(patch: pytest.MonkeyPatch, tokens: Sequence[int], *, under_grammar: bool = True) -> None:
    """Make the model prefer these tokens, one after the other, and then always the last."""
    left = iter(tokens)
    sample = Sampler.sample

    def pushed(self: Sampler, logits: NDArray[np.float32], **how: Any) -> int | None:
        if under_grammar or not self.bound:
            logits = logits.copy()
            logits[next(left, tokens[-1])] += 1_000
        return sample(self, logits, **how)

    patch.setattr(Sampler, "sample", pushed)


def warm(
    session: LlmSession,
    messages: Sequence[Message],
    tools: Sequence[Tool] = (),
    *,
    said: str = "",
    cancel: Token | None = None,
) -> Usage:
    return warmed(session, messages, tools, said=said, cancel=cancel).usage


def warmed(
    session: LlmSession,
    messages: Sequence[Message],
    tools: Sequence[Tool] = (),
    *,
    said: str = "",
    cancel: Token | None = None,
) -> Warmed:
    """The warm-up's result."""
    request = LlmRequest(messages, tools, unfinished=said)
    items = list(session.warm(request, cancel or Token()))
    result = items[-1]
    assert result is not None
    assert items[:-1] == [None] * (len(items) - 1)
    return result


def forget(engine: LlamaCpp) -> None:
    """As if all sessions were closed, and all cells empty."""
    cache = engine._parts.cache
    for sequence in cache._all:
        cache.disown(sequence.owner)
    while cache.evict():
        pass
