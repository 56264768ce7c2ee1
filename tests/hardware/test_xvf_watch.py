"""The watch over an array, in virtual time and with real threads."""

from __future__ import annotations

import asyncio
import errno
import gc
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from hardware.xvf3800.control import ArrayControl
from hardware.xvf3800.device import UsbArray
from hardware.xvf3800.errors import ArrayError, Problem, array_error
from hardware.xvf3800.rebooting import restart
from hardware.xvf3800.watch import (
    ArrayFound,
    ArrayLost,
    ArrayNotice,
    ArrayReading,
    ArrayWatch,
)
from pipeline.work import in_thread
from reachy_voice.testing import in_virtual_time, run_virtual
from tests.support.beside import beside
from tests.support.fake_usb import REACHY, FakeBus, FakeXvf, fails
from tests.support.scripted_array import ScriptedArray, Slowly, raises_problem

pytestmark = pytest.mark.quick

T = TypeVar("T")


@dataclass
class Scene:
    """A watch over scripted arrays: each opening takes the next; an exception is raised."""

    openings: Sequence[ArrayControl | ArrayError]
    call: Slowly = field(default_factory=Slowly)
    notices: list[tuple[float, ArrayNotice]] = field(default_factory=list)
    opened: int = 0

    def open(self) -> ArrayControl:
        thing = self.openings[min(self.opened, len(self.openings) - 1)]
        self.opened += 1
        if isinstance(thing, ArrayError):
            raise thing
        return thing

    def note(self, notice: ArrayNotice) -> None:
        self.notices.append((asyncio.get_running_loop().time(), notice))

    async def watch_for(self, seconds: float) -> ArrayWatch:
        watch = ArrayWatch(self.open, self.note, self.call)
        run = asyncio.create_task(watch.run())
        await asyncio.sleep(seconds)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        return watch

    def of(self, kind: type[T]) -> list[tuple[float, T]]:
        return [(at, notice) for at, notice in self.notices if isinstance(notice, kind)]


def watched(
    seconds: float, *openings: ArrayControl | ArrayError, takes_s: float = 0.0
) -> tuple[Scene, ArrayWatch]:
    scene = Scene(openings, Slowly(takes_s))
    return scene, run_virtual(scene.watch_for(seconds))


# --- reading -----------------------------------------------------------------------------------


def test_it_reads_ten_times_a_second() -> None:
    array = ScriptedArray()
    scene, _ = watched(1.05, array)
    readings = scene.of(ArrayReading)
    assert [at for at, _ in readings] == pytest.approx([n / 10 for n in range(11)])
    last = readings[-1][1]
    assert last.direction.azimuth_deg == pytest.approx(90)
    assert last.direction.speech
    assert (last.beam_energies, last.aec_converged) == ((1.0, 0.0, 2.0, 3.0), True)
    assert array.reads.count("AEC_AECCONVERGED") == 2
    assert not array.open


def test_slow_readings_are_skipped_and_never_pile_up() -> None:
    scene, _ = watched(2.0, ScriptedArray(), takes_s=0.23)
    readings = scene.of(ArrayReading)
    # Opened after 0.23 s, then one reading each 0.3 s: every third tick of the clock.
    assert [at for at, _ in readings] == pytest.approx([0.46, 0.76, 1.06, 1.36, 1.66, 1.96])
    assert scene.call.most_at_once == 1


def test_without_speech_the_last_angle_stays() -> None:
    array = ScriptedArray({"DOA_VALUE_RADIANS": [(1.0, 1.0), (math.nan, 0.0)]})
    scene, _ = watched(0.15, array)
    first, second = (reading.direction for _, reading in scene.of(ArrayReading))
    assert first.azimuth_deg == second.azimuth_deg == pytest.approx(math.degrees(1.0))
    assert (first.speech, second.speech) == (True, False)


