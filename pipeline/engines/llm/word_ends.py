"""Judges whether words are complete by what the language model expects next.

After the last word of an unfinished sentence it expects another word; after a complete sentence, a
full stop or the end of the message; after a clause that may go on, a comma rather than the end of
the message. Area under the ROC curve of pauses against ends with SmolLM2-135M, in brackets without
the comma: the tuning part's words .87 (.87), fillers .95 (.91), clauses .73 (.71), natural pauses
.78 (.78); people's commands .86 (.79), dialogues .70 (.63).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.llm.llama_model import Model

_PUNCTUATION = ".,?!;:…"
_SENTENCE_ENDS = (".", "?", "!", "...", ".\n", "?\n", "!\n", ".\n\n", "?\n\n", "!\n\n", "?!", "!!")
_TINY = 1e-300
"""Avoids division by zero if a model expects neither an end nor a comma."""


def without_end_marks(text: str) -> str:
    """``text`` with single spaces and without punctuation at its end, which a recogniser adds
    whether or not the speaker has finished, and changes when the speaker continues."""
    return " ".join(text.split()).rstrip(f" {_PUNCTUATION}")


class WordEnds:
    """The tokens with which one model ends a sentence or message."""

    def __init__(self, model: Model) -> None:
        self._model = model
        ends = {token for token in model.control_tokens if model.ends(token)}
        self._ends = _indices(ends)
        self._sentence_ends = _indices(ends | self._single(_SENTENCE_ENDS))
        self._commas = _indices(self._single((",",)))

    def _single(self, texts: Iterable[str]) -> set[int]:
        """The tokens of those ``texts`` that consist of one token."""
        candidates = (self._model.tokenize(text, special=False) for text in texts)
        return {tokens[0] for tokens in candidates if len(tokens) == 1}

    def probability(self, logits: NDArray[np.float32]) -> float:
        """How likely the speaker is done, 0 to 1: the probability that the sentence ends here,
        lowered if a comma is likelier than the end of the message. ``logits``: float32, shape
        (vocabulary,)."""
        weights = np.exp(logits.astype(np.float64) - logits.max())
        end, comma = weights[self._ends].sum(), weights[self._commas].sum()
        sentence_end = weights[self._sentence_ends].sum() / weights.sum()
        return float(sentence_end * np.sqrt(end / (end + comma + _TINY)))

    def last(self, tokens: Sequence[int], end: int) -> int | None:
        """Index of the last token of ``tokens[:end]`` that is not just punctuation; ``None`` if
        unclear."""
        for at in range(end - 1, -1, -1):
            if tokens[at] < 0:
                return None  # a picture
            text = self._model.piece(tokens[at]).decode("utf-8", "replace").strip()
            if not text:
                return None
            if text.strip(_PUNCTUATION):
                return at
        return None

    def reach(self, tokens: Sequence[int], text: str) -> bool:
        """Whether ``tokens`` end with the end of ``text``."""
        tail = text.encode()[-8:]
        last = [token for token in tokens[-8:] if token >= 0]
        return b"".join(map(self._model.piece, last)).endswith(tail)


def _indices(tokens: Iterable[int]) -> NDArray[np.intp]:
    return np.array(sorted(tokens), dtype=np.intp)
