"""Whether words are complete: what the language model expects behind them.

At the last word of a text that goes on, it expects another word; where a sentence is complete, a
full stop or the end of the message. With SmolLM2-135M that tells whole utterances from those that
are cut at a random word with an area under the ROC curve of 0.97 to 0.99 (100 of each, without
punctuation; 0.82 to 0.92 where what was cut is itself a whole clause).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.llm.llama_model import Model

_PUNCTUATION = ".,?!;:…"
_SENTENCE_ENDS = (".", "?", "!", "...", ".\n", "?\n", "!\n", ".\n\n", "?\n\n", "!\n\n", "?!", "!!")


def without_end_marks(text: str) -> str:
    """``text`` with single spaces, and without punctuation at its end: a recogniser sets it
    whether the speaker is done or not, and changes when the speaker goes on."""
    return " ".join(text.split()).rstrip(f" {_PUNCTUATION}")


class WordEnds:
    """The tokens of one model that say that words are complete."""

    def __init__(self, model: Model) -> None:
        self._model = model
        spelled = [model.tokenize(text, special=False) for text in _SENTENCE_ENDS]
        marks = {tokens[0] for tokens in spelled if len(tokens) == 1}
        ends = {token for token in model.control_tokens if model.ends(token)}
        self._tokens = np.array(sorted(marks | ends), dtype=np.intp)

    def probability(self, logits: NDArray[np.float32]) -> float:
        """That the sentence or the message ends here. Float32 ``logits``, shape (vocabulary,)."""
        weights = np.exp(logits.astype(np.float64) - logits.max())
        return float(weights[self._tokens].sum() / weights.sum())

    def last(self, tokens: Sequence[int], end: int) -> int | None:
        """Where the last word of ``tokens[:end]`` ends, leaving out the punctuation behind it."""
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
        """Whether ``tokens`` end just where ``text`` does."""
        tail = text.encode()[-8:]
        last = [token for token in tokens[-8:] if token >= 0]
        return b"".join(map(self._model.piece, last)).endswith(tail)