@pytest.mark.parametrize(
    ("firmware", "asked", "azimuth_deg"),
    [("2.0.9", "AEC_AZIMUTH_VALUES", 180), ("2.0.10", "DOA_VALUE", 90), ("2.1.0", "DOA_VALUE", 90)],
)
def test_old_firmware_of_seeed_is_asked_for_its_beam(
    firmware: str, asked: str, azimuth_deg: float
) -> None:
    array = ScriptedArray(board="seeed", firmware=firmware)
    scene, _ = watched(0.05, array)
    assert asked in array.reads
    assert scene.of(ArrayReading)[0][1].direction.azimuth_deg == pytest.approx(azimuth_deg)


def test_parameters_that_a_firmware_lacks_are_read_once() -> None:
    refused = array_error("refused", "unknown")
    array = ScriptedArray(
        dict.fromkeys(("DOA_VALUE_RADIANS", "AEC_SPENERGY_VALUES", "AEC_AECCONVERGED"), refused)
    )
    scene, _ = watched(0.55, array)
    reading = scene.of(ArrayReading)[-1][1]
    assert reading.direction.azimuth_deg == pytest.approx(180)
    assert (reading.direction.speech, reading.aec_converged) == (False, None)
    assert array.reads.count("AEC_SPENERGY_VALUES") == 1
    assert array.reads.count("DOA_VALUE_RADIANS") == 1


def test_a_daemon_is_polled_less_often() -> None:
    array = ScriptedArray(via="daemon")
    scene, _ = watched(0.95, array)
    assert len(scene.of(ArrayReading)) == 10
    assert array.reads.count("AEC_SPENERGY_VALUES") == 2


# --- losing and finding ------------------------------------------------------------------------


def test_a_hiccup_costs_one_reading() -> None:
    array = ScriptedArray({"DOA_VALUE_RADIANS": [(1.0, 1.0), array_error("busy", "x"), (1.0, 1.0)]})
    scene, _ = watched(0.35, array)
    assert [at for at, _ in scene.of(ArrayReading)] == pytest.approx([0.0, 0.2, 0.3])
    assert scene.of(ArrayLost) == []


def test_a_device_with_only_hiccups_is_reopened() -> None:
    first = ScriptedArray({"DOA_VALUE_RADIANS": [(1.0, 1.0), array_error("busy", "x")]})
    scene, _ = watched(3.0, first, ScriptedArray())
    assert not first.open
    assert scene.opened == 2
    assert len(scene.of(ArrayFound)) == 2


def test_an_array_that_comes_later_is_found_with_a_growing_wait() -> None:
    none = array_error("not found", "none")
    array = ScriptedArray()
    scene, watch = watched(12.1, none, none, none, none, none, none, array)
    found = [at for at, _ in scene.of(ArrayFound)]
    assert found == pytest.approx([0.25 + 0.5 + 1 + 2 + 4 + 4])
    assert len(scene.of(ArrayLost)) == 1, "told once"
    assert watch.latest is not None


def test_alternating_reasons_are_reported_once_each() -> None:
    """Like a daemon that starts, fails and starts again."""
    away, none, busy = (
        array_error("daemon away", "refused"),
        array_error("not found", "503"),
        array_error("busy", "500"),
    )
    scene, _ = watched(60.0, *[away, none, busy] * 20)
    assert [lost.error.problem for _, lost in scene.of(ArrayLost)] == ["daemon away", "busy"]


@in_virtual_time
async def test_a_restarted_array_is_reopened_even_if_it_keeps_answering() -> None:
    """As through a daemon that keeps the last direction; the tuning is lost."""
    first, second = ScriptedArray(via="daemon"), ScriptedArray(via="daemon")
    scene = Scene([first, second])

    watch = ArrayWatch(scene.open, scene.note, scene.call)
    async with beside(watch.run()):
        await asyncio.sleep(0.25)
        await watch.restart()
        await asyncio.sleep(1.0)
        assert watch.control is second
    assert (first.writes, first.open, scene.opened) == ([("REBOOT", (1,))], False, 2)


