"""How much of an answer was heard: from seconds of audio to words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.spoken.length import word_ends

_ROUNDING = 1e-9


def heard_text(spoken: Sequence[tuple[str, float]], heard_seconds: float) -> str:
    """The clauses whose audio was heard, the last one cut at the border of a word.

    ``spoken``: each clause, with the white space before it, and the seconds of its audio, in
    order. Within a clause, words take as long as their letters suggest. What was heard is exactly
    the beginning of all of it.
    """
    heard: list[str] = []
    for text, seconds in spoken:
        if heard_seconds <= 0:
            break
        if heard_seconds >= seconds:
            heard.append(text)
        else:
            share = heard_seconds / seconds + _ROUNDING
            heard.append(
                text[: max((end for end, over in word_ends(text) if over <= share), default=0)]
            )
        heard_seconds -= seconds
    return "".join(heard)
