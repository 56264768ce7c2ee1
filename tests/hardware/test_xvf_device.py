"""The array through the real pyusb, over a fake bus that misbehaves."""

from __future__ import annotations

import contextlib
import errno
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from hardware.xvf3800.device import UsbArray, usb_backend
from hardware.xvf3800.errors import ArrayError, Problem
from tests.support.fake_usb import (
    KEYBOARD,
    REACHY,
    SEEED,
    FakeBus,
    FakeXvf,
    Fault,
    fails,
    gone,
    late,
    short,
    status,
)
from tests.support.scripted_array import raises_problem

pytestmark = pytest.mark.machine

CALL_BAR_S = 0.25
"""Time limit of any read or write, whatever the device does."""


def opened(device: FakeXvf) -> tuple[UsbArray, FakeBus]:
    bus = FakeBus(device)
    return UsbArray(bus, bus.clock, bus.clock.pause), bus


# --- finding and opening -----------------------------------------------------------------------


def test_a_reachy_is_taken_before_a_respeaker_and_a_keyboard() -> None:
    bus = FakeBus(FakeXvf(KEYBOARD), FakeXvf(SEEED), FakeXvf(REACHY))
    array = UsbArray(bus)
    assert array.board == "reachy"
    array.close()


def test_a_missing_array_is_an_error() -> None:
    with raises_problem("not found", match="USB has 1 devices") as caught:
        UsbArray(FakeBus(FakeXvf(KEYBOARD)))
    assert "lsusb" in caught.value.fix


def test_the_real_libusb_enumerates_this_machine() -> None:
    """The real library, on any machine."""
    problem = None
    try:
        UsbArray(usb_backend()).close()
    except ArrayError as error:
        problem = error.problem
    assert problem in (None, "not found", "no permission")


def test_a_missing_libusb_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import libusb_package
    import usb.backend.libusb1

    monkeypatch.setattr(libusb_package, "get_libusb1_backend", lambda: None)
    monkeypatch.setattr(usb.backend.libusb1, "get_backend", lambda: None)
    with raises_problem("no usb library"):
        usb_backend()


def test_without_permission_the_handle_is_not_kept() -> None:
    bus = FakeBus(FakeXvf(permission=False))
    with raises_problem("no permission", match="errno 13") as caught:
        UsbArray(bus)
    assert "udev" in caught.value.fix
    assert bus.open_handles == 0


def test_a_device_that_fails_at_once_is_closed() -> None:
    bus = FakeBus(FakeXvf(faults=[fails(errno.EPIPE)]))
    # The error keeps the frames alive, so nothing is closed by garbage collection.
    with raises_problem("stalled") as caught:
        UsbArray(bus, bus.clock, bus.clock.pause)
    assert (bus.opened, bus.open_handles) == (1, 0)
    assert caught.value.__traceback__ is not None


# --- reading and writing -----------------------------------------------------------------------


def test_every_parameter_of_both_boards_is_read_from_the_fake_s_own_registers() -> None:
    from hardware.xvf3800.parameters import PARAMETERS

    for ids in (REACHY, SEEED):
        array, _ = opened(FakeXvf(ids))
        for each in PARAMETERS[array.board].values():
            if each.access != "wo":
                assert len(array.read(each.name)) >= 1
        array.close()


@pytest.mark.parametrize("retries", [0, 1, 5, 15])
def test_a_value_that_is_not_ready_is_read_again(retries: int) -> None:
    device = FakeXvf()
    array, bus = opened(device)
    device.retries, before = retries, device.requests
    assert array.read("PP_DTSENSITIVE") == (1,)
    assert device.requests - before == retries + 1
    assert bus.clock.paused[-retries:] == [0.01] * retries if retries else True


# --- everything that goes wrong ----------------------------------------------------------------

