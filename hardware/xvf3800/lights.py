"""The lights of a ReSpeaker show what the robot does. A Reachy Mini has none on its array."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

from hardware.xvf3800.codec import Values
from hardware.xvf3800.control import ArrayControl
from hardware.xvf3800.errors import TRANSIENT, ArrayError
from hardware.xvf3800.threads import InThread, in_thread

log = logging.getLogger(__name__)

Shown = Literal["idle", "listening", "thinking", "speaking"]
Writes = tuple[tuple[str, Values], ...]

OFF, BREATH, SINGLE, DIRECTION = 0, 1, 3, 4
"""Values of ``LED_EFFECT`` (Seeed's host control guide)."""
DIM_WHITE, CYAN, AMBER, BLUE = 0x101010, 0x00A0FF, 0xFF8000, 0x0030FF

PICTURES: dict[Shown, Writes] = {
    "idle": (("LED_EFFECT", (OFF,)),),
    # The speaker's direction in cyan: one sees from where the robot hears.
    "listening": (("LED_DOA_COLOR", (DIM_WHITE, CYAN)), ("LED_EFFECT", (DIRECTION,))),
    "thinking": (
        ("LED_COLOR", (AMBER,)),
        ("LED_BRIGHTNESS", (255,)),
        ("LED_SPEED", (1,)),
        ("LED_EFFECT", (BREATH,)),
    ),
    "speaking": (("LED_COLOR", (BLUE,)), ("LED_EFFECT", (SINGLE,))),
}
"""The effect is last: it never shows with the colours of another state."""


class Lights:
    """``current``: the open array or None, as ``ArrayWatch.control``. With a ``BorrowedArray``
    (``tuned``) the lights are as before when it is closed."""

    def __init__(
        self, current: Callable[[], ArrayControl | None], call: InThread = in_thread
    ) -> None:
        self._current, self._call = current, call
        self._wanted: Shown = "idle"
        self._sent: dict[str, Values] = {}
        self._sent_to: ArrayControl | None = None
        self._busy = False
        self._failed = False

    async def show(self, state: Shown) -> None:
        """Show ``state``; returns when the lights do. Raises nothing: lights are not worth it.

        Who calls meanwhile only changes what is shown in the end. What is lit already is not sent
        again; a board that was plugged in anew gets everything with the next state.
        """
        self._wanted = state
        if self._busy:
            return
        self._busy = True
        try:
            shown: Shown | None = None
            while shown != self._wanted:
                shown = self._wanted
                await self._send(PICTURES[shown])
        finally:
            self._busy = False

    async def _send(self, writes: Writes) -> None:
        control = self._current()
        if control is not self._sent_to:
            self._sent, self._sent_to, self._failed = {}, control, False
        if control is None or control.board != "seeed" or self._failed:
            return
        new = [(name, values) for name, values in writes if self._sent.get(name) != values]
        if new:
            await self._call(lambda: self._write(control, new))

    def _write(self, control: ArrayControl, writes: list[tuple[str, Values]]) -> None:
        try:
            for name, values in writes:
                self._sent.pop(name, None)
                control.write(name, *values)
                self._sent[name] = values
        except ArrayError as error:
            # A firmware that refuses them is not asked again; anything else may pass.
            self._failed = not isinstance(error, TRANSIENT)
            log.info("The array's lights stay as they are: %s", error)
