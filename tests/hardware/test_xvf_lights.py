"""An array's lights and its restart, in virtual time."""

from __future__ import annotations

import asyncio
import errno

import pytest

from hardware.xvf3800.control import ArrayControl
from hardware.xvf3800.device import UsbArray
from hardware.xvf3800.errors import (
    ArrayBusy,
    ArrayNotFound,
    ArrayRefused,
    RebootFailed,
)
from hardware.xvf3800.lights import Lights
from hardware.xvf3800.presets import tuned
from hardware.xvf3800.rebooting import reboot, restart
from tests.support.fake_usb import REACHY, SEEED, FakeBus, FakeXvf, fails, ints
from tests.support.scripted_array import ScriptedArray, Slowly
from tests.support.virtual_time import run_virtual

# --- lights ------------------------------------------------------------------------------------


def lit(control: ArrayControl | None, *states: str, call: Slowly | None = None) -> Lights:
    async def scene() -> Lights:
        lights = Lights(lambda: control, call or Slowly())
        for state in states:
            await lights.show(state)  # type: ignore[arg-type]
        return lights

    lights: Lights = run_virtual(scene())
    return lights


def test_each_state_has_its_light_and_the_effect_comes_last() -> None:
    array = ScriptedArray(board="seeed")
    lit(array, "listening", "thinking", "speaking", "idle")
    assert [values for name, values in array.writes if name == "LED_EFFECT"] == [
        (4,),
        (1,),
        (3,),
        (0,),
    ]
    assert array.writes[0] == ("LED_DOA_COLOR", (0x101010, 0x00A0FF))


def test_what_is_lit_already_is_not_sent_again() -> None:
    array = ScriptedArray(board="seeed")
    lit(array, "listening", "listening", "listening")
    assert len(array.writes) == 2


def test_a_reachy_has_no_lights() -> None:
    array = ScriptedArray(board="reachy")
    lit(array, "listening", "speaking")
    lit(None, "listening")
    assert array.writes == []


def test_while_one_state_is_being_sent_only_the_last_wish_counts() -> None:
    array = ScriptedArray(board="seeed")

    async def scene() -> None:
        lights = Lights(lambda: array, Slowly(0.2))
        async with asyncio.TaskGroup() as group:
            for state in ("listening", "thinking", "idle", "speaking"):
                group.create_task(lights.show(state))  # type: ignore[arg-type]

    run_virtual(scene())
    assert [values for name, values in array.writes if name == "LED_EFFECT"] == [(4,), (3,)]


def test_a_firmware_without_lights_is_asked_once_and_a_hiccup_again() -> None:
    array = ScriptedArray({"write LED_COLOR": ArrayRefused("unknown")}, board="seeed")
    lit(array, "speaking", "listening")
    assert array.writes == []
    array = ScriptedArray({"write LED_COLOR": ArrayBusy("x")}, board="seeed")
    lit(array, "speaking", "listening")
    assert array.writes[-1] == ("LED_EFFECT", (4,))


def test_the_lights_are_as_before_when_the_array_is_closed() -> None:
    device = FakeXvf(SEEED)
    before = dict(device.registers)
    bus = FakeBus(device)
    control = tuned(UsbArray(bus, bus.clock, bus.clock.pause), None)
    lit(control, "thinking", "speaking")
    assert device.registers[(20, 12)] == bytes([3])
    assert device.registers[(20, 16)] == ints(0x0030FF)
    control.close()
    assert device.registers == before


# --- restart -----------------------------------------------------------------------------------


def test_a_restart_waits_until_the_device_is_back() -> None:
    device = FakeXvf(REACHY)
    bus = FakeBus(device)

    def open_array() -> UsbArray:
        return UsbArray(bus, bus.clock, bus.clock.pause)

    async def scene() -> tuple[float, ArrayControl]:
        control = open_array()
        control.write("PP_MIN_NS", 0.8)
        loop = asyncio.get_running_loop()
        device_back = loop.call_later(4.2, lambda: setattr(device, "plugged", True))
        back = asyncio.create_task(reboot(control, open_array, Slowly()))
        await asyncio.sleep(0.01)
        device.plugged = False
        again = await back
        assert device_back.when() <= loop.time()
        return loop.time(), again

    took_s, again = run_virtual(scene())
    assert took_s == pytest.approx(4.5)
    assert device.reboots == 1
    assert again.read("PP_MIN_NS") == (pytest.approx(0.15),), "volatile"
    again.close()
    assert bus.open_handles == 0


def test_a_device_that_leaves_before_it_has_answered_is_restarted_all_the_same() -> None:
    device = FakeXvf(REACHY)
    bus = FakeBus(device)
    control = UsbArray(bus, bus.clock, bus.clock.pause)
    for number in (errno.ENODEV, errno.EIO, errno.EPIPE):
        device.faults = [fails(number)]
        restart(control)
    control.close()
    daemon = ScriptedArray({"write REBOOT": ArrayRefused("not applied")}, via="daemon")
    restart(daemon)
    with pytest.raises(ArrayRefused):
        restart(ScriptedArray({"write REBOOT": ArrayRefused("unknown")}))


def test_a_device_that_does_not_come_back_is_given_up() -> None:
    array = ScriptedArray()

    def nothing() -> ArrayControl:
        raise ArrayNotFound("none")

    async def scene() -> float:
        with pytest.raises(RebootFailed):
            await reboot(array, nothing, Slowly())
        return asyncio.get_running_loop().time()

    assert run_virtual(scene()) <= 15
    assert array.writes == [("REBOOT", (1,))]
    assert not array.open
