"""An XVF3800 below the real pyusb: a ``usb.backend.IBackend`` that speaks its control protocol.

Written after the reference (C1, C2), not after the code under test: its registers are raw bytes by
servicer and command. It misbehaves on demand, and counts what was opened and closed. It has a fake
clock, which a hanging transfer advances without sleeping.
"""

from __future__ import annotations

import array
import errno
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import usb.backend
import usb.core

REACHY, SEEED = (0x38FB, 0x1001), (0x2886, 0x001A)
KEYBOARD = (0x046D, 0xC31C)

Key = tuple[int, int]
Fault = Callable[["FakeXvf", "array.array[int]", float], "int | None"]
"""Replaces one transfer (data, timeout in s) and returns its byte count; None: do the real
transfer."""


class FakeClock:
    """Seconds, advanced by the waiting code."""

    def __init__(self) -> None:
        self.now = 100.0
        self.paused: list[float] = []

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.move(seconds)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def _registers(ids: tuple[int, int]) -> dict[Key, bytes]:
    """A board's registers after power-on. Values without a source are made up."""
    common = {
        (48, 0): bytes([2, 1, 4]),
        (48, 1): b"ua-io16-lin".ljust(50, b"\0"),
        (48, 2): b"build host".ljust(30, b"\0"),
        (48, 3): b"0123abc".ljust(40, b"\0"),
        (48, 4): b"false\0",
        (48, 5): b"SPI",
        (48, 8): bytes([16, 16]),
        (20, 0): bytes([0, 0, 0, 1, 0]),
        (20, 12): bytes([4]),
        (20, 13): bytes([255]),
        (20, 14): bytes([1]),
        (20, 15): bytes([1]),
        (20, 16): ints(0x00FF00),
        (20, 17): ints(0x000011, 0x00FF00),
        (33, 0): ints(0),
        (33, 1): ints(2),
        (33, 2): floats(1e-9, 1e-9),
        (33, 3): ints(1),
        (33, 4): ints(2),
        (33, 5): floats(0.0),
        (33, 6): floats(0.5),
        (33, 7): floats(0.01),
        (33, 8): floats(0.1),
        (33, 9): floats(0.35),
        (33, 35): ints(0),
        (33, 36): floats(1.0),
        (33, 37): ints(0),
        (33, 38): floats(0.5, 0.5),
        (33, 70): bytes([0]),
        (33, 71): ints(4),
        (33, 72): ints(1),
        (33, 73): ints(1),
        (33, 74): floats(*[0.01 * n for n in range(12)]),
        (33, 75): floats(0.91378, 0.0, 1.5708, 0.91378),
        (33, 80): floats(2080656.0, 0.0, 2083455.0, 2080656.0),
        (33, 81): floats(0.0, 1.0),
        (33, 82): floats(0.0, 0.0),
        (33, 83): bytes([0]),
        (35, 0): floats(10.0),
        (35, 1): floats(1.5),
        (35, 11): floats(float("nan"), 0.91378),
        (35, 12): bytes([3, 3]),
        (35, 13): bytes([0, 0]),
        (35, 14): bytes([0, 0]),
        (35, 15): bytes([8, 0]),
        (35, 19): bytes([0, 0]),
        (35, 23): bytes([8, 0, 8, 0, 8, 0, 0, 0, 0, 0, 0, 0]),
        (35, 25): bytes([0]),
        (35, 26): ints(12),
        (17, 10): ints(1),
        (17, 11): floats(32.0),
        (17, 12): floats(0.0045),
        (17, 13): floats(32.0),
        (17, 14): floats(0.9),
        (17, 15): floats(0.1),
        (17, 19): ints(1),
        (17, 20): floats(0.47),
        (17, 21): floats(0.15),
        (17, 22): floats(0.51),
        (17, 23): ints(1),
        (17, 24): floats(1.0),
        (17, 25): floats(1.0),
        (17, 26): floats(1.1),
        (17, 27): ints(1),
        (17, 28): ints(0),
        (17, 29): floats(1000.0, 1.0, 1.0),
        (17, 30): floats(1000.0),
        (17, 31): ints(1),
        (17, 32): ints(0),
        (17, 33): floats(1.0),
        (17, 34): floats(1.0),
    }
    # As in Pollen's guide: 133 degrees; 0.541 rad; speech.
    own = (
        {(20, 18): ints(133, 1), (20, 19): floats(0.5410520434379578, 1.0)}
        if ids == REACHY
        else {
            (20, 18): struct.pack("<2H", 133, 1),
            (20, 19): ints(*range(12)),
            (33, 73): ints(2),
            (48, 1): b"ua-io16-sqr".ljust(50, b"\0"),
        }
    )
    return {**common, **own}


ORDERS: dict[Key, int] = {(48, 7): 1, (48, 9): 1, (48, 10): 1, (20, 1): 2}
"""Write-only commands -> bytes."""
READ_ONLY = (
    {(48, n) for n in range(6)}
    | {(20, 0), (20, 18), (35, 11)}
    | {(33, n) for n in (0, 3, 9, 71, 72, 73, 74, 75, 80)}
)


