"""How good are the language model's first answers? 50 fixed questions, judged without a model.

    python -m benchmarks.answers [--seeds 4] [--config PROFILE] [--set KEY=VALUE] [--out FILE]
    python -m benchmarks.answers --questions tuning     # for tuning; the 50 are for the report

Each question is asked in a new conversation, as text, once for each seed, with the instructions and
the sampling of the settings. ``on_topic`` and ``speakable`` are shares of all answers, ``worth``
of those that are both, ``admits`` of the unknowable questions (``benchmarks.answers.judge``).
``crossed`` is the control: the share of answers that the judge would accept for another question,
except that an admission fits every unknowable question. Intervals: bootstrap over questions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.settings.load import load_settings
from app.settings.model import Settings
from benchmarks.answers.judge import Question, on_topic, read, speakable
from benchmarks.harness.program import arguments, finish, load, weights
from benchmarks.harness.statistics import Bootstrap
from pipeline.conversation.prompt import prompt
from pipeline.engines.contract import TextDelta
from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.errors import ConfigError
from pipeline.items import AudioPart, MessageItem
from pipeline.messages import LlmRequest
from pipeline.work import NEVER


@dataclass(frozen=True, slots=True)
class AnswerResult:
    question: Question
    answer: str

    @property
    def on_topic(self) -> bool:
        return on_topic(self.question, self.answer)

    @property
    def speakable(self) -> bool:
        return speakable(self.answer)


def ask(engine: LlamaCpp, settings: Settings, question: Question, seed: int) -> str:
    """Ask in a new conversation; returns the answer."""
    talk = settings.conversation
    message = MessageItem("", "user", (AudioPart(question.ask),))
    sampling = talk.sampling.model_copy(update={"seed": seed}).build()
    session = engine.open()
    request = LlmRequest(prompt(talk.instructions, [message]), sampling=sampling)
    steps = session.reply(request, NEVER)
    answer = "".join(step.text for step in steps if isinstance(step, TextDelta))
    session.close()
    return answer


def figures(answers: Sequence[AnswerResult]) -> dict[str, Any]:
    bootstrap = Bootstrap([each.question.ask for each in answers])

    def share(of: Callable[[AnswerResult], bool], kinds: Sequence[str] = ()) -> dict[str, Any]:
        results = [each for each in answers if not kinds or each.question.kind in kinds]
        values = [float(of(each)) for each in results]
        estimate = bootstrap.mean(values, [each.question.ask for each in results])
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(estimate).items()}

    others = [
        on_topic(question, each.answer)
        for each in answers
        for question in {each.question: None for each in answers}
        if question != each.question and {question.kind, each.question.kind} != {"unknown"}
    ]
    kinds = sorted({each.question.kind for each in answers} - {"unknown"})
    return {
        "worth": share(lambda each: each.on_topic and each.speakable),
        "on_topic": share(lambda each: each.on_topic),
        "speakable": share(lambda each: each.speakable),
        "admits": share(lambda each: each.on_topic, ["unknown"]),
        **{f"on_topic_{kind}": share(lambda each: each.on_topic, [kind]) for kind in kinds},
        "crossed": round(sum(others) / len(others), 3),
        "words": round(sum(len(each.answer.split()) for each in answers) / len(answers), 1),
    }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    settings = load_settings(args.config, args.sets).settings
    options = settings.llm
    if not isinstance(options, LlamaCppOptions) or not options.weights:
        raise ConfigError(
            "The answers cannot be measured",
            why="llm must be llama-cpp with weights of the catalogue",
        )
    engine = build(options, weights(options.weights))
    answers = [
        AnswerResult(question, ask(engine, settings, question, seed))
        for question in read(args.questions)
        for seed in range(args.seeds)
    ]
    rows = [
        {
            "ask": each.question.ask,
            "answer": each.answer,
            "on_topic": each.on_topic,
            "speakable": each.speakable,
        }
        for each in answers
    ]
    talk = settings.conversation
    how = {"questions": args.questions, "seeds": args.seeds, "instructions": talk.instructions}
    return {**figures(answers), **how, "sampling": talk.sampling.model_dump(), "answers": rows}


def main() -> None:
    parser = arguments(__doc__, "benchmarks.answers", settings=True)
    parser.add_argument("--questions", choices=("frozen", "tuning"), default="frozen")
    parser.add_argument("--seeds", type=int, default=4)
    args = parser.parse_args()
    before = load()
    finish(measure(args), args.out, before, details="answers")


if __name__ == "__main__":
    main()
