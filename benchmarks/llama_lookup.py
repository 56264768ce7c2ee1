"""What prompt lookup and a draft model gain, and cost where they find nothing.

    python -m benchmarks.llama_lookup [--weights DIR | --model-file GGUF] [--gpu-layers N]
        [--tokens 3,6] [--draft GGUF [--draft-tokens 2,4]] [-n TIMES]

The same greedy answers with and without, one after the other in one run: tokens a second (median
over ``n`` times each question, after the first, without reading the prompt), also of processor
time, with the ratio of that (median over pairs), and tokens per pass (mean). ``repeating``: answers
that say again what the prompt has; ``ordinary``: others. ``accepted``: of the tokens that a draft
has guessed, the share that the model has said, too. ``same_answer``: where two tokens are about as
likely, rounding decides, and passes of several tokens add up in another order.
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

from pipeline.engines.contract import Finished, TextDelta
from pipeline.engines.llm.llama_context import Context
from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.messages import Message, Sampling, ToolChoice

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
    """How many computations ``context`` has made."""

    count: int = 0
    context: Context | None = None

    def watch(self) -> None:
        decode = Context.decode

        def counted(context: Context, *args: Any, **named: Any) -> Any:
            self.count += context is self.context
            return decode(context, *args, **named)

        Context.decode = counted  # type: ignore


@dataclass(frozen=True)
class Answer:
    """``tokens_per_s`` and ``tokens_per_cpu_s`` (of processor time, which other programs hardly
    change), behind its first word; ``tokens_per_pass`` of the large model."""

    text: str
    tokens_per_s: float
    tokens_per_cpu_s: float
    tokens_per_pass: float


def generate(engine: LlamaCpp, question: str, passes: Passes) -> Answer:
    session = engine.open()
    passes.context = engine._parts.shared.context
    text, count = "", 0
    first = end = first_cpu = end_cpu = 0.0
    messages = [_SYSTEM, Message("user", question)]
    for delta in session.reply(messages, [], ToolChoice(), _GREEDY, _Never()):
        if isinstance(delta, TextDelta):
            if not first:
                first, first_cpu, passes.count = time.perf_counter(), time.process_time(), 0
            text += delta.text
        elif isinstance(delta, Finished):
            end, end_cpu, count = time.perf_counter(), time.process_time(), delta.usage.generated
    session.close()
    return Answer(
        text,
        (count - 1) / max(1e-6, end - first),
        (count - 1) / max(1e-6, end_cpu - first_cpu),
        (count - 1) / max(1, passes.count),
    )


def main() -> None:
    given = _arguments()
    engines = _engines(given)
    passes = Passes()
    passes.watch()
    report: dict[str, Any] = {
        "model": given.model_file or given.weights.name,
        "draft": given.draft,
        "threads": given.threads,
        "n": given.n,
        "load_before": os.getloadavg()[0],
    }
    for kind, questions in QUESTIONS.items():
        report[kind] = compare(engines, questions, given.n, passes)
    report["load_after"] = os.getloadavg()[0]
    print(json.dumps(report, indent=1))
    if given.out:
        given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def compare(
    engines: dict[str, LlamaCpp], questions: tuple[str, ...], times: int, passes: Passes
) -> dict[str, Any]:
    """Figures of each engine; the first is what the others are compared with."""
    answers: dict[str, list[Answer]] = {name: [] for name in engines}
    same = 0
    drafts = {name: engine._parts.draft for name, engine in engines.items()}
    for counted in filter(None, drafts.values()):
        counted.guessed = counted.taken = 0
    for question in questions:
        for round_ in range(times + 1):
            texts = []
            for name, engine in engines.items():
                answer = generate(engine, question, passes)
                texts.append(answer.text)
                if round_:
                    answers[name].append(answer)
        same += len(set(texts)) == 1
    plain = next(iter(answers.values()))
    found: dict[str, Any] = {"questions": len(questions), "same_answer": same}
    for name, draft in drafts.items():
        speeds = [answer.tokens_per_cpu_s for answer in answers[name]]
        found[name] = {
            "tokens_per_s": round(statistics.median(a.tokens_per_s for a in answers[name]), 1),
            "tokens_per_cpu_s": round(statistics.median(speeds), 1),
            "ratio_of_cpu": round(
                statistics.median(
                    speed / without.tokens_per_cpu_s
                    for speed, without in zip(speeds, plain, strict=True)
                ),
                3,
            ),
            "tokens_per_pass": round(statistics.mean(a.tokens_per_pass for a in answers[name]), 2),
        }
        if draft:
            found[name] |= {"guessed": draft.guessed, "taken": draft.taken}
            found[name]["accepted"] = round(draft.taken / max(1, draft.guessed), 3)
    return found


def _engines(given: argparse.Namespace) -> dict[str, LlamaCpp]:
    def made(**how: Any) -> LlamaCpp:
        options = LlamaCppOptions(
            weights=None if given.model_file else given.weights.name,
            model_file=given.model_file,
            gpu_layers=given.gpu_layers,
            threads=given.threads,
            **how,
        )
        return build(options, given.weights.expanduser())

    numbers = [int(number) for number in given.tokens.split(",") if number]
    engines = {f"lookup {n}": made(lookup_tokens=n) for n in (0, *numbers)}
    if given.draft:
        for number in map(int, given.draft_tokens.split(",")):
            engines[f"draft {number}"] = made(draft=given.draft, draft_tokens=number)
    return engines


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=Path, default=_WEIGHTS)
    parser.add_argument("--model-file", help="a GGUF by its path, in place of --weights")
    parser.add_argument("--draft", help="the path of a smaller GGUF with the same vocabulary")
    parser.add_argument("--draft-tokens", default="4")
    parser.add_argument("--gpu-layers", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tokens", default="3,6")
    parser.add_argument("-n", type=int, default=5)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
