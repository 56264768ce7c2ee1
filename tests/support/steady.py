"""Tests in real time, on a machine that its host may stop whenever it likes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.machine import watched

TRIES = 6


def on_a_steady_machine(test: Callable[..., Any]) -> Callable[..., Any]:
    """Try again where it failed and the machine stood still meanwhile (for more than 10 ms, as a
    process tells that does nothing else). A failure on a machine that went on is one at once; where
    it stood still each time nothing can be said, and the test is skipped."""

    @functools.wraps(test)
    def tried(*args: Any, **kwargs: Any) -> None:
        for _ in range(TRIES):
            with _forgiving():
                test(*args, **kwargs)
                return
        _give_up()

    @functools.wraps(test)
    async def awaited(*args: Any, **kwargs: Any) -> None:
        for _ in range(TRIES):
            with _forgiving():
                await test(*args, **kwargs)
                return
        _give_up()

    return awaited if inspect.iscoroutinefunction(test) else tried


@contextmanager
def _forgiving() -> Iterator[None]:
    with watched() as stops:
        failure = None
        try:
            yield
        except Exception as error:
            failure = error
    if failure is not None and not stops():
        raise failure


def _give_up() -> None:
    pytest.skip(f"the machine stood still in each of {TRIES} tries")
