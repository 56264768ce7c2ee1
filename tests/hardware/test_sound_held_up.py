"""A program that is held up, while its drivers bring sound all the same; on a real clock."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

from hardware.settings import Sound
from hardware.sound.card import SoundCard
from hardware.sound.devices import Device
from hardware.sound.driver import Latency, Plan
from hardware.sound.notices import Lost, SoundNotice

LAPTOP = Device(0, "Laptop", 1, 1, 16_000, default_input=True, default_output=True)


class ThreadedDriver:
    """Two streams that tick every 5 ms in a thread; while ``held`` is set, they do not."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    async def devices(self) -> Sequence[Device]:
        return [LAPTOP]

    async def open(self, plan: Plan) -> Latency:
        self._ended.clear()
        self._thread = threading.Thread(target=self._tick, args=(plan,))
        self._thread.start()
        return Latency(0.01, 0.01)

    async def close(self) -> bool:
        self._ended.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        return True

    def end(self) -> None:
        pass

    def _tick(self, plan: Plan) -> None:
        while not self._ended.wait(0.005):
            if not self.held.is_set():
                now_s = time.monotonic()
                plan.on_asked(80, now_s + 0.015, now_s, False)
                plan.on_heard(memoryview(b"\1\0" * 80), now_s - 0.015, now_s, False)


async def held_up(seconds: float, driver_too: bool) -> list[SoundNotice]:
    """The card's notices if this program is held up for this long."""
    notices: list[SoundNotice] = []
    driver = ThreadedDriver()
    card = SoundCard(Sound(), notices.append, driver)
    running = asyncio.create_task(card.run())
    await asyncio.sleep(0.3)
    if driver_too:
        driver.held.set()
        threading.Timer(seconds + 0.1, driver.held.clear).start()
    time.sleep(seconds)  # noqa: ASYNC251 - the loop is what is held up
    await asyncio.sleep(0.5)
    running.cancel()
    await asyncio.wait({running})
    return notices


async def test_a_busy_event_loop_is_no_lost_device() -> None:
    assert not [notice for notice in await held_up(1.3, False) if isinstance(notice, Lost)]


async def test_a_program_that_stood_still_is_no_lost_device() -> None:
    assert not [notice for notice in await held_up(1.3, True) if isinstance(notice, Lost)]
