"""Which sequence of a context holds which tokens.

The KV cells are only a cache: if a session loses its cells, its prompt is read again, which only
costs time. So any number of sessions can share a few sequences: the least recently used one makes
room, and no session fails because of another.
"""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import Protocol

WORTH_KEEPING_TOKENS = 256
"""More than an interrupted answer; takes about a second to read on a CPU. Fewer are read about as
fast as a file is loaded and checked."""


class KvCells(Protocol):
    """The cells of a context (``llama_context.LlamaContext``)."""

    forgets_partly: bool

    def remove(self, sequence: int, start: int) -> bool: ...

    def reaches(self, sequence: int, count: int) -> bool: ...

    def copy(self, source: int, target: int, count: int) -> None: ...


@dataclass(eq=False, slots=True)
class Sequence:
    id: int
    tokens: list[int] = field(default_factory=list)
    """Exactly what its cells hold."""
    owner: object | None = None
    """The session whose conversation it is."""
    holder: object | None = None
    """The run that works on it right now; other runs must not touch it."""
    shared_tokens: int = 0
    """How many of its first tokens are instructions and tools rather than conversation, and may
    outlive the session."""
    last_use: int = 0


class KvCache:
    """Hands out sequences, pre-filled with tokens that any sequence already has."""

    def __init__(self, memory: KvCells, sequences: int) -> None:
        self._memory = memory
        self._all = [Sequence(i) for i in range(sequences)]
        self.clock = 0
        """Counts uses; if it has not changed, no other run has worked in between."""

    def acquire(self, tokens: Tokens[int], owner: object, holder: object) -> Sequence | None:
        """A sequence that holds the longest known prefix of ``tokens`` and nothing else.

        ``None`` if all sequences are in use.
        """
        target = self._choose(tokens, owner)
        if target is None:
            return None
        self._reuse(target, tokens)
        target.owner, target.holder, target.shared_tokens = owner, holder, 0
        self.touch(target)
        return target

    def touch(self, sequence: Sequence) -> None:
        """Note that the sequence is in use now."""
        self.clock += 1
        sequence.last_use = self.clock

    def release(self, sequence: Sequence, holder: object) -> None:
        """End ``holder``'s work. The tokens stay cached."""
        if sequence.holder is holder:
            sequence.holder = None

    def disown(self, owner: object) -> None:
        """Forget ``owner``'s conversation; keep instructions and tools, which others may share."""
        for sequence in self._all:
            if sequence.owner is owner:
                self.trim(sequence, sequence.shared_tokens)
                sequence.owner = sequence.holder = None

    def trim(self, sequence: Sequence, length: int) -> None:
        """Keep at most the first ``length`` tokens, or none if the model cannot drop some."""
        if length >= len(sequence.tokens):
            return
        shortened = length > 0 and self._memory.remove(sequence.id, length)
        if not shortened or not self._memory.reaches(sequence.id, length):
            self._memory.remove(sequence.id, 0)
            length = 0
        del sequence.tokens[length:]

    @property
    def conversations(self) -> int:
        """How many sessions have a conversation in the cells; at least 1."""
        owners = {id(s.owner) for s in self._all if s.owner and len(s.tokens) > s.shared_tokens}
        return max(1, len(owners))

    def evict(self) -> bool:
        """Free the cells of the least recently used idle sequence. False if none is idle."""
        idle = [s for s in self._all if s.holder is None and s.tokens]
        if idle:
            self.trim(min(idle, key=lambda s: s.last_use), 0)
        return bool(idle)

    def revoke(self, holder: object) -> bool:
        """Take the least recently used held sequence from its run, unless that is ``holder``.

        The loser notices by checking ``Sequence.holder``. False if no other run holds a sequence.
        """
        others = [s for s in self._all if s.holder not in (None, holder)]
        if others:
            min(others, key=lambda s: s.last_use).holder = None
        return bool(others)

    def _choose(self, tokens: Tokens[int], owner: object) -> Sequence | None:
        """The owner's sequence, else one without a conversation, else the least recently used.

        A sequence that would lose much is kept if another is free: the new prompt may be a side
        question, or a shorter history that is not in use yet.
        """
        idle = [s for s in self._all if s.holder is None]
        free = [s for s in idle if s.owner is None]
        if own := [s for s in idle if s.owner is owner]:
            best = min(own, key=lambda s: (-common_prefix(s.tokens, tokens), len(s.tokens)))
            if _loss(best, tokens) <= WORTH_KEEPING_TOKENS:
                return best
            own.remove(best)
            return self._cheapest(free, tokens) or min(own, key=lambda s: s.last_use, default=best)
        return self._cheapest(free, tokens) or min(idle, key=lambda s: s.last_use, default=None)

    def _cheapest(self, free: list[Sequence], tokens: Tokens[int]) -> Sequence | None:
        return min(free, key=lambda s: _loss(s, tokens), default=None)

    def _reuse(self, target: Sequence, tokens: Tokens[int]) -> None:
        """Fill ``target`` from the sequence that shares the longest prefix with ``tokens``."""
        own = common_prefix(target.tokens, tokens)
        best = max(self._all, key=lambda s: self._shareable(s, tokens))
        length = self._shareable(best, tokens)
        if length <= own or not self._memory.forgets_partly:
            self.trim(target, own)
            return
        self.trim(target, 0)
        self._memory.copy(best.id, target.id, length)
        target.tokens = list(tokens[:length])

    def _shareable(self, sequence: Sequence, tokens: Tokens[int]) -> int:
        length = common_prefix(sequence.tokens, tokens)
        return length if self._memory.reaches(sequence.id, length) else 0


def _loss(sequence: Sequence, tokens: Tokens[int]) -> int:
    """How many of its tokens a sequence would have to forget."""
    return len(sequence.tokens) - common_prefix(sequence.tokens, tokens)


def common_prefix(some: Tokens[int], others: Tokens[int]) -> int:
    """Length of the longest common prefix of two lists."""
    same, length = 0, min(len(some), len(others))
    while same < length:
        # Comparing slices is much faster than a loop over the tokens.
        middle = (same + length + 1) // 2
        if some[same:middle] == others[same:middle]:
            same = middle
        else:
            length = middle - 1
    return same
