"""When a child is given up: it has work, says nothing, and does not answer either."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pipeline.errors import EngineError
from pipeline.workers.child_start import LONGEST_S, StartWatch, Used
from pipeline.workers.fatal_errors import FatalErrors
from pipeline.workers.watchdog import ANSWER_S, OWN_DELAY_S, QUIET_S, Watchdog
from tests.support.virtual_time import VirtualLoop, run_virtual


class Child:
    """Notes when it is asked, and when it is given up."""

    def __init__(self) -> None:
        self.busy = True
        self.asked: list[float] = []
        self.ended: list[float] = []
        self.watchdog = Watchdog(lambda: self.busy, self._ask, self._end)

    def _ask(self) -> None:
        self.asked.append(now())

    def _end(self) -> None:
        self.ended.append(now())


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_child_that_does_not_answer_is_given_up_once() -> None:
    async def main() -> None:
        child = Child()
        await asyncio.sleep(100)
        child.watchdog.begin()
        await asyncio.sleep(50)
        assert child.asked == [100 + QUIET_S]
        assert child.ended == [100 + QUIET_S + ANSWER_S]

    run_virtual(main())


def test_a_child_that_answers_may_take_its_time() -> None:
    async def main() -> None:
        child = Child()
        child.watchdog.begin()
        for _ in range(100):
            await asyncio.sleep(ANSWER_S)
            child.watchdog.heard()
        assert len(child.asked) > 50
        assert not child.ended
        child.watchdog.stop()
        await asyncio.sleep(50)
        assert not child.ended

    run_virtual(main())


def test_an_idle_worker_is_not_pinged() -> None:
    async def main() -> None:
        child = Child()
        child.watchdog.begin()
        child.busy = False
        await asyncio.sleep(1000)
        assert not child.asked
        child.busy = True
        child.watchdog.begin()
        await asyncio.sleep(50)
        assert child.ended == [1000 + QUIET_S + ANSWER_S]

    run_virtual(main())


def test_who_slept_asks_again_before_it_gives_up() -> None:
    async def main() -> None:
        child = Child()
        child.watchdog.begin()
        await asyncio.sleep(QUIET_S + 1)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.now += ANSWER_S + OWN_DELAY_S + 1  # the whole machine was frozen
        await asyncio.sleep(1)
        assert len(child.asked) == 2
        assert not child.ended
        child.watchdog.heard()
        await asyncio.sleep(QUIET_S / 2)
        assert not child.ended
        child.watchdog.stop()

    run_virtual(main())


@pytest.mark.parametrize(
    ("since", "gets_on"),
    [
        (Used(10.0, 0, 5 * 2**20), False),
        (Used(9.0, 0, 5 * 2**20), True),
        (Used(10.0, -(2**20), 5 * 2**20), True),
        (Used(10.0, 0, 6 * 2**20), True),
        (Used(9.9, -1, 5 * 2**20 + 1), False),
    ],
)
def test_a_start_gets_on_while_it_uses_something(since: Used, gets_on: bool) -> None:
    assert Used(10.0, 0, 5 * 2**20).gets_on(since, 60.0) is gets_on


def look_at(
    watch_s: float, used: list[Used], monkeypatch: pytest.MonkeyPatch
) -> Coroutine[Any, Any, float]:
    """Seconds until a start that has ``used`` so much at each look is given up."""

    async def at_once(function: Any, pid: int) -> Used:
        return used.pop(0) if len(used) > 1 else used[0]

    async def main() -> float:
        monkeypatch.setattr(asyncio, "to_thread", at_once)
        watch = StartWatch("stt big", 1, watch_s)
        try:
            while True:
                await asyncio.sleep(watch.quiet_s)
                await watch.look()
        except EngineError as error:
            text = str(error)
        assert text.startswith(f"The stt big engine did not start within {now():.0f} s")
        return now()

    return main()


def test_a_start_that_stands_still_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_virtual(look_at(60, [Used(5.0), Used(9.0), Used(9.1)], monkeypatch)) == 180


def test_a_start_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = [Used(5.0 * n) for n in range(1, 1000)]
    assert run_virtual(look_at(60, busy, monkeypatch)) == LONGEST_S


# --- errors after which an engine is built anew ------------------------------------------------


class OutOfMemoryError(RuntimeError):
    """Called as torch's."""


FULL = OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


@pytest.mark.parametrize("error", [FULL, MemoryError(), RuntimeError("std::bad_alloc")])
def test_memory_that_is_short_twice_in_a_row_is_not_given_back(error: Exception) -> None:
    fatal = FatalErrors()
    assert fatal.of(error) is None
    fatal.succeeded()
    assert fatal.of(error) is None
    assert fatal.of(ValueError("something else")) is None
    assert "memory" in str(fatal.of(error))


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: device-side assert triggered",
        "CUDA error: an illegal memory access was encountered",
        "cudaErrorIllegalAddress",
        "CUDA error: unspecified launch failure",
    ],
)
def test_a_lost_device_is_not_tried_again(text: str) -> None:
    assert FatalErrors().of(RuntimeError(text))


def test_what_caused_an_error_counts() -> None:
    error = EngineError("The voice failed")
    error.__cause__ = RuntimeError("CUDA error: device-side assert triggered")
    assert FatalErrors().of(error)


def test_other_errors_are_not_fatal() -> None:
    fatal = FatalErrors()
    assert not any(fatal.of(ValueError("bad text")) for _ in range(5))
