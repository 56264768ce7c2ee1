"""The bus: all subscribers see one order; a slow reader is dropped, and blocks nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pipeline.bus import Bus, Published, SlowSubscriber
from pipeline.events import Event, InputCleared, ItemDeleted
from reachy_voice.testing import in_virtual_time

pytestmark = pytest.mark.quick


@in_virtual_time
async def test_every_subscriber_sees_every_event_with_its_time() -> None:
    bus = Bus()
    first, second = bus.subscribe(), bus.subscribe()
    bus.publish(InputCleared())
    await asyncio.sleep(1.5)
    bus.publish(ItemDeleted("a"))
    bus.close()
    expected = [(0.0, InputCleared()), (1.5, ItemDeleted("a"))]
    assert [entry async for entry in first] == expected
    assert [entry async for entry in second] == expected


@in_virtual_time
async def test_a_reader_that_falls_behind_gets_an_error() -> None:
    bus = Bus()
    wire = bus.subscribe(capacity=2)
    for n in range(3):
        bus.publish(ItemDeleted(str(n)))
    with pytest.raises(SlowSubscriber):
        async for _ in wire:
            pass


def broken(*published: Any) -> Iterable[Event]:
    raise RuntimeError


@pytest.mark.parametrize("join", [lambda bus: bus.tap(broken), lambda bus: bus.derive(broken)])
@in_virtual_time
async def test_a_listener_that_raises_does_not_keep_an_event_from_others(
    join: Callable[[Bus], None],
) -> None:
    bus, heard = Bus(), list[Published]()
    join(bus)
    bus.tap(heard.append)
    bus.publish(ItemDeleted("a"))
    assert [published.event for published in heard] == [ItemDeleted("a")]
