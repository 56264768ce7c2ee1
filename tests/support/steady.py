"""Tests in real time on a machine that its host may pause at any time."""

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
    """Retry a test that failed while the machine stood still (for more than 10 ms, as a separate
    process measures). If the machine ran on, the failure counts at once; if it stood still in every
    try, the test is skipped."""

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
