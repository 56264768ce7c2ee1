"""One XVF3800 on USB, through pyusb."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hardware.xvf3800.boards import USB_IDS, Board
from hardware.xvf3800.codec import Request, Values, decode, is_retry, read_request, write_request
from hardware.xvf3800.control import Via
from hardware.xvf3800.errors import (
    ArrayBusy,
    ArrayError,
    ArrayGone,
    ArrayNotFound,
    ArraySilent,
    ArrayStalled,
    NoDriver,
    NoPermission,
    NoUsbLibrary,
    TransferFailed,
    WrongAnswer,
)
from hardware.xvf3800.parameters import Value, parameter

if TYPE_CHECKING:
    import usb.core

CALL_S = 0.22
"""The longest that one read or write may take, with all its repetitions and waits. Who calls is
never kept for more than 250 ms; the rest is for a thread that comes late on a busy machine."""
TRANSFER_S = 0.2
"""The longest that one transfer may take; an answer takes some milliseconds."""
RETRY_PAUSE_S = 0.01
"""Between two tries of a read that is not ready; as the SDK of reachy-mini does it."""

Clock = Callable[[], float]
Pause = Callable[[float], None]

_GONE = (errno.ENODEV, errno.ENXIO, errno.ENOENT, errno.ESHUTDOWN)
_ERRORS: dict[int, type[ArrayGone | ArrayBusy | ArrayStalled | ArraySilent | WrongAnswer]] = {
    **dict.fromkeys(_GONE, ArrayGone),
    errno.EBUSY: ArrayBusy,
    errno.EPIPE: ArrayStalled,
    errno.ETIMEDOUT: ArraySilent,
    errno.EOVERFLOW: WrongAnswer,
}


def usb_backend() -> Any:
    """libusb: the one of ``libusb-package``, else the system's. Raises ``NoUsbLibrary``."""
    try:
        import libusb_package
        import usb.backend.libusb1
    except ImportError as error:
        raise NoUsbLibrary(str(error)) from error
    backend = libusb_package.get_libusb1_backend() or usb.backend.libusb1.get_backend()
    if backend is None:
        raise NoUsbLibrary("libusb-1.0 cannot be loaded")
    return backend


def find_device(backend: Any) -> tuple[usb.core.Device, Board]:
    """The first array on USB, a Reachy Mini's before others. Nothing is opened.

    Raises ``ArrayNotFound``, or what the enumeration fails with.
    """
    import usb.core

    found: dict[tuple[int, int], usb.core.Device] = {}
    try:
        for device in usb.core.find(find_all=True, backend=backend):
            found.setdefault((int(device.idVendor), int(device.idProduct)), device)
    except (usb.core.USBError, NotImplementedError) as error:
        raise named(error, "looking for it") from error
    for ids, board in USB_IDS.items():
        if ids in found:
            return found[ids], board
    raise ArrayNotFound(f"{len(found)} devices are on USB, none of them is 38fb:1001 or 2886:001a")


class UsbArray:
    """An open array. ``clock`` and ``pause`` are seconds of real time outside of tests."""

    via: Via = "usb"

    def __init__(
        self,
        backend: Any = None,
        clock: Clock = time.monotonic,
        pause: Pause = time.sleep,
    ) -> None:
        """Find and open it, and ask for its version. Raises ``ArrayError``."""
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
        wanted = parameter(self.board, name)
        return decode(wanted, self._ask(wanted.name, read_request(wanted)))

    def write(self, name: str, *values: Value) -> None:
        wanted = parameter(self.board, name)
        request = write_request(wanted, values)
        with self._turn(wanted.name) as deadline:
            sent = self._transfer(wanted.name, request, deadline)
        if sent != request.length:
            raise WrongAnswer(f"{wanted.name}: it took {sent} of {request.length} bytes")

    def close(self) -> None:
        import usb.core
        import usb.util

        with self._lock:
            self._closed = True
            # A device that is gone may fail to close; its handle is freed all the same.
            with contextlib.suppress(usb.core.USBError, NotImplementedError):
                usb.util.dispose_resources(self._device)

    def _ask(self, name: str, request: Request) -> bytes:
        """One read, again and again until the chip has an answer or the time is over."""
        with self._turn(name) as deadline:
            while True:
                answer = bytes(self._transfer(name, request, deadline))
                # After a last pause there must be time for a transfer.
                if not is_retry(answer) or self._clock() + 2 * RETRY_PAUSE_S > deadline:
                    return answer
                self._pause(RETRY_PAUSE_S)

    @contextlib.contextmanager
    def _turn(self, name: str) -> Any:
        """Wait for the device, but no longer than a call may take; gives when the call must end."""
        deadline = self._clock() + CALL_S
        if not self._lock.acquire(timeout=CALL_S - RETRY_PAUSE_S):
            raise ArrayBusy(f"{name}: another command has not ended")
        try:
            if self._closed:
                raise ArrayGone(f"{name}: it was closed")
            yield deadline
        finally:
            self._lock.release()

    def _transfer(self, name: str, request: Request, deadline: float) -> Any:
        import usb.core

        left_s = min(TRANSFER_S, deadline - self._clock())
        if left_s <= 0:
            raise ArrayBusy(f"{name}: another command took all of the time")
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
            raise ArraySilent(f"{name}: nothing within {left_s * 1000:.0f} ms") from error
        except (usb.core.USBError, NotImplementedError) as error:
            raise named(error, name) from error


def named(error: Exception, doing: str) -> ArrayError:
    """The array's own error for what pyusb raised."""
    why = f"{doing}: {getattr(error, 'strerror', None) or error}"
    if isinstance(error, NotImplementedError):
        return NoDriver(why)
    number = getattr(error, "errno", None)
    if number in (errno.EACCES, errno.EPERM):
        return NoPermission(f"{why} (errno {number})")
    return _ERRORS.get(number or 0, TransferFailed)(f"{why} (errno {number})")
