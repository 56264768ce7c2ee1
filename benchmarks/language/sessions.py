"""Several conversations that take turns on one llama.cpp engine: what each keeps of its prompts.

    python -m benchmarks.language.sessions [--weights DIRECTORY] [--sessions N] [--turns N]
        [--tools N]
        [--context-tokens N] [--json FILE]

Each leads its own dialogue (``benchmarks.language.dialogue``), an answer of one behind an answer of
the other. Of each prompt, the share is told that was cached when its answer was asked for; the
first of each is left out. Shares depend on no clock, times on the machine's load, which is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from benchmarks.language.dialogue import Dialogue, Turn
from benchmarks.language.warm_turns import asked, share
from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.messages import Tool
from tests.support.robot_tools import robot_tools

_DEFAULT_WEIGHTS = Path("~/.cache/reachy-voice/weights/smollm2-135m-instruct")
_APART = 7
"""Sentences between the beginnings of two dialogues, so that no two say the same at a time."""


Talk = list[Turn]


def alternate(engine: LlamaCpp, tools: Sequence[Tool], sessions: int, turns: int) -> list[Talk]:
    """``sessions`` dialogues of ``turns`` turns each; all prompts of each, in order."""
    talks = [Dialogue(engine.open(), tools, seed=4 + n, first=_APART * n) for n in range(sessions)]
    rounds = list(zip_longest(*(talk.turns(turns) for talk in talks)))
    for talk in talks:
        talk.session.close()
    return [[turn for turn in own if turn] for own in zip(*rounds, strict=True)]


def figures(prompts: Talk) -> dict[str, Any]:
    """Of one dialogue, without its first prompt."""
    later = prompts[1:]
    lowest = min(later, key=lambda turn: turn.share)
    return {
        "prompts": len(later),
        "cached_share": round(share(later), 4),
        "lowest_share": round(lowest.share, 4),
        "lowest": {"prompt": lowest.usage.prompt, "cached": lowest.usage.cached},
        "lowest_share_at_end_of_turn": round(min(turn.share for turn in asked(later)), 4),
        "longest_prompt": max(turn.usage.prompt for turn in later),
        "shortened": sum("shortened" in turn.kinds for turn in later),
        "first_word_p50_ms": round(statistics.median(turn.first_ms for turn in later), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=Path, default=_DEFAULT_WEIGHTS)
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--tools", type=int, default=5)
    parser.add_argument("--context-tokens", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    offered = robot_tools()
    settings = LlamaCppOptions(context_tokens=given.context_tokens, threads=given.threads)
    engine = build(settings, given.weights.expanduser())
    load = [_load()]
    talks = alternate(engine, offered[: given.tools], given.sessions, given.turns)
    result = {
        "sessions": [figures(talk) for talk in talks],
        "turns": given.turns,
        "tools": given.tools,
        "context_tokens": given.context_tokens,
        "threads": given.threads,
        "model": given.weights.name,
        "load": [*load, _load()],
        "cores": os.cpu_count(),
    }
    print(json.dumps(result, indent=2))
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")


def _load() -> float:
    return round(os.getloadavg()[0], 2)


if __name__ == "__main__":
    main()
