"""A body that moves the mock-up robot of ``robot_daemon``, and checks of its poses."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from hardware.robot.body import RobotBody
from hardware.robot.errors import Problem, RobotError
from hardware.settings import Robot
from pipeline.events import SpeechStarted, SpeechStopped
from tests.support.beside import beside

State = dict[str, Any]
STARTED, STOPPED = SpeechStarted("item_1", 0), SpeechStopped("item_1", 900)
FOLDED_RAD = 3.05
FOLDED = {
    "head_pose": {"x": -0.015, "z": -0.05, "pitch": 0.538},
    "antennas": [-FOLDED_RAD, FOLDED_RAD],
    "duration": 1.0,
}
"""The pose of a robot without power."""


@contextmanager
def raises_problem(problem: Problem, match: str) -> Iterator[None]:
    """Expect a ``RobotError`` with this problem and a message for people."""
    with pytest.raises(RobotError, match=match) as caught:
        yield
    error = caught.value
    assert error.problem == problem
    assert error.what
    assert error.why
    assert error.fix


@dataclass
class Notices:
    """The notices to a person, in order."""

    all: list[RobotError] = field(default_factory=list)
    _new: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, error: RobotError) -> None:
        self.all.append(error)
        self._new.set()

    def problems(self) -> list[Problem]:
        return [error.problem for error in self.all]

    async def until(self, problem: Problem, times: int = 1) -> RobotError:
        async with asyncio.timeout(10):
            while self.problems().count(problem) < times:
                await self._new.wait()
                self._new.clear()
        return next(error for error in self.all if error.problem == problem)


@asynccontextmanager
async def moving(
    url: str | None, notices: Notices | None = None, *, array_in_head: bool = True
) -> AsyncIterator[RobotBody]:
    """A running body; cancelled at the end."""
    told = notices or Notices()
    body = RobotBody(Robot(url=url), told, array_in_head=array_in_head)
    async with beside(body.run()) as running:
        yield body
    assert running.cancelled()
    if notices is None:
        assert told.all == []


def yaw_deg(state: State) -> float:
    return math.degrees(state["head_pose"]["yaw"])


def antennas(state: State) -> float:
    """Angle of the antenna farther from upright, in rad."""
    return max(abs(float(position)) for position in state["antennas_position"])


def is_neutral(state: State) -> bool:
    head = state["head_pose"]
    still = all(abs(head[key]) < 0.02 for key in head)
    return still and abs(state["body_yaw"]) < 0.03 and 0.1 < antennas(state) < 0.25


def is_folded(state: State) -> bool:
    return antennas(state) > FOLDED_RAD - 0.1 and state["head_pose"]["z"] < -0.045


def listens(state: State) -> bool:
    return 0.5 < antennas(state) < 0.6 and math.degrees(state["head_pose"]["roll"]) > 3


def thinks(state: State) -> bool:
    right, left = state["antennas_position"]
    return right < -0.7 and left < 0.25 and math.degrees(state["head_pose"]["roll"]) < -5
