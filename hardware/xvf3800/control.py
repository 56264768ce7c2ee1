"""The interface to an array, over USB or through the robot's daemon."""

from __future__ import annotations

from typing import Literal, Protocol

from hardware.xvf3800.boards import Board
from hardware.xvf3800.codec import Values
from hardware.xvf3800.errors import array_error
from hardware.xvf3800.parameters import Value

Via = Literal["usb", "daemon"]


class ArrayControl(Protocol):
    """Blocking, and one call at a time: calls from several threads wait for one another. Each may
    raise ``ArrayError``, over USB within 250 ms. ``firmware``: as in ``"2.1.4"``."""

    @property
    def via(self) -> Via: ...
    @property
    def board(self) -> Board: ...
    @property
    def firmware(self) -> str: ...

    def read(self, name: str) -> Values | str:
        """Numbers, or text for a ``char``; NaN where the chip has none."""
        ...

    def write(self, name: str, *values: Value) -> None:
        """Takes effect within 0.1 s, and lasts until the board restarts."""
        ...

    def close(self) -> None:
        """Safe to call twice. Raises nothing."""
        ...


def numbers(control: ArrayControl, name: str) -> Values:
    """Read a numeric parameter."""
    values = control.read(name)
    if isinstance(values, str):
        raise array_error("wrong answer", f"{name}: text instead of numbers")
    return values
