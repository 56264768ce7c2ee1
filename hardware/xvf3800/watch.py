"""Direction, speech and health of an array, ten times a second, while it is connected."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hardware.xvf3800.boards import Board, version_of
from hardware.xvf3800.control import ArrayControl, Via, numbers
from hardware.xvf3800.errors import TRANSIENT, ArrayError, Problem, array_error
from hardware.xvf3800.rebooting import restart
from pipeline.commands import Direction
from pipeline.work import in_thread

log = logging.getLogger(__name__)

T = TypeVar("T")

PERIOD_S = 0.1
"""As often as the robot's daemon asks the array for a direction."""
HEALTH_EVERY = 10
"""Readings between two reads of ``AEC_AECCONVERGED``."""
ENERGY_EVERY = {"usb": 1, "daemon": 5}
"""Readings between two reads of the beams' energies. Over USB a read takes milliseconds; the
daemon reopens the device for it, and its event loop waits."""
PATIENCE = 10
"""After this many failures in a row the device is closed and searched for again."""
BACK_OFF_S = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Delays before each search; the last one repeats."""
AUTO_SELECT = 3
"""Index of the chosen beam among the four."""
DOA_APART_FROM_LIGHTS = (2, 0, 10)
"""Before this Seeed firmware, DOA_VALUE changes only while the lights show the direction."""


@dataclass(frozen=True, slots=True)
class ArrayReading:
    direction: Direction
    beam_energies: tuple[float, ...]
    """Of speech in beam 1, beam 2, the free-running and the chosen beam; 0: no speech."""
    aec_converged: bool | None
    """``None`` while unknown."""
    at: float
    """Seconds on the event loop's clock."""


@dataclass(frozen=True, slots=True)
class ArrayFound:
    """The array is connected and delivers readings, for the first time or again."""

    board: Board
    firmware: str
    via: Via


@dataclass(frozen=True, slots=True)
class ArrayLost:
    """The array is absent, or access is refused. The search goes on."""

    error: ArrayError


ArrayNotice = ArrayReading | ArrayFound | ArrayLost


class InThread(Protocol):
    """Runs a function where it may block. Tests run it at once."""

    def __call__(self, function: Callable[[], T]) -> Awaitable[T]: ...


class ArrayWatch:
    """Opens an array, reads it at 10 Hz, and finds it again after it was unplugged."""

    def __init__(
        self,
        open: Callable[[], ArrayControl],
        notify: Callable[[ArrayNotice], None],
        call: InThread = in_thread,
    ) -> None:
        """``open`` is blocking, like ``open_array``. ``notify`` is called on the event loop for
        every reading, and once each time the array is found, lost, or unavailable for another
        reason."""
        self._open, self._notify, self._call = open, notify, call
        self.latest: ArrayReading | None = None
        """None while there is no array."""
        self._restarted = False
        self.control: ArrayControl | None = None
        """The open array, for writing parameters. None while it is away."""
        self._problems: set[Problem] = set()
        """Problems since it was last connected."""

    async def run(self) -> None:
        """Run until cancelled, then close the array."""
        attempt = 0
        while True:
            try:
                await self._until_lost()
            except ArrayError as error:
                if self.latest is not None:
                    attempt = 0
                self.latest = None
                self._tell(error)
            await asyncio.sleep(BACK_OFF_S[min(attempt, len(BACK_OFF_S) - 1)])
            attempt += 1

    async def restart(self) -> None:
        """Restart the chip, such as for a microphone that delivers zeros. ``run`` finds it again.

        Does nothing without an array. Raises ``ArrayError`` if the command is refused.
        """
        control = self.control
        if control is not None:
            await self._call(lambda: restart(control))
            # Reopen it in any case: it has lost its tuning, which a daemon does not report.
            self._restarted = True

    def _tell(self, error: ArrayError) -> None:
        """Report each reason once. A missing array is not reported again after a lost one."""
        was_missing = bool(self._problems) and error.problem == "not found"
        if error.problem not in self._problems and not was_missing:
            self._notify(ArrayLost(error))
        self._problems.add(error.problem)

    async def _until_lost(self) -> None:
        """Open the array and read it. Raises ``ArrayError`` if it cannot be opened, or is lost."""
        try:
            await self._call(self._keep_open)
            control = self.control
            assert control is not None
            await self._read_on(control)
        finally:
            await self._call(self._close)

    def _keep_open(self) -> None:
        # Stored at once, in the thread: a caller cancelled meanwhile must close it.
        self.control = self._open()

    def _close(self) -> None:
        control, self.control = self.control, None
        if control is not None:
            control.close()

    async def _read_on(self, control: ArrayControl) -> None:
        loop = asyncio.get_running_loop()
        view = _View(control)
        failures, next_s = 0, loop.time()
        while True:
            if self._restarted:
                self._restarted = False
                raise array_error("gone", "it was restarted")
            try:
                reading = await self._call(lambda: view.look(loop.time()))
            except ArrayError as error:
                failures += 1
                log.debug("No reading from the array: %s", error)
                if error.problem not in TRANSIENT or failures >= PATIENCE:
                    raise
            else:
                if self.latest is None:
                    self._problems.clear()
                    self._notify(ArrayFound(control.board, control.firmware, control.via))
                failures, self.latest = 0, reading
                self._notify(reading)
            # Late readings are skipped, not caught up.
            next_s += PERIOD_S * max(1, math.ceil((loop.time() - next_s) / PERIOD_S))
            await asyncio.sleep(next_s - loop.time())


