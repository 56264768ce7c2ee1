"""What prompt lookup gains, and costs where it finds nothing.

    python -m benchmarks.llama_lookup [--weights DIR] [--gpu-layers N] [--tokens 3,6] [-n TIMES]

The same greedy answers with and without, one after the other in one run: tokens a second (median
over ``n`` times each question, after the first, without reading the prompt), their ratio, and
tokens per pass. ``repeating``: answers that say again what the prompt has; ``ordinary``: others.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.engines import Finished, Message, Sampling, TextDelta, ToolChoice
from pipeline.llm.llama_context import Context
from pipeline.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build

_WEIGHTS = Path("~/.cache/reachy-voice/weights/smollm2-135m-instruct")
_SYSTEM = Message("system", "You are a helpful robot. Answer in a few sentences.")
_GREEDY = Sampling(temperature=0, repeat_penalty=1.0, max_tokens=96)
_TRAINS = (
    "The train to Lisbon leaves at 9:15 from platform 4. The train to Porto leaves at 9:40 from "
    "platform 2. The train to Faro leaves at 10:05 from platform 7."
)
_RHYME = "Row, row, row your boat, gently down the stream. Merrily, merrily, life is but a dream."
QUESTIONS = {
    "repeating": (
        f"Say this again, word for word: {_TRAINS}",
        f"Say this again, word for word: {_RHYME}",
        f"{_TRAINS} List all trains with their times and platforms.",
    ),
    "ordinary": (
        "What is the capital of France?",
        "Tell me a short story about a robot and a cat.",
        "Why is the sky blue?",
        "What should I cook tonight?",
    ),
}


class _Never:
    cancelled = False
    preempted = False


@dataclass
class Passes:
    """How many computations have been made."""

    count: int = 0

    def watch(self) -> None:
        decode = Context.decode

        def counted(context: Context, *args: Any, **named: Any) -> Any:
            self.count += 1
            return decode(context, *args, **named)

        Context.decode = counted  # type: ignore


def generate(engine: LlamaCpp, question: str, passes: Passes) -> tuple[str, float, float]:
    """The answer, tokens a second behind its first word, and tokens per pass."""
    session = engine.open()
    text, first, end, count = "", 0.0, 0.0, 0
    messages = [_SYSTEM, Message("user", question)]
    for delta in session.reply(messages, [], ToolChoice(), _GREEDY, _Never()):
        if isinstance(delta, TextDelta):
            if not first:
                first, passes.count = time.perf_counter(), 0
            text += delta.text
        elif isinstance(delta, Finished):
            end, count = time.perf_counter(), delta.usage.generated
    session.close()
    return text, (count - 1) / max(1e-6, end - first), (count - 1) / max(1, passes.count)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=Path, default=_WEIGHTS)
    parser.add_argument("--gpu-layers", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tokens", default="3,6")
    parser.add_argument("-n", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    engines = {
        number: build(
            LlamaCppOptions(
                gpu_layers=given.gpu_layers, threads=given.threads, lookup_tokens=number
            ),
            given.weights.expanduser(),
        )
        for number in (0, *map(int, given.tokens.split(",")))
    }
    passes = Passes()
    passes.watch()
    report: dict[str, Any] = {"n": given.n, "load_before": os.getloadavg()[0]}
    for kind, questions in QUESTIONS.items():
        speeds: dict[int, list[float]] = {number: [] for number in engines}
        per_pass: dict[int, list[float]] = {number: [] for number in engines}
        same = 0
        for question in questions:
            for round_ in range(given.n + 1):
                texts = []
                for number, engine in engines.items():
                    text, speed, each = generate(engine, question, passes)
                    texts.append(text)
                    if round_:
                        speeds[number].append(speed)
                        per_pass[number].append(each)
            same += len(set(texts)) == 1
        plain = statistics.median(speeds[0])
        report[kind] = {
            "questions": len(questions),
            "same_answer": same,
            **{
                f"lookup {number}": {
                    "tokens_per_s": round(statistics.median(speeds[number]), 1),
                    "ratio": round(statistics.median(speeds[number]) / plain, 3),
                    "tokens_per_pass": round(statistics.median(per_pass[number]), 2),
                }
                for number in engines
            },
        }
    report["load_after"] = os.getloadavg()[0]
    print(json.dumps(report, indent=1))
    if given.out:
        given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
