"""A cache of values used in the last few rounds of work."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

_T = TypeVar("_T")


class Recent:
    """Values by key. A value that is not used for ``rounds`` rounds is forgotten."""

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


class Latest:
    """Values by key: the ``most`` that were used last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """As in ``Recent``."""
        value: _T = self._found.pop(key) if key in self._found else make()
        self._found[key] = value  # the newest is last
        if len(self._found) > self._most:
            del self._found[next(iter(self._found))]
        return value
