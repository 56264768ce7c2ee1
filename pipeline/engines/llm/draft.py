"""A small model that guesses what a large one says next (speculative decoding).

The large one computes all guessed tokens in one pass and samples each for itself, as it would
without; a guess is taken only where that is what comes out. So an answer is drawn from the same
distribution as without a draft, and a greedy one is the same (Leviathan 2023, with a greedy draft).
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.llm.kv_cache import KvCache, common_prefix
from pipeline.engines.llm.llama_context import Context
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.run import Owner, Run, Shared
from pipeline.errors import EngineError
from pipeline.work import CancelToken

log = logging.getLogger("reachy_voice.llm")

MOST_FAILURES = 3
"""In a row; one may be for want of room at that moment."""
_SURE = 0.5
"""A guess that is less likely in the draft's own eyes costs more passes than it spares."""
_MOST_MORE_TOKENS = 128
"""Files of one family may differ by unused tokens at the end of the vocabulary."""


class Draft:
    """Guesses for all sessions of one engine, each of which has a sequence of its own here, too.

    ``most``: tokens of a guess. Raises ``EngineError`` where the two models do not fit together.
    """

    def __init__(self, model: Model, context: Context, sequences: int, most: int) -> None:
        self._model = model
        self._context = context
        self._cache = KvCache(context, sequences)
        self._shared = Shared(context, self._cache, None, scratch=sequences)
        self._most = most
        self._failures = 0
        """Of guesses in a row."""
        self.guessed = 0
        """Tokens so far."""
        self.taken = 0
        """Of these, how many the large model has taken."""

    def read(self, tokens: Sequence[int], owner: Owner, cancel: CancelToken) -> Iterator[None]:
        """Read a prompt ahead. Raises ``Cancelled``."""
        if not self._reads(tokens):
            return
        run = Run(self._shared, owner, cancel, list(tokens), [], evaluate_last=False)
        try:
            yield from run.fill()
        except EngineError as problem:
            self._give_up(problem)
        finally:
            run.close()

    def guess(
        self, tokens: Sequence[int], owner: Owner, cancel: CancelToken
    ) -> Generator[None, None, list[int]]:
        """What may follow ``tokens``; nothing where the draft is not sure. Raises ``Cancelled``."""
        guess: list[int] = []
        if not self._reads(tokens):
            return guess
        run = Run(self._shared, owner, cancel, list(tokens), [], evaluate_last=True)
        try:
            while len(guess) < self._most:
                yield from run.fill()
                token = self._likely(self._context.logits())
                if token is None:
                    break
                guess.append(token)
                run.tokens.append(token)
        except EngineError as problem:
            self._give_up(problem)
        else:
            self._failures = 0
        finally:
            run.close()
        return guess

    def count(self, guess: Sequence[int], said: Sequence[int]) -> None:
        """Note what came of a guess: what was ``said`` where it was checked."""
        self.guessed += len(guess)
        self.taken += common_prefix(guess, said)

    def disown(self, owner: Owner) -> None:
        """Forget what ``owner`` said."""
        self._cache.disown(owner)

    def _reads(self, tokens: Sequence[int]) -> bool:
        """Whether it can: no pictures, and nothing longer than its own context."""
        room = self._context.tokens - self._most
        return (
            self._failures < MOST_FAILURES and len(tokens) <= room and min(tokens, default=-1) >= 0
        )

    def _likely(self, logits: NDArray[np.float32]) -> int | None:
        token = int(logits.argmax())
        sure = 1 / float(np.exp(logits - logits[token]).sum())
        return None if sure < _SURE or self._model.ends(token) else token

    def _give_up(self, problem: EngineError) -> None:
        """This answer goes on without it, and from the third time on all do."""
        self._failures += 1
        if self._failures >= MOST_FAILURES:
            log.warning("The model of llm.draft is not used any more: %s", problem)


def require_same_vocabulary(model: Model, draft: Model) -> None:
    """Raises ``EngineError`` if a token does not mean the same to both."""
    ours, its = model.vocab_tokens, draft.vocab_tokens
    if abs(ours - its) > _MOST_MORE_TOKENS:
        raise _differs(draft, f"it has {its} tokens, and {model.path.name} has {ours}")
    for token in range(min(ours, its)):
        if model.text(token) != draft.text(token):
            why = f"token {token} is {draft.text(token)!r}, and in {model.path.name} it is "
            raise _differs(draft, f"{why}{model.text(token)!r}")


def _differs(draft: Model, why: str) -> EngineError:
    return EngineError(
        f"{draft.path.name} cannot guess for the language model: their vocabularies differ",
        why=why,
        fix="Choose a smaller model of the same family with llm.draft, or set it to null",
    )
