"""How much of a prompt is read before the turn is over, and what that saves.

    python -m benchmarks.language.warm_turns [--weights DIRECTORY] [--turns N] [--tools N]
        [--context-tokens N] [--json FILE]

Leads a dialogue (``benchmarks.language.dialogue``) with a real model and prints for each prompt:
its tokens, how many were cached at the moment when the reply was asked for, and the time to the
first word. Every few turns the same prompt is asked of another engine that has read nothing, for
the ratio of cold to warm. Times depend on the machine's load, which is printed; shares do not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.language.dialogue import Dialogue, Never, Turn
from pipeline.engines.contract import TextDelta
from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.messages import Sampling, Tool, ToolChoice
from tests.support.robot_tools import robot_tools

_DEFAULT_WEIGHTS = Path("~/.cache/reachy-voice/weights/smollm2-135m-instruct")
_COLD_EVERY = 5


def main() -> None:
    options = _arguments()
    offered = robot_tools()
    tools = offered[: options.tools]
    settings = LlamaCppOptions(context_tokens=options.context_tokens, threads=options.threads)
    engine, cold = (build(settings, options.weights.expanduser()) for _ in range(2))
    dialogue = Dialogue(engine.open(), tools)
    load = [_load()]
    turns, cold_ms = [], []
    print("turn  prompt  cached  evaluated  share   first word  what happened")
    for number, turn in enumerate(dialogue.turns(options.turns), 1):
        turns.append(turn)
        _show(number, turn)
        if number % _COLD_EVERY == 0 and "call" not in turn.kinds:
            cold_ms.append((turn.first_ms, first_word_ms(cold, turn, tools)))
    # On the other engine: cells are shared between conversations that say the same.
    bare = Dialogue(cold.open(), tools, keep=False)
    result = summary(turns, cold_ms) | {
        "read_ahead_tokens": dialogue.read_ahead,
        "wasted_tokens": dialogue.wasted,
        "share_without_reading_ahead": round(share(list(bare.turns(options.turns))), 4),
        "turns": options.turns,
        "tools": len(tools),
        "context_tokens": options.context_tokens,
        "load": [*load, _load()],
        "cores": os.cpu_count(),
    }
    print(json.dumps(result, indent=2))
    if options.json:
        rows = [
            {"prompt": t.usage.prompt, "cached": t.usage.cached, "kinds": t.kinds} for t in turns
        ]
        options.json.write_text(json.dumps(result | {"prompts": rows}, indent=2) + "\n")


def share(turns: Sequence[Turn]) -> float:
    """Of all prompt tokens, how many were cached when they were asked for, 0 to 1."""
    return sum(t.usage.cached for t in turns) / sum(t.usage.prompt for t in turns)


def asked(turns: Sequence[Turn]) -> list[Turn]:
    """Those that are the end of the user's turn; the others answer a tool's result."""
    return [turn for turn in turns if "result" not in turn.kinds]


def summary(turns: Sequence[Turn], cold_ms: Sequence[tuple[float, float]]) -> dict[str, object]:
    """Shares of all turns and of each kind; ``cold_ms``: warm and cold times of the same prompts,
    in ms."""
    kinds = sorted({kind for turn in turns for kind in turn.kinds})
    ends = asked(turns)
    evaluated = sorted(turn.usage.evaluated for turn in ends)
    result: dict[str, object] = {
        "share_at_end_of_turn": round(share(ends), 4),
        "lowest_share": round(min(turn.share for turn in ends), 4),
        "evaluated_p50": evaluated[len(evaluated) // 2],
        "evaluated_max": evaluated[-1],
        "share_by_kind": {k: round(share([t for t in turns if k in t.kinds]), 4) for k in kinds},
        "prompts_by_kind": {k: sum(k in t.kinds for t in turns) for k in kinds},
    }
    if cold_ms:
        warm, cold = (statistics.median(times) for times in zip(*cold_ms, strict=True))
        result |= {
            "first_word_warm_ms": round(warm, 1),
            "first_word_cold_ms": round(cold, 1),
            "cold_over_warm": round(cold / warm, 1),
        }
    return result


def first_word_ms(engine: LlamaCpp, turn: Turn, tools: Sequence[Tool]) -> float:
    """The time that the same prompt takes with nothing read before, in ms."""
    session = engine.open()
    sampling = Sampling(seed=1, max_tokens=2)
    began = time.perf_counter()
    steps = session.reply(turn.messages, tools, ToolChoice("none"), sampling, Never())
    next((item for item in steps if isinstance(item, TextDelta)), None)
    took = 1000 * (time.perf_counter() - began)
    session.close()
    while engine._parts.cache.evict():
        pass
    return took


def _show(number: int, turn: Turn) -> None:
    u = turn.usage
    print(
        f"{number:4d}  {u.prompt:6d}  {u.cached:6d}  {u.evaluated:9d}  {100 * turn.share:5.1f}%"
        f"  {turn.first_ms:7.0f} ms  {', '.join(turn.kinds)}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=_DEFAULT_WEIGHTS)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--tools", type=int, default=5)
    parser.add_argument("--context-tokens", type=int, default=3072)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _load() -> float:
    return round(os.getloadavg()[0], 2)


if __name__ == "__main__":
    main()