@dataclass
class FakeXvf:
    """One device on the bus. ``retries``: a read answers 64 this often before it is ready."""

    ids: tuple[int, int] = REACHY
    retries: int = 1
    address: int = 5
    takes_s: float = 0.001
    permission: bool = True
    registers: dict[Key, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    writes: list[tuple[Key, bytes]] = field(default_factory=list)
    plugged: bool = True
    reboots: int = 0
    requests: int = 0
    waiting: dict[Key, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registers = {**_registers(self.ids), **self.registers}

    def answer(self, key: Key, length: int) -> bytes:
        """A read's status and bytes."""
        value = self.registers.get(key)
        if value is None:
            return bytes([65]) + bytes(length - 1)
        if length != len(value) + 1:
            return bytes([66]) + bytes(length - 1)
        left = self.waiting.setdefault(key, self.retries)
        if left > 0:
            self.waiting[key] = left - 1
            return bytes([64]) + bytes(length - 1)
        del self.waiting[key]
        return bytes([0]) + value

    def take(self, key: Key, data: bytes) -> None:
        size = ORDERS.get(key) or len(self.registers.get(key, b""))
        if len(data) != size or (key in READ_ONLY):
            raise error(errno.EPIPE)
        if self.ids == REACHY and key == (20, 19):
            raise error(errno.EPIPE)
        self.writes.append((key, data))
        if key == (48, 7):
            self.reboots += 1
            self.restart()
        elif key not in ORDERS:
            self.registers[key] = data

    def restart(self) -> None:
        """Lose volatile parameters, leave the bus and come back at another address."""
        self.registers = _registers(self.ids)
        self.address += 1


def error(number: int) -> usb.core.USBError:
    return usb.core.USBError(f"made up {errno.errorcode[number]}", None, number)


# --- faults ------------------------------------------------------------------------------------


def fails(number: int) -> Fault:
    """The transfer ends with this errno."""

    def fault(device: FakeXvf, data: array.array[int], timeout_s: float) -> int | None:
        raise error(number)

    return fault


def gone(device: FakeXvf, data: array.array[int], timeout_s: float) -> int | None:
    """Unplugged in the middle of the transfer."""
    device.plugged = False
    raise error(errno.ENODEV)


def status(code: int) -> Fault:
    """Answer with this status."""

    def fault(device: FakeXvf, data: array.array[int], timeout_s: float) -> int | None:
        data[0] = code
        return len(data)

    return fault


def short(length: int) -> Fault:
    """Answer with this many bytes, the first of them 0."""

    def fault(device: FakeXvf, data: array.array[int], timeout_s: float) -> int | None:
        data[:length] = array.array("B", bytes(length))
        return length

    return fault


def late(seconds: float) -> Fault:
    """Take this long, then do the real transfer."""

    def fault(device: FakeXvf, data: array.array[int], timeout_s: float) -> int | None:
        device.takes_s += seconds
        return None

    return fault


Handle = tuple[FakeXvf, int]
"""A device and the address at which it was opened."""


class FakeBus(usb.backend.IBackend):  # type: ignore[misc]
    def __init__(self, *devices: FakeXvf) -> None:
        self.devices = list(devices)
        """Plugged in."""
        self.clock = FakeClock()
        self.open_handles = 0
        """Opened and not closed."""
        self.opened = 0
        self.lock = threading.Lock()
        self.inside = 0

    def enumerate_devices(self) -> Iterator[FakeXvf]:
        return iter([device for device in self.devices if device.plugged])

    def get_device_descriptor(self, dev: FakeXvf) -> SimpleNamespace:
        vendor, product = dev.ids
        return SimpleNamespace(
            bLength=18,
            bDescriptorType=1,
            bcdUSB=0x200,
            bDeviceClass=0xEF,
            bDeviceSubClass=2,
            bDeviceProtocol=1,
            bMaxPacketSize0=64,
            idVendor=vendor,
            idProduct=product,
            bcdDevice=0x214,
            iManufacturer=1,
            iProduct=3,
            iSerialNumber=0,
            bNumConfigurations=1,
            address=dev.address,
            bus=1,
            port_number=2,
            port_numbers=(2,),
            speed=3,
        )

    def open_device(self, dev: FakeXvf) -> Handle:
        if not dev.plugged:
            raise error(errno.ENODEV)
        if not dev.permission:
            raise error(errno.EACCES)
        self.open_handles += 1
        self.opened += 1
        return dev, dev.address

    def close_device(self, dev_handle: Handle) -> None:
        self.open_handles -= 1

    def ctrl_transfer(
        self,
        dev_handle: Handle,
        bmRequestType: int,  # noqa: N803 - names of the interface
        bRequest: int,  # noqa: N803
        wValue: int,  # noqa: N803
        wIndex: int,  # noqa: N803
        data: Any,
        timeout: int,
    ) -> int:
        assert timeout > 0, "without a time-out it may wait for ever"
        with self.lock:
            self.inside += 1
        assert self.inside == 1, "two transfers at once"
        try:
            return self._transfer(dev_handle, bmRequestType, wValue, wIndex, data, timeout / 1000)
        finally:
            with self.lock:
                self.inside -= 1

    def _transfer(
        self, handle: Handle, kind: int, value: int, index: int, data: Any, timeout_s: float
    ) -> int:
        device, address = handle
        if not device.plugged or address != device.address:
            raise error(errno.ENODEV)
        device.requests += 1
        usual_s = device.takes_s
        fault = device.faults.pop(0) if device.faults else None
        done = fault(device, data, timeout_s) if fault else None
        took_s, device.takes_s = device.takes_s, usual_s
        self.clock.move(min(took_s, timeout_s))
        if took_s > timeout_s:
            raise usb.core.USBTimeoutError("made up time-out", None, errno.ETIMEDOUT)
        if done is not None:
            return done
        if kind == 0xC0:
            assert value & 0x80, "a read has bit 7"
            answer = device.answer((index, value & 0x7F), len(data))
            data[: len(answer)] = array.array("B", answer)
            return len(answer)
        assert kind == 0x40
        device.take((index, value), bytes(data))
        return len(data)
