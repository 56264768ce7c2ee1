"""What is changed of an array is put back: presets, and single parameters."""

from __future__ import annotations

import errno

import pytest

from hardware.xvf3800.borrowed import BorrowedArray
from hardware.xvf3800.errors import ArrayStalled
from hardware.xvf3800.presets import PRESETS, apply_preset, tuned
from tests.hardware.test_xvf_device import opened
from tests.support.fake_usb import REACHY, SEEED, FakeXvf, fails, late


def test_a_preset_is_applied_and_taken_back() -> None:
    device = FakeXvf()
    before = dict(device.registers)
    array, bus = opened(device)
    control = tuned(array, "reachy-app")
    assert control.read("PP_MIN_NS") == (pytest.approx(0.8),)
    assert control.read("PP_MGSCALE") == (4.0, 1.0, 1.0)
    control.close()
    assert device.registers == before
    assert bus.open_handles == 0


def test_a_preset_that_fails_half_way_leaves_nothing_behind() -> None:
    device = FakeXvf(SEEED, retries=0)
    before = dict(device.registers)
    array, bus = opened(device)
    # A read and a write for each parameter: the third one's write stalls.
    passes = [late(0)] * 5
    device.faults = [*passes, fails(errno.EPIPE)]
    with pytest.raises(ArrayStalled):
        tuned(array, "reachy-app")
    # Two were written; all three are put back, because the third may have arrived all the same.
    assert [key for key, _ in device.writes] == [(17, 11), (17, 21), (17, 22), (17, 21), (17, 11)]
    assert device.registers == before
    assert bus.open_handles == 0


def test_one_value_that_cannot_be_put_back_keeps_no_other() -> None:
    device = FakeXvf(REACHY, retries=0)
    before = dict(device.registers)
    array, bus = opened(device)
    control = tuned(array, "reachy-app")
    device.faults = [fails(errno.EPIPE)]  # the last one, which goes back first
    control.close()
    kept = {key for key in before if device.registers[key] != before[key]}
    assert kept == {(17, 29)}
    assert bus.open_handles == 0


def test_a_value_that_is_changed_twice_goes_back_to_the_first() -> None:
    device = FakeXvf()
    array, _ = opened(device)
    control = BorrowedArray(array)
    control.write("PP_DTSENSITIVE", 5)
    control.write("pp_dtsensitive", 12)
    control.close()
    assert device.registers[(17, 31)] == bytes([1, 0, 0, 0])


def test_closing_a_borrowed_array_that_is_gone_raises_nothing() -> None:
    device = FakeXvf()
    array, bus = opened(device)
    control = tuned(array, "asr-beam")
    device.plugged = False
    control.close()
    assert bus.open_handles == 0


@pytest.mark.parametrize("ids", [REACHY, SEEED])
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_suits_every_board(name: str, ids: tuple[int, int]) -> None:
    device = FakeXvf(ids)
    array, _ = opened(device)
    apply_preset(array, name)
    assert len(device.writes) == len(PRESETS[name].settings)
