"""A scripted microphone array, its errors, and thread calls that take virtual time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from hardware.xvf3800.boards import Board
from hardware.xvf3800.codec import Values
from hardware.xvf3800.control import Via
from hardware.xvf3800.errors import ArrayError, Problem

T = TypeVar("T")


@contextmanager
def raises_problem(
    problem: Problem, match: str | None = None
) -> Iterator[pytest.ExceptionInfo[ArrayError]]:
    """Expect an ``ArrayError`` with this problem."""
    with pytest.raises(ArrayError, match=match) as caught:
        yield caught
    assert caught.value.problem == problem


@dataclass
class Slowly:
    """Replaces a thread: makes the call at once, then takes this much virtual time."""

    takes_s: float = 0.0
    at_once: int = 0
    most_at_once: int = 0

    async def __call__(self, function: Callable[[], T]) -> T:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.takes_s)
            return function()
        finally:
            self.at_once -= 1


@dataclass
class ScriptedArray:
    """A control with scripted answers; an exception among them is raised."""

    answers: dict[str, Any] = field(default_factory=dict)
    board: Board = "reachy"
    firmware: str = "2.1.4"
    via: Via = "usb"
    reads: list[str] = field(default_factory=list)
    writes: list[tuple[str, tuple[float, ...]]] = field(default_factory=list)
    open: bool = True

    def read(self, name: str) -> Values | str:
        self.reads.append(name)
        usual = {
            "DOA_VALUE_RADIANS": (math.pi / 2, 1.0),
            "DOA_VALUE": (90, 1),
            "AEC_AZIMUTH_VALUES": (0.0, 0.0, 0.0, math.pi),
            "AEC_SPENERGY_VALUES": (1.0, 0.0, 2.0, 3.0),
            "AEC_AECCONVERGED": (1,),
        }
        answer: Any = {**usual, **self.answers}[name]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Exception):
            raise answer
        values: Values | str = answer
        return values

    def write(self, name: str, *values: float) -> None:
        if isinstance(answer := self.answers.get(f"write {name}"), Exception):
            raise answer
        self.writes.append((name, values))

    def close(self) -> None:
        self.open = False
