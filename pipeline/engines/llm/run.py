"""One piece of work on a shared context, cut into slices."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.llm.kv_cache import WORTH_KEEPING_TOKENS, KvCache, Sequence, common_prefix
from pipeline.engines.llm.llama_context import DecodeOutcome, LlamaContext
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.prompts import Prompts
from pipeline.engines.llm.saved_prefixes import SavedPrefixes
from pipeline.engines.llm.vision import Media
from pipeline.errors import EngineError
from pipeline.messages import Usage
from pipeline.work import Cancelled, CancelToken

_LOOK_S = 0.01
"""How long one step waits for the vision projector, in seconds."""


class Owner(Protocol):
    """The session that a run works for."""

    @property
    def closed(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class SharedParts:
    """What all sessions of one engine share."""

    model: Model
    prompts: Prompts
    context: LlamaContext
    cache: KvCache
    store: SavedPrefixes | None
    scratch: int
    """A sequence without an owner."""


class Run:
    """Brings tokens into the cells, whatever other runs do between two slices. Call ``close`` at
    the end."""

    def __init__(
        self,
        parts: SharedParts,
        owner: Owner,
        cancel: CancelToken,
        tokens: list[int],
        prefix: list[int],
        *,
        evaluate_last: bool,
        probe: int | None = None,
        media: Mapping[int, Media] | None = None,
    ) -> None:
        """``prefix`` is the instructions and tools of the prompt."""
        self.tokens = tokens
        """What the sequence should hold; may grow."""
        self._media = media or {}
        """Parts of pictures, by their first tokens."""
        self.prompt_tokens = len(tokens)
        """How many of the tokens are the prompt."""
        self._context = parts.context
        self._cache = parts.cache
        self._store = parts.store
        self._scratch = parts.scratch
        self._owner = owner
        self._cancel = cancel
        self._evaluate_last = evaluate_last
        """Compute the last prompt token even if it is cached, for its logits."""
        self._probe = probe
        """Index of a prompt token whose logits go to ``probe_logits``. It too is computed even if
        cached, unless the model cannot remove tokens."""
        self.probe_logits: NDArray[np.float32] | None = None
        self._prefix = prefix[: common_prefix(prefix, self._reusable())]
        self._sequence: Sequence | None = None
        self._cached_tokens = self.prompt_tokens

    def usage(self, generated: int = 0) -> Usage:
        cached = self._cached_tokens
        return Usage(self.prompt_tokens, cached, self.prompt_tokens - cached, generated)

    def close(self) -> None:
        """Release the sequence. Its tokens stay cached."""
        if self._sequence:
            self._cache.release(self._sequence, self)

    def fill(self) -> Iterator[None]:
        """Compute the missing tokens, one slice per step.

        Afterwards the logits of the last token are valid until the caller yields. Raises
        ``Cancelled``, ``EngineError``.
        """
        while True:
            insist = yield from self._step_aside()
            sequence = yield from self._hold()
            position = len(sequence.tokens)
            piece = self._piece(position)
            if not piece:
                return
            if piece[0] < 0:
                yield from self._see(piece[0], sequence, insist)
                continue
            last = position + len(piece) == len(self.tokens)
            probe = self._probe_in(position, len(piece))
            outcome = self._context.decode(
                piece,
                position,
                sequence.id,
                logits=last,
                by=self._cancel,
                preemptible=not insist,
                probe=probe,
            )
            self._cache.touch(sequence)
            if outcome is DecodeOutcome.DONE:
                sequence.tokens += piece
                if probe is not None:
                    self.probe_logits = self._context.logits(probe).copy()
                if last:
                    return
            yield from self._end_step(outcome, sequence)

    def _end_step(self, outcome: DecodeOutcome, sequence: Sequence) -> Iterator[None]:
        """Clean up after a computation, and let other runs work."""
        if outcome is not DecodeOutcome.DONE:
            position = len(sequence.tokens)
            if not (self._context.forgets_partly and self._context.reaches(sequence.id, position)):
                self._cache.trim(sequence, 0)
        self._check()
        if outcome is DecodeOutcome.FULL:
            yield from self._make_room()
        else:
            yield None

    def _piece(self, start: int) -> list[int]:
        """Input of the next computation: tokens, or the first token of a part of a picture."""
        piece = self.tokens[start : start + self._context.slice_tokens]
        if piece and piece[0] < 0:
            return piece[:1]
        return list(takewhile(lambda token: token >= 0, piece))

    def _see(self, first: int, sequence: Sequence, insist: bool) -> Iterator[None]:
        """One step of reading a part of a picture: wait for the projector, or compute."""
        media = self._media[first]
        if not media.looked_at(_LOOK_S):
            self._check()
            yield None
            return
        position = len(sequence.tokens)
        outcome = self._context.decode_media(
            media, position, sequence.id, by=self._cancel, preemptible=not insist
        )
        self._cache.touch(sequence)
        if outcome is DecodeOutcome.DONE:
            sequence.tokens += self.tokens[position : position + media.positions]
        yield from self._end_step(outcome, sequence)

    def save_prefix(self) -> Iterator[None]:
        """Write the prefix's cells to disk, unless they are already there."""
        prefix, sequence = self._prefix, self._sequence
        if not (self._store and sequence and self._is_holder() and self._context.forgets_partly):
            return
        computed = common_prefix(sequence.tokens, prefix) == len(prefix)
        if len(prefix) < WORTH_KEEPING_TOKENS or prefix in self._store or not computed:
            return
        if not self._context.reaches(sequence.id, len(prefix)):
            return
        yield None
        self._check()
        if not self._is_holder():
            return
        self._context.copy(sequence.id, self._scratch, len(prefix))
        state = self._context.state(self._scratch)
        self._context.remove(self._scratch, 0)
        for _ in self._store.write(prefix, state):
            yield None
            self._check()

    def _probe_in(self, start: int, count: int) -> int | None:
        """Index of the probe among the ``count`` tokens from ``start`` on, or ``None``."""
        probe = self._probe
        return probe - start if probe is not None and start <= probe < start + count else None

    # --- others

    def _check(self) -> None:
        if self._cancel.cancelled or self._owner.closed:
            raise Cancelled

    def _step_aside(self) -> Generator[None, None, bool]:
        """Let more urgent work go first. True: the scheduler chose this run anyway."""
        insist = False
        if self._cancel.preempted:
            yield None
            insist = self._cancel.preempted
        self._check()
        return insist

    def _make_room(self) -> Iterator[None]:
        """Free cells of idle sequences; else wait for active runs; else take their cells.

        If the scheduler returns to this run and no other run has worked in between, this run is
        more urgent than those that hold the rest, and would wait forever.
        """
        if self._cache.evict():
            return
        before = self._cache.clock
        yield None
        self._check()
        stalled = self._cache.clock == before
        if not self._cache.evict() and stalled and not self._cache.revoke(self):
            raise EngineError(
                "The language model has no room for this conversation",
                fix="Raise llm.context_tokens",
            )

    # --- the sequence

    def _is_holder(self) -> bool:
        return self._sequence is not None and self._sequence.holder is self

    def _reusable(self) -> list[int]:
        """The tokens that may come from the cache."""
        if self._probe is not None and self.probe_logits is None and self._context.forgets_partly:
            return self.tokens[: self._probe]
        return self.tokens[:-1] if self._evaluate_last else self.tokens

    def _hold(self) -> Generator[None, None, Sequence]:
        """Make sure that this run holds a sequence, which it may have lost since the last slice."""
        while self._sequence is None or not self._is_holder():
            self._sequence = self._cache.acquire(self._reusable(), self._owner, self)
            if self._sequence is None:
                yield from self._make_room()
                continue
            yield from self._load_prefix(self._sequence)
            self._sequence.shared_tokens = len(self._prefix)
            self._cached_tokens = min(self._cached_tokens, len(self._sequence.tokens))
        return self._sequence

    def _load_prefix(self, sequence: Sequence) -> Iterator[None]:
        """Load the prefix from disk if that saves computing it."""
        prefix, store = self._prefix, self._store
        if not store or len(sequence.tokens) >= len(prefix) or prefix not in store:
            return
        state = yield from store.read(prefix)
        self._check()
        if state is None or not self._is_holder():
            return
        self._cache.trim(sequence, 0)
        while not self._context.restore(sequence.id, state):
            if not self._cache.evict():
                self._context.remove(sequence.id, 0)
                return
        sequence.tokens = list(prefix)
