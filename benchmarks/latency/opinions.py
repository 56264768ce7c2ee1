"""How complete the texts of takes are, word by word, as the embedded language model sees it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from app.settings.model import Settings
from benchmarks.harness.ears import Ears
from benchmarks.harness.scripted_engines import with_full_stop
from benchmarks.latency.clips import Take
from pipeline.conversation.chat import prompt
from pipeline.items import MessageItem, TextPart


def opinions(takes: Iterable[Take], ears: Ears, settings: Settings) -> dict[str, float]:
    """The probability that each text is complete which a recogniser may have heard at a pause."""
    found: dict[str, float] = {}
    for text in {text for take in takes for text in _heard([part for *_, part in take.said])}:
        said = [MessageItem("", "user", (TextPart(text),))]
        probability = ears.words_complete(prompt(settings.conversation.instructions, said))
        if probability is not None:
            found[text] = probability
    return found


def _heard(parts: Sequence[str]) -> Iterator[str]:
    """An utterance begins with any part, and is read up to any word."""
    for first in range(len(parts)):
        words = " ".join(parts[first:]).split()
        yield from map(with_full_stop, itertools.accumulate(words, "{} {}".format))
