"""A cache of values used in the last few rounds of work."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

_T = TypeVar("_T")


class Recent:
    """Values by key. A value that is not used for ``rounds`` rounds is forgotten.

    The owner decides what a round is: a prompt, or a single look-up.
    """

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._round = 0
        self._found: dict[Hashable, tuple[int, Any]] = {}

    def begin(self) -> None:
        """Begin a new round."""
        self._round += 1
        oldest = self._round - self._rounds
        self._found = {key: found for key, found in self._found.items() if found[0] >= oldest}

    def get(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """The value of ``key``, made now if unknown. Do not modify it."""
        value: _T = self._found[key][1] if key in self._found else make()
        self._found[key] = self._round, value
        return value

    def clear(self) -> None:
        self._found.clear()