class _View:
    """One open array, and the values that are read less often."""

    def __init__(self, control: ArrayControl) -> None:
        self._control = control
        self._looks = 0
        self._azimuth_deg = 90.0
        self._energies: tuple[float, ...] = (0.0,) * 4
        self._is_converged: bool | None = None
        self._unknown: set[str] = set()
        self._direction = _direction_parameter(control)

    def look(self, now: float) -> ArrayReading:
        """Blocking: one to three reads. Raises ``ArrayError``."""
        look, self._looks = self._looks, self._looks + 1
        if look % ENERGY_EVERY[self._control.via] == 0:
            self._energies = tuple(
                value if math.isfinite(value) else 0.0
                for value in self._optional("AEC_SPENERGY_VALUES")
            )
        if look % HEALTH_EVERY == 0:
            self._is_converged = next((bool(v) for v in self._optional("AEC_AECCONVERGED")), None)
        azimuth_deg, speech = self._azimuth()
        # Without speech some firmware returns no angle: keep the last one.
        if math.isfinite(azimuth_deg):
            self._azimuth_deg = azimuth_deg % 360
        direction = Direction(self._azimuth_deg, speech)
        return ArrayReading(direction, self._energies, self._is_converged, now)

    def _azimuth(self) -> tuple[float, bool]:
        """Degrees, NaN without a direction; and whether there is speech."""
        name = self._direction
        try:
            values = numbers(self._control, name)
        except ArrayError as error:
            if error.problem != "refused" or name == "AEC_AZIMUTH_VALUES":
                raise
            self._direction = "AEC_AZIMUTH_VALUES"
            return self._azimuth()
        if name == "DOA_VALUE":
            return float(values[0]), bool(values[1])
        if name == "DOA_VALUE_RADIANS":
            return math.degrees(values[0]), bool(values[1])
        return math.degrees(values[AUTO_SELECT]), any(self._energies[AUTO_SELECT:])

    def _optional(self, name: str) -> tuple[float, ...]:
        """Empty if this firmware does not know the parameter; it is not read again."""
        if name in self._unknown:
            return ()
        try:
            return tuple(map(float, numbers(self._control, name)))
        except ArrayError as error:
            if error.problem != "refused":
                raise
            log.info("Without %s: %s", name, error.why)
            self._unknown.add(name)
            return ()


def _direction_parameter(control: ArrayControl) -> str:
    if control.board == "reachy":
        return "DOA_VALUE_RADIANS"
    new = version_of(control.firmware) >= DOA_APART_FROM_LIGHTS
    return "DOA_VALUE" if new else "AEC_AZIMUTH_VALUES"
