"""Judges an answer without a model: is it on topic, and can it be spoken as it is?

An answer is on topic if it contains one of the words that its question lists, and no wrong one. If
the robot cannot know the answer, it must say so instead. The judge looks at words, not at meaning:
it is trusted because it rejects the answers to other questions
(``tests/benchmarks/test_programs.py``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter
from ruamel.yaml import YAML

MOST_WORDS = 40
"""About 15 s of speech."""

_UNKNOWING = re.compile(
    r"\b(?:(?:do|did|could|would|am|is|are|have|has|was)(?:n't| not)|can(?:'t|not| not)"
    r"|i'm not|no way to)(?: (?:really|yet|even|actually|able to|been))*"
    r" (?:know|sure|see|tell|hear|told|say|remember|find)\b"
    r"|\bno (?:idea|clock|information)\b|\bunable to\b"
)
_MARKUP = re.compile(r"[*#`_|<>\[\]{}]|https?:|^\s*(?:[-•]|\d+[.)])\s", re.MULTILINE)
_OUT_OF_ROLE = re.compile(
    r"\b(?:as an? (?:ai|language|digital)|ai model|language model|smollm|hugging face)\b"
)


class Question(BaseModel):
    """A question and what an answer to it must contain (see ``frozen.yaml``)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ask: str
    kind: Literal["fact", "talk", "self", "unknown"]
    words: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    good: str


def read(name: str) -> list[Question]:
    """The questions of ``name``: ``frozen`` or ``tuning``."""
    data = YAML(typ="safe").load(Path(__file__).with_name(f"{name}.yaml"))
    return TypeAdapter(list[Question]).validate_python(data)


def on_topic(question: Question, answer: str) -> bool:
    text = _plain(answer)
    if _has(text, question.wrong):
        return False
    admits = _UNKNOWING.search(text) is not None
    if question.kind == "unknown":
        return admits
    topic = _plain(question.ask)
    words = [word for word in question.words if not _has(topic, [word])]
    refuses = admits and question.kind == "fact"
    return _has(text, words) and not refuses


def speakable(answer: str) -> bool:
    """Whether it is short, finished, in character, and free of markup and repetition."""
    sentences = [s.strip() for s in re.split(r"(?<=[.!?])\s+", answer.strip().lower()) if s.strip()]
    return (
        0 < len(answer.split()) <= MOST_WORDS
        and answer.rstrip(" \"')").endswith((".", "!", "?"))
        and not _MARKUP.search(answer)
        and not _OUT_OF_ROLE.search(_plain(answer))
        and len(sentences) == len(set(sentences))
    )


def has_word(answer: str, words: Sequence[str]) -> bool:
    """Whether an answer has one of ``words``; ``word*`` also means its other endings."""
    return _has(_plain(answer), [word.lower() for word in words])


def _plain(text: str) -> str:
    return text.lower().replace("’", "'")


def _has(text: str, words: Sequence[str]) -> bool:
    patterns = (re.escape(word.removesuffix("*")) + r"\w*" * word.endswith("*") for word in words)
    return any(re.search(rf"(?<!\w){pattern}(?!\w)", text) for pattern in patterns)