WRONG: list[tuple[str, list[Fault], Problem]] = [
    ("retry for ever", [status(64)] * 200, "busy"),
    ("queue full", [status(68)], "busy"),
    ("unknown command", [status(65)], "refused"),
    ("wrong length", [status(66)], "refused"),
    ("bad payload", [status(67)], "refused"),
    ("unheard of", [status(99)], "wrong answer"),
    ("nothing", [short(0)], "wrong answer"),
    ("status only", [short(1)], "wrong answer"),
    ("one byte short", [short(4)], "wrong answer"),
    ("stall", [fails(errno.EPIPE)], "stalled"),
    ("too much", [fails(errno.EOVERFLOW)], "wrong answer"),
    ("hangs", [late(60)], "silent"),
    ("hangs after retries", [status(64)] * 8 + [late(60)], "silent"),
    ("no permission any more", [fails(errno.EACCES)], "no permission"),
    ("not permitted", [fails(errno.EPERM)], "no permission"),
    ("unplugged", [gone], "gone"),
    ("no such address", [fails(errno.ENXIO)], "gone"),
    ("busy", [fails(errno.EBUSY)], "busy"),
    ("electrical", [fails(errno.EIO)], "transfer failed"),
]


@pytest.mark.parametrize(("faults", "problem"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_every_failure_of_a_read_has_its_name_within_its_time(
    faults: list[Fault], problem: Problem
) -> None:
    device = FakeXvf()
    array, bus = opened(device)
    device.faults = list(faults)
    started = bus.clock.now
    with raises_problem(problem) as caught:
        array.read("PP_MIN_NS")
    assert caught.value.why
    assert bus.clock.now - started <= CALL_BAR_S
    if problem not in ("gone", "no permission", "transfer failed"):
        device.faults = []
        assert array.read("PP_MIN_NS") == (pytest.approx(0.15),), "the next one works"
    array.close()
    assert bus.open_handles == 0


@pytest.mark.parametrize(
    ("fault", "problem"),
    [(fails(errno.EPIPE), "stalled"), (late(60), "silent"), (short(2), "wrong answer")],
)
def test_every_failure_of_a_write_has_its_name_within_its_time(
    fault: Fault, problem: Problem
) -> None:
    device = FakeXvf()
    array, bus = opened(device)
    device.faults = [fault]
    started = bus.clock.now
    with raises_problem(problem):
        array.write("PP_MIN_NS", 0.5)
    assert bus.clock.now - started <= CALL_BAR_S


def test_a_system_without_a_driver_is_an_error() -> None:
    def unsupported(device: FakeXvf, data: Any, timeout_s: float) -> int | None:
        raise NotImplementedError("Operation not supported or unimplemented on this platform")

    with raises_problem("no driver"):
        UsbArray(FakeBus(FakeXvf(faults=[unsupported])))


def test_firmware_of_another_board_is_reported() -> None:
    """A Reachy's id with Seeed's firmware: two bytes per value instead of four."""
    device = FakeXvf(REACHY, registers={(20, 18): bytes([133, 0, 1, 0])})
    array, _ = opened(device)
    with raises_problem("refused", match="SERVICER_WRONG_COMMAND_LEN"):
        array.read("DOA_VALUE")


@given(
    some.lists(
        some.one_of(
            some.sampled_from([0, 1, 2, 64, 64, 64, 65, 68, 200]).map(status),
            some.integers(0, 5).map(short),
            some.floats(0, 0.4).map(late),
            some.sampled_from([errno.EPIPE, errno.EIO, errno.EBUSY, errno.EACCES]).map(fails),
        ),
        max_size=40,
    )
)
def test_any_mixture_of_faults_is_named_in_time(faults: list[Fault]) -> None:
    device = FakeXvf()
    array, bus = opened(device)
    device.faults = faults
    started = bus.clock.now
    with contextlib.suppress(ArrayError):
        array.read("PP_MIN_NS")
    assert bus.clock.now - started <= CALL_BAR_S
    array.close()
    assert bus.open_handles == 0


def test_after_closing_nothing_is_sent() -> None:
    device = FakeXvf()
    array, bus = opened(device)
    array.close()
    array.close()
    before = device.requests
    with raises_problem("gone", match="closed"):
        array.read("VERSION")
    assert device.requests == before
    assert bus.open_handles == 0


def test_a_lost_device_can_be_closed() -> None:
    device = FakeXvf()
    array, bus = opened(device)
    device.plugged = False
    with raises_problem("gone"):
        array.read("VERSION")
    array.close()
    assert bus.open_handles == 0


def test_threads_take_turns() -> None:
    """The fake fails on two transfers at once."""
    array, _ = opened(FakeXvf(retries=3))
    failed: list[BaseException] = []

    def read_much() -> None:
        try:
            for _ in range(50):
                with contextlib.suppress(ArrayError):  # no lock is fair on a busy machine
                    array.read("AEC_SPENERGY_VALUES")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=read_much) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
