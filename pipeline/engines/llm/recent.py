"""Caches of recently used values."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

_T = TypeVar("_T")
_MOST_LATEST = 16
"""One per session, and others for answers that override the session's prompt or tools."""


class Recent:
    """Values by key. A value that is not used for ``rounds`` rounds is forgotten."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._round = 0
        self._values: dict[Hashable, tuple[int, Any]] = {}

    def begin(self) -> None:
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
    """Values by key: those that were used last."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """As in ``Recent``."""
        value: _T = self._values.pop(key) if key in self._values else make()
        self._values[key] = value  # the newest is last
        if len(self._values) > _MOST_LATEST:
            del self._values[next(iter(self._values))]
        return value
