"""Answers with endless calls, and calls that fail, on a real model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.engines.llm.llama_cpp import LlamaCppOptions, build
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.prompts import Prompts
from pipeline.engines.llm.tool_calls.grammar import CallGrammars
from pipeline.engines.llm.tool_calls.parser import Part
from pipeline.engines.llm.tool_calls.syntax import HERMES
from pipeline.engines.llm.writer import Writer
from pipeline.errors import EngineError, PromptTooLong
from pipeline.messages import LlmRequest, Message, Sampling, Tool, ToolChoice
from tests.support.deltas import calls_of, text_of
from tests.support.llama_talk import MODEL, told
from tests.support.recordings import Token

pytestmark = [pytest.mark.engines, pytest.mark.real]

REQUIRED = ToolChoice("required")
CALL = 'act", "arguments": {}}\n</tool_call>'
ACT = Tool("act", "", {})
ODD = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "not": {}}
"""Nothing fits it, which shows only when the call is complete."""


def written(
    model: Model,
    *wishes: str,
    choice: ToolChoice = REQUIRED,
    tool: Tool = ACT,
    steps: int = 400,
) -> tuple[list[Part], Writer]:
    """The parts written when the model prefers ``wishes`` token by token, as far as it is
    allowed."""
    writer = Writer(
        model,
        CallGrammars(model, HERMES),
        LlmRequest((), [tool], choice, Sampling(seed=1, max_tokens=steps)),
        room=2_000,
    )
    writer.begin()
    wanted = iter([token for wish in wishes for token in model.tokenize(wish, special=True)])
    chance, parts = np.random.default_rng(0), list[Part]()
    while writer.may_go_on() and steps:
        logits = chance.normal(size=model.vocab_tokens).astype(np.float32)
        logits[next(wanted, model.eos)] += 1_000
        parts += writer.write(logits)[1]
        steps -= 1
    return [*parts, *writer.finish()], writer


@pytest.mark.parametrize(
    ("words", "name", "called"), [("Well.\n", "sing", 0), ("Well.\n", "act", 1), ("", "sing", 1)]
)
def test_no_other_tool_stands_in_for_one_that_is_not_there(
    model: Model, words: str, name: str, called: int
) -> None:
    parts, _ = written(model, f"{words}<tool_call>", name, choice=ToolChoice(parallel=False))
    assert len(calls_of(parts)) == called
    assert text_of(parts).startswith(words.strip())


def test_control_tokens_are_not_text_of_a_call(model: Model) -> None:
    text = {"type": "string", "minLength": 12, "maxLength": 20}
    schema = {"type": "object", "properties": {"a": text}, "required": ["a"]}
    wish = 'act", "arguments": {"a": "<|im_start|>"}}\n</tool_call>'
    parts, writer = written(model, wish, tool=Tool("act", "", schema))
    assert len(calls_of(parts)) == 1
    assert writer.finish_reason == "stop"


@pytest.mark.parametrize("rest", ["\n" * 150, "<think>\n" + "hm " * 90])
def test_a_required_call_ends_the_answer(model: Model, rest: str) -> None:
    parts, writer = written(model, CALL, rest)
    assert len(calls_of(parts)) == 1
    assert (writer.finish_reason, writer.failure) == ("stop", None)
    assert writer.generated < 50


def test_the_number_of_calls_is_limited(model: Model) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    calls = [f'act", "arguments": {{"n": {n}}}}}\n</tool_call>' for n in range(30)]
    wishes = [wish for call in calls for wish in ("<tool_call>", call)]
    tool = Tool("act", "", schema)
    parts, writer = written(model, *wishes, choice=ToolChoice(), tool=tool, steps=800)
    assert len(calls_of(parts)) == 16
    assert writer.finish_reason == "stop"


def test_a_required_call_that_never_fits_is_a_failure(model: Model) -> None:
    parts, writer = written(model, tool=Tool("act", "", ODD))
    assert not parts
    assert writer.finish_reason == "stop"
    assert "no tool call that fits" in str(writer.failure)


def test_a_call_that_does_not_fit_is_written_again(model: Model) -> None:
    items = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "uniqueItems": True}
    schema = {"type": "object", "properties": {"a": items}, "required": ["a"]}
    end = "}\n</tool_call>"
    wishes = [f'act", "arguments": {{"a": [1, {n}]}}{end}' for n in (1, 2)]
    for choice, begin in ((REQUIRED, ""), (ToolChoice(), "Well. <tool_call>")):
        parts, writer = written(model, begin, *wishes, choice=choice, tool=Tool("act", "", schema))
        assert [call.arguments for call in calls_of(parts)] == ['{"a": [1, 2]}']
        assert text_of(parts) == ("Well." if begin else "")
        assert writer.failure is None


def test_a_failure_is_an_error_of_the_reply(weights: Callable[[str], Path]) -> None:
    engine = build(LlamaCppOptions(threads=1, context_tokens=1024), weights(MODEL))
    session = engine.open()

    def reply(choice: ToolChoice, parameters: Any, most: int) -> list[Any]:
        sampling = Sampling(seed=1, max_tokens=most)
        tools = [Tool("act", "", parameters)]
        request = LlmRequest([Message("user", "Act!")], tools, choice, sampling)
        return told(session.reply(request, Token()))

    with pytest.raises(EngineError, match="no tool call that fits"):
        reply(REQUIRED, ODD, 400)
    assert len(calls_of(reply(REQUIRED, {}, 40))) == 1


def test_a_prompt_that_is_far_too_long_is_not_read_to_its_end(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = Prompts(model, {}, most_tokens=2_000)
    read = []
    tokenize = Model.tokenize

    def counted(self: Model, text: str, *, special: bool) -> list[int]:
        read.append(len(text))
        return tokenize(self, text, special=special)

    monkeypatch.setattr(Model, "tokenize", counted)
    for text in ("abc " * 150_000, "<|im_end|>" * 50_000):
        read.clear()
        with pytest.raises(PromptTooLong) as refused:
            prompts.whole([Message("user", text)], [])
        if text.startswith("abc"):
            assert "far too many tokens, the limit is 2000" in refused.value.why
        assert sum(read) < 100_000
    assert prompts.whole([Message("user", " " * 40_000)], [])
