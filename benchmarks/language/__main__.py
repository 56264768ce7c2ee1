"""How much of a prompt is read ahead before the turn ends, and how much time that saves.

    python -m benchmarks.language [--turns 30] [--tools N] [--context-tokens N] [--out FILE]
    python -m benchmarks.language --sessions 2 --turns 15 --context-tokens 8192

Runs dialogues (``benchmarks.language.dialogue``) with a real model; several dialogues take turns on
one engine. For each prompt it counts the tokens that were cached when the answer was requested; the
first prompt of each dialogue is left out. Every few turns of a single dialogue, another engine
with an empty cache gets the same prompt, for the ratio of cold to warm. Times depend on the
machine's load; shares do not.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from benchmarks.harness.program import arguments, finish, load, weights
from benchmarks.language.dialogue import Dialogue, Turn
from pipeline.engines.contract import TextDelta
from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.messages import Sampling, Tool, ToolChoice
from tests.support.recordings import Uncancelled
from tests.support.robot_tools import robot_tools

COLD_EVERY = 5
APART = 7
"""Offset in sentences between two dialogues, so that they never say the same at the same time."""


def alternate(
    engine: LlamaCpp, tools: Sequence[Tool], sessions: int, turns: int
) -> list[list[Turn]]:
    """``sessions`` dialogues of ``turns`` turns each; all prompts of each, in order."""
    talks = [Dialogue(engine.open(), tools, seed=4 + n, first=APART * n) for n in range(sessions)]
    rounds = list(zip_longest(*(talk.turns(turns) for talk in talks)))
    for talk in talks:
        talk.session.close()
    return [[turn for turn in own if turn] for own in zip(*rounds, strict=True)]


def share(turns: Sequence[Turn]) -> float:
    """The share of all prompt tokens that were cached when requested, 0 to 1."""
    return sum(t.usage.cached for t in turns) / sum(t.usage.prompt for t in turns)


def asked(turns: Sequence[Turn]) -> list[Turn]:
    """Prompts at the end of a user's turn; the others answer a tool's result."""
    return [turn for turn in turns if "result" not in turn.kinds]


def figures(prompts: Sequence[Turn]) -> dict[str, Any]:
    """Figures of one dialogue, without its first prompt."""
    turns = prompts[1:]
    ends = asked(turns)
    kinds = sorted({kind for turn in turns for kind in turn.kinds})
    evaluated = sorted(turn.usage.evaluated for turn in ends)
    return {
        "prompts": len(turns),
        "longest_prompt": max(turn.usage.prompt for turn in turns),
        "share": round(share(turns), 4),
        "lowest_share": round(min(turn.share for turn in turns), 4),
        "share_at_end_of_turn": round(share(ends), 4),
        "lowest_share_at_end_of_turn": round(min(turn.share for turn in ends), 4),
        "evaluated_p50": evaluated[len(evaluated) // 2],
        "evaluated_max": evaluated[-1],
        "share_by_kind": {k: round(share([t for t in turns if k in t.kinds]), 4) for k in kinds},
        "first_word_p50_ms": round(statistics.median(turn.first_ms for turn in turns), 1),
    }


def cold_over_warm(cold: LlamaCpp, turns: Sequence[Turn], tools: Sequence[Tool]) -> dict[str, Any]:
    """Times to the first word of the same prompts; ``cold`` has cached nothing of them."""
    chosen = [turn for turn in turns[COLD_EVERY::COLD_EVERY] if "call" not in turn.kinds]
    if not chosen:
        return {}
    warm_ms = statistics.median(turn.first_ms for turn in chosen)
    cold_ms = statistics.median(_first_word_ms(cold, turn, tools) for turn in chosen)
    return {
        "first_word_warm_ms": round(warm_ms, 1),
        "first_word_cold_ms": round(cold_ms, 1),
        "cold_over_warm": round(cold_ms / warm_ms, 1),
    }


def _first_word_ms(engine: LlamaCpp, turn: Turn, tools: Sequence[Tool]) -> float:
    session = engine.open()
    sampling = Sampling(seed=1, max_tokens=2)
    began = time.perf_counter()
    steps = session.reply(turn.messages, tools, ToolChoice("none"), sampling, Uncancelled())
    next((item for item in steps if isinstance(item, TextDelta)), None)
    took_ms = 1000 * (time.perf_counter() - began)
    session.close()
    while engine._parts.cache.evict():
        pass
    return took_ms


def measure(given: argparse.Namespace) -> dict[str, Any]:
    tools = robot_tools()[: given.tools]
    options = LlamaCppOptions(context_tokens=given.context_tokens, threads=given.threads)
    model = weights("smollm2-135m-instruct")
    talks = alternate(build(options, model), tools, given.sessions, given.turns)
    found: dict[str, Any] = {"sessions": [figures(talk) for talk in talks]}
    if given.sessions == 1:
        found |= cold_over_warm(build(options, model), talks[0], tools)
    asked_for = {name: vars(given)[name] for name in ("turns", "tools", "context_tokens")}
    rows = [[{**asdict(turn.usage), "kinds": turn.kinds} for turn in talk] for talk in talks]
    return {**found, **asked_for, "prompts": rows}


def main() -> None:
    parser = arguments(__doc__, "benchmarks.language")
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--tools", type=int, default=5)
    parser.add_argument("--context-tokens", type=int, default=3072)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    before = load()
    finish(measure(given), given.out, before, details="prompts")


if __name__ == "__main__":
    main()
