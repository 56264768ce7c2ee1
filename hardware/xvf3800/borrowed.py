"""An array whose settings are put back when it is closed."""

from __future__ import annotations

import logging
import threading
import time

from hardware.xvf3800.boards import Board
from hardware.xvf3800.codec import Values
from hardware.xvf3800.control import ArrayControl, Via, numbers
from hardware.xvf3800.errors import (
    ArrayBusy,
    ArrayError,
    ArrayRefused,
    ArrayStalled,
    ParameterError,
    WrongAnswer,
)
from hardware.xvf3800.parameters import Value, parameter

log = logging.getLogger(__name__)

PUT_BACK_S = 2.0
"""Nothing more is put back then, however many parameters were changed."""


class BorrowedArray:
    """Around another control. Before the first write of a parameter its value is read, and written
    back by ``close``, the last change first. Orders (write-only parameters) leave nothing to put
    back. Such a first write is two calls of the control."""

    def __init__(self, control: ArrayControl) -> None:
        self._control = control
        self._before: dict[str, Values] = {}
        self._changing = threading.Lock()

    @property
    def board(self) -> Board:
        return self._control.board

    @property
    def firmware(self) -> str:
        return self._control.firmware

    @property
    def via(self) -> Via:
        return self._control.via

    def read(self, name: str) -> Values | str:
        return self._control.read(name)

    def write(self, name: str, *values: Value) -> None:
        wanted = parameter(self.board, name)
        with self._changing:
            if wanted.access == "rw" and wanted.name not in self._before:
                self._before[wanted.name] = numbers(self._control, wanted.name)
            self._control.write(wanted.name, *values)

    def close(self) -> None:
        end = time.monotonic() + PUT_BACK_S
        with self._changing:
            try:
                while self._before and time.monotonic() < end:
                    self._put_back(*self._before.popitem())
            except ArrayError as error:
                # A device that is gone, or silent, has lost them anyway when it comes back.
                log.info("The array's former settings were not put back: %s", error.why)
            finally:
                self._control.close()

    def _put_back(self, name: str, values: Values) -> None:
        try:
            self._control.write(name, *values)
        except (ArrayBusy, ArrayRefused, ArrayStalled, ParameterError, WrongAnswer) as error:
            log.warning("%s of the array was not put back: %s", name, error.why)
