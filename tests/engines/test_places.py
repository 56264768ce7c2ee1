"""Which session gets the next request at a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pipeline.engines.by_url.places import Places
from pipeline.work import CLIENT, Cancelled, Priority, Work
from reachy_voice.testing import in_virtual_time

pytestmark = pytest.mark.quick


@contextmanager
def client(number: int) -> Iterator[None]:
    token = CLIENT.set(number)
    yield
    CLIENT.reset(token)


def work(priority: Priority = Priority.CONFIRMED, of: int = 0) -> Work:
    with client(of):
        return Work(priority)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def queue(
    places: Places, works: dict[str, Work], order: list[str]
) -> list[asyncio.Task[None]]:
    async def wait(name: str) -> None:
        await places.take(works[name])
        order.append(name)

    tasks = [asyncio.create_task(wait(name)) for name in works]
    await settle()
    return tasks


async def serve(places: Places, holder: Work, works: dict[str, Work]) -> list[str]:
    """The order in which the requests get the only place."""
    order: list[str] = []
    tasks = await queue(places, works, order)
    places.give_back(holder)
    for count in range(1, len(works) + 1):
        await settle()
        assert len(order) == count, "one place, one at a time"
        places.give_back(works[order[-1]])
    await asyncio.gather(*tasks)
    return order


async def test_confirmed_and_promoted_work_goes_first() -> None:
    places, holder = Places(1), work()
    await places.take(holder)
    works = {
        "reading ahead": work(Priority.WARM_UP),
        "guess": work(Priority.SPECULATIVE),
        "guess that came true": work(Priority.SPECULATIVE),
        "answer": work(Priority.CONFIRMED),
    }
    works["guess that came true"].promote(Priority.CONFIRMED)
    order = await serve(places, holder, works)
    assert order == ["guess that came true", "answer", "guess", "reading ahead"]


async def test_a_client_with_many_requests_waits_for_one_with_few() -> None:
    places = Places(2)
    first, second = work(of=1), work(of=2)
    await places.take(first)
    await places.take(second)
    order: list[str] = []
    works = {"of 1": work(of=1), "of 1 again": work(of=1), "of 3": work(of=3)}
    tasks = await queue(places, works, order)
    places.give_back(second)
    await settle()
    assert order == ["of 3"]
    assert places.waiting == 2
    places.give_back(first)
    await settle()
    assert order == ["of 3", "of 1"]
    places.give_back(works["of 3"])
    await asyncio.gather(*tasks)


@in_virtual_time
async def test_the_number_of_requests_at_once_is_limited() -> None:
    places = Places(3)
    works = [work() for _ in range(3)]
    for one in works:
        await places.take(one)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await places.take(work())
    assert places.waiting == 0
    places.give_back(works[0])
    await places.take(work())


async def test_the_number_of_places_may_change() -> None:
    places, holders = Places(2), [work(), work()]
    for holder in holders:
        await places.take(holder)
    order: list[str] = []
    works = {"one": work(), "two": work()}
    tasks = await queue(places, works, order)
    places.resize(1)
    places.give_back(holders[0])
    await settle()
    assert order == [], "the only place is taken"
    places.resize(3)
    await asyncio.gather(*tasks)
    assert order == ["one", "two"]


async def test_cancelled_work_stops_waiting() -> None:
    places, holder = Places(1), work()
    await places.take(holder)
    given_up = work()
    waiting = asyncio.create_task(places.take(given_up))
    await settle()
    given_up.cancel()
    with pytest.raises(Cancelled):
        await waiting
    with pytest.raises(Cancelled):
        await places.take(given_up)
    assert places.waiting == 0
    places.give_back(holder)
    await places.take(work())


async def test_a_place_given_to_a_task_that_is_cancelled_is_not_lost() -> None:
    places, holder = Places(1), work()
    await places.take(holder)
    waiting = asyncio.create_task(places.take(work()))
    await settle()
    places.give_back(holder)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await places.take(work())
