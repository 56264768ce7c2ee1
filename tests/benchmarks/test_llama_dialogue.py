"""A dialogue with a real model: what of each prompt was read before the turn was over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.language.__main__ import alternate, asked, figures, share
from benchmarks.language.dialogue import Dialogue, Turn
from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.messages import Usage
from tests.support.llama_talk import MODEL
from tests.support.robot_tools import robot_tools

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def engine(weights: Callable[[str], Path]) -> LlamaCpp:
    """A context that is too small for the dialogue, so that its history is shortened."""
    return build(LlamaCppOptions(threads=1, context_tokens=1536), weights(MODEL))


def test_most_of_a_prompt_is_cached_before_the_turn_ends(engine: LlamaCpp) -> None:
    """Only the last words of each prompt and the marks after them are left to read."""
    dialogue = Dialogue(engine.open(), robot_tools()[:5])
    turns = list(dialogue.turns(8))
    kinds = {kind for turn in turns for kind in turn.kinds}
    assert {"call", "result", "resumed", "barge-in", "shortened"} <= kinds
    for turn in turns:
        assert turn.usage.cached + turn.usage.evaluated == turn.usage.prompt
    ends = asked(turns)
    assert share(ends) >= 0.98
    assert max(turn.usage.evaluated for turn in ends) <= 24


def test_two_dialogues_that_alternate_keep_their_prompts(weights: Callable[[str], Path]) -> None:
    made = build(LlamaCppOptions(threads=1, context_tokens=8192), weights(MODEL))
    found = [figures(talk) for talk in alternate(made, robot_tools()[:5], 2, 5)]
    assert min(talk["lowest_share"] for talk in found) >= 0.95


def test_the_figures() -> None:
    def turn(cached: int, *kinds: str) -> Turn:
        return Turn(Usage(100, cached, 100 - cached, 5), kinds, 0.0, ())

    first, *rest = turn(0), turn(99, "call"), turn(50, "result"), turn(96), turn(93, "barge-in")
    found = figures([first, *rest])
    assert found["share_at_end_of_turn"] == 0.96
    assert (found["lowest_share"], found["lowest_share_at_end_of_turn"]) == (0.5, 0.93)
    assert (found["evaluated_p50"], found["evaluated_max"]) == (4, 7)
    assert found["share_by_kind"] == {"barge-in": 0.93, "call": 0.99, "result": 0.5}
