"""Answers that cannot be heard: no words at all, or nothing but JSON, markup, emoji or thoughts.

The user cannot tell one from a crash. The model is asked once more, told to speak; if that cannot
be heard either, the apology is said (``pipeline.speaking.apology``). Words of an answer that cannot
be heard are in no transcript and in no prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.engines.llm.pictures import joined
from pipeline.messages import Message, Sampling, Usage
from pipeline.speaking.delivery import Clause, ReplyPlan
from pipeline.spoken import speakable

ALOUD = Message("user", "(Answer aloud, in one plain sentence.)")
"""What the model reads behind the words that it has not answered audibly."""

NOTHING_HEARD = "The language model said nothing that can be heard"


class Audibility:
    """Whether one reply can be heard so far. ``held``: clauses of which nothing is spoken; they
    wait for something that is, or for the end of an answer that may end so."""

    def __init__(self, plan: ReplyPlan) -> None:
        choice = plan.config.tool_choice.kind
        forced = bool(plan.config.tools) and choice in ("required", "named")
        self.wanted = plan.config.modality == "audio" and not forced and not plan.notice
        self._text = ""
        self.held: list[Clause] = []
        self.spent = Usage()
        """On attempts that are over."""
        self.asked_again = False

    def write(self, text: str) -> None:
        """The model adds ``text`` to its answer."""
        self._text += text

    def missing(self, language: str) -> bool:
        """Whether the answer should be heard, and its words cannot be."""
        return self.wanted and not speakable(self._text, language)

    def begin_again(self, usage: Usage) -> None:
        self.asked_again = True
        self.spent = usage
        self.drop()

    def drop(self) -> None:
        """What was written is no part of the answer."""
        self._text = ""
        self.held.clear()


def aloud(messages: Sequence[Message]) -> list[Message]:
    """The same prompt, with the wish to hear the answer. It is the user's: not all templates take
    a system message there."""
    if messages and messages[-1].role == "user":
        return [*messages[:-1], joined(messages[-1], ALOUD, "\n")]
    return [*messages, ALOUD]


def left(sampling: Sampling, usage: Usage) -> Sampling:
    """For a second attempt: both together keep the limit."""
    if sampling.max_tokens is None:
        return sampling
    return replace(sampling, max_tokens=max(1, sampling.max_tokens - usage.generated))
