"""A dialogue with a real model: how much of each prompt was read before the turn ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path

import pytest

from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from tests.support.llama_dialogue import Dialogue, Turn
from tests.support.llama_talk import MODEL
from tests.support.robot_tools import robot_tools

pytestmark = [pytest.mark.engines, pytest.mark.real]

TOOLS = robot_tools()[:5]
APART = 7
"""Offset in sentences between two dialogues, so that they never say the same at once."""


@pytest.fixture(scope="module")
def engine(weights: Callable[[str], Path]) -> LlamaCpp:
    """An engine whose context is too small for the dialogue, so its history is shortened."""
    return build(LlamaCppOptions(threads=1, context_tokens=1536), weights(MODEL))


def asked(turns: Sequence[Turn]) -> list[Turn]:
    """Prompts at the end of a user's turn; the others answer a tool's result."""
    return [turn for turn in turns if "result" not in turn.kinds]


def test_most_of_a_prompt_is_cached_before_the_turn_ends(engine: LlamaCpp) -> None:
    """Only the last words of each prompt and the marks after them remain to be read."""
    turns = list(Dialogue(engine.open(), TOOLS).turns(8))
    kinds = {kind for turn in turns for kind in turn.kinds}
    assert {"call", "result", "resumed", "barge-in", "shortened"} <= kinds
    for turn in turns:
        assert turn.usage.cached + turn.usage.evaluated == turn.usage.prompt
    ends = asked(turns)
    assert sum(t.usage.cached for t in ends) >= 0.98 * sum(t.usage.prompt for t in ends)
    assert max(turn.usage.evaluated for turn in ends) <= 24


def test_two_dialogues_that_alternate_keep_their_prompts(weights: Callable[[str], Path]) -> None:
    made = build(LlamaCppOptions(threads=1, context_tokens=8192), weights(MODEL))
    talks = [Dialogue(made.open(), TOOLS, seed=4 + n, first=APART * n) for n in range(2)]
    for turns in list(zip_longest(*(talk.turns(5) for talk in talks)))[1:]:
        assert all(turn is None or turn.share >= 0.95 for turn in turns)
