"""The body in ``talk``: the array's directions and health, and the robot.

All of it is optional: talking works without an array or a robot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from app.settings.model import Settings
from app.talk.state import TalkState
from hardware.robot.body import RobotBody
from hardware.sound.alignment import SoundBlock
from hardware.xvf3800.control import ArrayControl
from hardware.xvf3800.errors import ArrayError
from hardware.xvf3800.opening import open_array
from hardware.xvf3800.presets import apply_preset
from hardware.xvf3800.watch import ArrayFound, ArrayLost, ArrayNotice, ArrayReading, ArrayWatch
from pipeline.audio import LISTEN_RATE
from pipeline.commands import Direction
from pipeline.errors import ReachyVoiceError
from pipeline.events import Event

REBOOT_AGAIN_S = 60.0
"""If a chip delivers zeros again this soon after a restart, another restart does not help."""
EVERYBODY = "array.accept_deg needs the array: speech from all directions is heard"
SETTLES_S = 30.0
"""An XVF3800's echo canceller settles within this much playback, or something is wrong."""
NOT_SETTLED = (
    "The array's echo canceller has not settled: the robot may hear itself. Is its loudspeaker at "
    "the array, and loud enough? Is its firmware for 16 kHz? Run reachy-voice doctor"
)


class Embodiment:
    """``run`` it in a task. Call the other methods on the loop; they never wait."""

    def __init__(
        self,
        settings: Settings,
        state: TalkState,
        face: Callable[[Direction], Awaitable[None]],
        open_control: Callable[[], ArrayControl] | None = None,
    ) -> None:
        """``face(direction)``: passes a direction to the conversation. ``open_control``: opens the
        array; replaced in tests."""
        self._settings = settings
        self._state = state
        self._face = face
        self._watch = ArrayWatch(open_control or self._open_array, self._array_says)
        self._body = RobotBody(settings.robot, self._tell)
        self._news = asyncio.Event()
        """Set when there is a direction to pass on, or a chip to restart."""
        self._direction: Direction | None = None
        self._restart_wanted = False
        self._restarted_at: float | None = None
        self.chip_cancels = False
        """Whether the array's chip is used to cancel the robot's voice."""
        self._sounded_s: float | None = 0.0
        """Seconds of playback so far without the canceller settling; ``None``: already reported."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self._settings.array.control == "auto":
                group.create_task(self._watch.run())
            elif self._settings.accepted:
                self._state.say(EVERYBODY)
            group.create_task(self._body.run())
            group.create_task(self._hand_on())

    # -- events

    def note(self, event: Event) -> None:
        self._body.note(event)

    def heard(self, block: SoundBlock) -> None:
        """A block from the card; the loudspeaker's sound moves the robot."""
        if self._state.sounding:
            self._body.played(block.reference, LISTEN_RATE, block.captured_at)
            if self._sounded_s is not None:
                self._sounded_s += len(block.reference) / LISTEN_RATE

    def all_zero(self) -> None:
        """The microphone delivers only zeros."""
        if self._watch.control is not None and self._settings.array.reboot:
            self._restart_wanted = True
            self._news.set()

    def _array_says(self, notice: ArrayNotice) -> None:
        match notice:
            case ArrayReading():
                # The sector is fixed in the room; the array may turn with the head.
                self._direction = direction = self._body.unturned(notice.direction)
                self._look_after_canceller(notice.aec_converged)
                accepted = self._settings.accepted
                if accepted is None or direction.azimuth_deg in accepted:
                    self._body.heard(notice.direction)
                self._news.set()
            case ArrayFound():
                self._body.array_in_head = notice.board == "reachy"
                self._state.say(f"array found, firmware {notice.firmware}")
            case ArrayLost():
                self._state.direction_deg = None
                if self._is_news(notice.error):
                    self._tell(notice.error)
                if self._settings.accepted:
                    self._state.say(EVERYBODY)

    def _look_after_canceller(self, converged: bool | None) -> None:
        if converged is not False:
            self._sounded_s = 0.0
        elif self.chip_cancels and self._sounded_s is not None and self._sounded_s >= SETTLES_S:
            self._sounded_s = None
            self._state.say(NOT_SETTLED)

    def _is_news(self, error: ArrayError) -> bool:
        if error.problem == "daemon away":
            return not self._settings.robot.moves  # otherwise the body reports it
        return error.problem != "not found"  # most machines have none

    def _tell(self, error: ReachyVoiceError) -> None:
        self._state.say(": ".join(part for part in (error.what, error.why) if part))
        if error.fix:
            self._state.say(error.fix)

    # -- reactions

    async def _hand_on(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            if direction := self._direction:
                self._direction = None
                await self._face(direction)
            if self._restart_wanted:
                self._restart_wanted = False
                await self._restart()

    async def _restart(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._restarted_at is not None and now - self._restarted_at < REBOOT_AGAIN_S:
            self._state.say(
                "The array still delivers zeros after a restart. Unplug it and plug it in again; "
                "if that does not help, update its firmware (2.1.4 or newer) or look at its cable"
            )
            return
        self._restarted_at = now
        self._state.say("The array delivers only zeros; restarting it takes 5 s")
        try:
            await self._watch.restart()
        except ArrayError as error:
            self._tell(error)

    def _open_array(self) -> ArrayControl:
        """Open the array, and apply its preset. Blocks."""
        array = self._settings.array
        control = open_array(array, self._settings.robot.url)
        try:
            if array.preset is not None:
                apply_preset(control, array.preset)
        except BaseException:
            control.close()
            raise
        return control
