"""Where an English sentence may be cut so that both parts sound as if it was meant. Pure."""

from __future__ import annotations

from pipeline.spoken.words import words_of


def _set(key: str) -> frozenset[str]:
    return frozenset(words_of("en")[key].split())


PRONOUNS = _set("pronouns")
"""They lean on a verb that follows."""

LEANING = PRONOUNS | _set("leaning")
"""Words that the next one belongs to: a piece that ends with one of them sounds broken off."""

OBJECTS = _set("objects")
"""They lean on what follows, unless a new part begins there: "I can help you | with that"."""

CLINGING = _set("clinging")
"""They belong to the word before them."""

COUNTING = _set("counting")
"""Between two numbers they join no parts: "2 and 3"."""

JOINING = _set("joining")
"""Words that a new part of the sentence begins with."""

VERBS = _set("verbs")
"""They begin the predicate of the words before them, unless those are a pronoun."""

PLACING = _set("placing")
"""A new part may begin with them, a little less clearly."""

ABBREVIATIONS = _set("unspoken")
"""A full stop behind them ends no sentence, or may not."""
