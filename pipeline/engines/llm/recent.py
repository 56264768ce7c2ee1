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
        self._values: dict[Hashable, tuple[int, Any]] = {}

    def begin(self) -> None:
        """Begin a new round."""
        self._round += 1
        oldest = self._round - self._rounds
        self._values = {key: value for key, value in self._values.items() if value[0] >= oldest}

    def get(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """The value of ``key``, made now if unknown. Do not modify it."""
        value: _T = self._values[key][1] if key in self._values else make()
        self._values[key] = self._round, value
        return value

    def clear(self) -> None:
        self._values.clear()


class Latest:
    """Values by key: the ``most`` that were used last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """As in ``Recent``."""
        value: _T = self._values.pop(key) if key in self._values else make()
        self._values[key] = value  # the newest is last
        if len(self._values) > self._most:
            del self._values[next(iter(self._values))]
        return value