def test_a_second_loss_is_reported_again() -> None:
    def short_lived() -> ScriptedArray:
        return ScriptedArray({"DOA_VALUE_RADIANS": [(1.0, 1.0), array_error("gone", "x")]})

    scene, _ = watched(0.9, short_lived(), short_lived(), ScriptedArray())
    assert [
        type(notice).__name__ for _, notice in scene.notices if type(notice) is not ArrayReading
    ] == [
        "ArrayFound",
        "ArrayLost",
        "ArrayFound",
        "ArrayLost",
        "ArrayFound",
    ]


def test_an_array_without_readings_is_reported_lost_once() -> None:
    silent = ScriptedArray({"DOA_VALUE_RADIANS": array_error("gone", "x")})
    scene, _ = watched(20.0, silent)
    assert scene.opened > 5
    assert [type(notice) for _, notice in scene.notices] == [ArrayLost]


@pytest.mark.parametrize("cancel_at_s", [0.0, 0.1, 0.15, 0.3, 0.45, 0.55, 0.7])
def test_it_closes_whenever_cancelled(cancel_at_s: float) -> None:
    array = ScriptedArray()
    scene, _ = watched(cancel_at_s, array, takes_s=0.2)
    assert scene.opened == 0 or not array.open


def test_a_hundred_unplugs_in_real_threads_leave_no_handle_and_no_thread() -> None:
    device = FakeXvf(REACHY)
    bus = FakeBus(device)
    lost: list[Problem] = []
    found = 0

    def open_array() -> ArrayControl:
        return UsbArray(bus, bus.clock, bus.clock.pause)

    async def scene() -> None:
        readings = asyncio.Queue[ArrayNotice]()
        watch = ArrayWatch(open_array, readings.put_nowait)

        async def unplug_and_replug() -> None:
            nonlocal found
            for _ in range(100):
                while not isinstance(notice := await readings.get(), ArrayReading):
                    if isinstance(notice, ArrayLost):
                        lost.append(notice.error.problem)
                    else:
                        found += 1
                device.plugged = False
                while not isinstance(await readings.get(), ArrayLost):
                    pass
                lost.append("gone")
                device.restart()
                device.plugged = True

        run = asyncio.create_task(watch.run())
        await unplug_and_replug()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    before = threading.active_count()
    with pytest.MonkeyPatch.context() as patch:
        # No real waiting, neither for the next reading nor before the next search.
        patch.setattr("hardware.xvf3800.watch.PERIOD_S", 1e-4)
        patch.setattr("hardware.xvf3800.watch.BACK_OFF_S", (0.0,))
        asyncio.run(scene())
    gc.collect()
    assert (len(lost), found) == (100, 100)
    assert bus.open_handles == 0
    assert bus.opened >= 100
    assert threading.active_count() <= before


async def test_a_cancelled_caller_waits_for_the_thread() -> None:
    entered, let_go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    ended = []

    def blocks() -> None:
        loop.call_soon_threadsafe(entered.set)
        let_go.wait(10)
        ended.append(True)

    call = asyncio.create_task(in_thread(blocks))
    await entered.wait()
    call.cancel()
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.sleep(0)
    assert not call.done()
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert ended == [True]


@pytest.mark.parametrize("number", [errno.ENODEV, errno.EIO, errno.EPIPE])
def test_a_device_that_leaves_without_an_answer_counts_as_restarted(number: int) -> None:
    device = FakeXvf(REACHY)
    bus = FakeBus(device)
    control = UsbArray(bus, bus.clock, bus.clock.pause)
    device.faults = [fails(number)]
    restart(control)
    control.close()


def test_a_refused_restart_counts_only_over_usb() -> None:
    refused = {"write REBOOT": array_error("refused", "not applied")}
    restart(ScriptedArray(refused, via="daemon"))
    with raises_problem("refused"):
        restart(ScriptedArray(refused))
