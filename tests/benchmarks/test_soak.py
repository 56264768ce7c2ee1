"""A few minutes of the soak, and its counts."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.soak.__main__ import Memory, slope, soak
from benchmarks.soak.links import Link, Report
from benchmarks.soak.servers import virtual_soak
from tests.support.virtual_time import run_virtual

MINUTES = 1


def test_minutes_of_several_clients_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.soak.__main__.SAMPLES", 2)
    report, memory = Report(), Memory()

    async def play() -> dict[str, Any]:
        async with virtual_soak(4, 5, report) as scene:
            return await soak(scene, 60 * MINUTES, memory, report)

    left = run_virtual(play())
    assert report.problems == []
    assert left == {"open in engines": 0, "parked": 0, "tasks": 0}
    assert report.counts["response completed"] > 2
    assert report.counts["user turns"] > 2
    assert len(memory.rows) == 3


def test_a_slope_is_one_when_it_is_more_than_its_error() -> None:
    flat = [(hour / 4, 1000.0 + (-1) ** hour) for hour in range(40)]
    growing = [(hour / 4, 1000.0 + 30 * hour + (-1) ** hour) for hour in range(40)]
    assert slope(flat)["grows"] is False
    found = slope(growing)
    assert found["grows"] is True
    assert found["slope"] == pytest.approx(120, rel=0.05)


class _Deaf(Link):
    """Nothing leaves it."""

    async def send_text(self, text: str) -> None:
        pass


def test_a_response_that_does_not_end_is_a_problem() -> None:
    async def play() -> list[str]:
        link = _Deaf(Report())
        link.responses.add("resp_1")
        await link.until_silent()
        return link.report.problems

    (problem,) = run_virtual(play())
    assert "resp_1" in problem
