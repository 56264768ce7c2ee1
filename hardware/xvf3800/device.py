"""One XVF3800 on USB, through pyusb."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hardware.xvf3800.boards import USB_IDS, Board
from hardware.xvf3800.codec import (
    ControlTransfer,
    Values,
    decode,
    is_retry,
    read_request,
    write_request,
)
from hardware.xvf3800.control import Via
from hardware.xvf3800.errors import ArrayError, Problem, array_error
from hardware.xvf3800.parameters import Value, parameter

if TYPE_CHECKING:
    import usb.core

CALL_S = 0.22
"""The longest that one read or write may take, with all retries and waits. A caller never waits
for more than 250 ms; the rest allows for a late thread on a busy machine."""
TRANSFER_S = 0.2
"""The longest that one transfer may take; an answer takes a few milliseconds."""
RETRY_PAUSE_S = 0.01
"""Between two tries of a read that is not ready; the same as in reachy-mini's SDK."""

Clock = Callable[[], float]
Pause = Callable[[float], None]

_PROBLEMS: dict[int | None, Problem] = {
    errno.ENODEV: "gone",
    errno.ENXIO: "gone",
    errno.ENOENT: "gone",
    errno.ESHUTDOWN: "gone",
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.EBUSY: "busy",
    errno.EPIPE: "stalled",
    errno.ETIMEDOUT: "silent",
    errno.EOVERFLOW: "wrong answer",
}


def usb_backend() -> Any:
    """``libusb-package``'s libusb, else the system's. Raises ``ArrayError``."""
    try:
        import libusb_package
        import usb.backend.libusb1
    except ImportError as error:
        raise array_error("no usb library", str(error)) from error
    backend = libusb_package.get_libusb1_backend() or usb.backend.libusb1.get_backend()
    if backend is None:
        raise array_error("no usb library", "libusb-1.0 cannot be loaded")
    return backend


def find_device(backend: Any) -> tuple[usb.core.Device, Board]:
    """The first array on USB, preferring a Reachy Mini's. Opens nothing.

    Raises ``ArrayError``.
    """
    import usb.core

    devices: dict[tuple[int, int], usb.core.Device] = {}
    try:
        for device in usb.core.find(find_all=True, backend=backend):
            devices.setdefault((int(device.idVendor), int(device.idProduct)), device)
    except (usb.core.USBError, NotImplementedError) as error:
        raise _usb_error(error, "looking for it") from error
    for ids, board in USB_IDS.items():
        if ids in devices:
            return devices[ids], board
    why = f"USB has {len(devices)} devices, but no 38fb:1001 or 2886:001a"
    raise array_error("not found", why)


class UsbArray:
    """An open array. Only tests replace ``clock`` and ``pause``."""

    via: Via = "usb"

    def __init__(
        self,
        backend: Any = None,
        clock: Clock = time.monotonic,
        pause: Pause = time.sleep,
    ) -> None:
        """Find and open it, and read its version. Raises ``ArrayError``."""
        self._lock = threading.Lock()
        self._clock, self._pause = clock, pause
        self._closed = False
        self._device, self.board = find_device(backend or usb_backend())
        try:
            self.firmware = ".".join(str(part) for part in self.read("VERSION"))
        except BaseException:
            self.close()
            raise

    def read(self, name: str) -> Values | str:
        target = parameter(self.board, name)
        return decode(target, self._ask(target.name, read_request(target)))

    def write(self, name: str, *values: Value) -> None:
        target = parameter(self.board, name)
        request = write_request(target, values)
        with self._turn(target.name) as deadline:
            count = self._transfer(target.name, request, deadline)
        if count != request.length:
            why = f"{target.name}: it took {count} of {request.length} bytes"
            raise array_error("wrong answer", why)

    def close(self) -> None:
        import usb.core
        import usb.util

        with self._lock:
            self._closed = True
            # An unplugged device may fail to close; its handle is freed all the same.
            with contextlib.suppress(usb.core.USBError, NotImplementedError):
                usb.util.dispose_resources(self._device)

    def _ask(self, name: str, request: ControlTransfer) -> bytes:
        """One read, repeated until the chip has an answer or time is up."""
        with self._turn(name) as deadline:
            while True:
                answer = bytes(self._transfer(name, request, deadline))
                # After the pause there must be time for another transfer.
                if not is_retry(answer) or self._clock() + 2 * RETRY_PAUSE_S > deadline:
                    return answer
                self._pause(RETRY_PAUSE_S)

    @contextlib.contextmanager
    def _turn(self, name: str) -> Any:
        """Wait for the device, but no longer than a call may take; yields the call's deadline."""
        deadline = self._clock() + CALL_S
        if not self._lock.acquire(timeout=CALL_S - RETRY_PAUSE_S):
            raise array_error("busy", f"{name}: another command is still running")
        try:
            if self._closed:
                raise array_error("gone", f"{name}: it was closed")
            yield deadline
        finally:
            self._lock.release()

    def _transfer(self, name: str, request: ControlTransfer, deadline: float) -> Any:
        import usb.core

        left_s = min(TRANSFER_S, deadline - self._clock())
        if left_s <= 0:
            raise array_error("busy", f"{name}: another command used up the time")
        try:
            return self._device.ctrl_transfer(
                request.request_type,
                0,
                request.value,
                request.index,
                request.length if request.data is None else request.data,
                # 0 would mean: wait for ever.
                timeout=max(1, int(left_s * 1000)),
            )
        except usb.core.USBTimeoutError as error:
            raise array_error("silent", f"{name}: nothing within {left_s * 1000:.0f} ms") from error
        except (usb.core.USBError, NotImplementedError) as error:
            raise _usb_error(error, name) from error


def _usb_error(error: Exception, action: str) -> ArrayError:
    """The ``ArrayError`` for what pyusb raised."""
    why = f"{action}: {getattr(error, 'strerror', None) or error}"
    if isinstance(error, NotImplementedError):
        return array_error("no driver", why)
    number = getattr(error, "errno", None)
    return array_error(_PROBLEMS.get(number, "transfer failed"), f"{why} (errno {number})")
