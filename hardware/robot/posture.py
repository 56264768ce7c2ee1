"""The robot's body language in a conversation: events in, poses out."""

from __future__ import annotations

import math
from typing import Literal

from hardware.robot.gaze import Gaze
from hardware.robot.poses import ANTENNA_REST_RAD, Pose, facing, within_limits
from hardware.robot.wobble import Wobble
from pipeline.commands import Direction
from pipeline.events import (
    Event,
    FellAsleep,
    InputCleared,
    InputCommitted,
    ReplyAudio,
    ReplyFinished,
    SpeechPaused,
    SpeechRejected,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    Woke,
)
from pipeline.items import FunctionCallItem

Mode = Literal["idle", "asleep", "listening", "pausing", "thinking", "speaking"]

THINKS_S = 20.0
"""Longer than any answer takes; after this it stops waiting."""
DEAF_S = 0.3
"""For this long after the robot stops speaking, the array may hear its own reverberation."""

BREATH_HZ, BREATH_M = 0.2, 0.003
ANTENNA_BREATH_RAD = 0.05
PONDER_HZ, PONDER_RAD = 0.2, math.radians(3)
ASLEEP = Pose(pitch=math.radians(13), z=-0.005, right_antenna=-2.6, left_antenna=2.6)
"""Head and antennas hang still: people across the room can see that it is not listening, and the
microphones hear no motor."""
_OPEN_RAD = 0.55
"""The antennas' angle while it listens."""
_DOWN_RAD = -0.8
"""The angle of the antenna that shows that the robot is taking the turn."""


class Posture:
    """Turns events into poses; all times are seconds on one clock and never decrease.

    An answer begins with its first audio and ends with its ``ReplyFinished``, or when the last
    audio passed to ``played`` has been heard, whichever is later.
    """

    def __init__(self) -> None:
        self.gaze = Gaze()
        self.wobble = Wobble()
        self.played = self.wobble.played
        self._mode: Mode = "idle"
        self._since = 0.0
        self._reply: str | None = None
        """The id of the answer being spoken, until it is finished."""
        self._silent_since = -math.inf
        self._rest: Mode = "idle"
        """The mode it returns to when nothing is going on: idle or asleep."""

    def mode(self, now: float) -> Mode:
        """The current mode."""
        if self._mode == "speaking" and self._reply is None and now >= self.wobble.over_at:
            self._silent_since = now
            self._become(self._rest, now)
        if self._mode == "thinking" and now - self._since >= THINKS_S:
            self._become(self._rest, now)
        return self._mode

    def note(self, event: Event, now: float) -> None:
        """Take an event of the conversation."""
        mode = self.mode(now)
        match event:
            case SpeechStarted():
                self._fall_silent(now)
                self._become("listening", now)
            case SpeechPaused():
                if mode == "listening":
                    self._become("pausing", now)
            case SpeechResumed():
                if mode == "pausing":
                    self._become("listening", now)
            case SpeechStopped() | InputCommitted():
                if mode in ("idle", "asleep", "listening", "pausing"):
                    self._become("thinking", now)
            case SpeechRejected() | InputCleared():
                if mode in ("listening", "pausing", "thinking"):
                    self._become(self._rest, now)
            case FellAsleep():
                self._rest = "asleep"
                if mode == "idle":
                    self._become("asleep", now)
            case Woke():
                self._rest = "idle"
                if mode == "asleep":
                    self._become("idle", now)
            case ReplyAudio():
                if mode != "speaking":
                    self._become("speaking", now)
                self._reply = event.reply_id
            case ReplyFinished():
                self._end(event, now)

    def _end(self, event: ReplyFinished, now: float) -> None:
        if self._mode == "speaking" and event.reply_id == self._reply:
            self._reply = None
            if event.status == "cancelled":
                self._fall_silent(now)
            self.mode(now)
            return
        calls = any(isinstance(item, FunctionCallItem) for item in event.items)
        if self._mode == "thinking" and event.reason != "resumed" and not calls:
            self._become(self._rest, now)

    def heard(self, direction: Direction, now: float, array_yaw: float) -> None:
        """Take a reading of the array. ``array_yaw``: where the array faces, in rad. Do not call
        this while it turns."""
        attentive = self.mode(now) not in ("speaking", "asleep")
        if attentive and now - self._silent_since >= DEAF_S:
            self.gaze.heard(direction, now, array_yaw)
        else:
            self.gaze.forget_readings()

    def target(self, now: float) -> Pose:
        """The target pose, within ``LIMITS``; may jump from one call to the next."""
        stance = _stance(self.mode(now), now - self._since, now)
        neck_yaw, body_yaw = facing(self.gaze.yaw(now))
        pose = stance._replace(neck_yaw=neck_yaw + stance.neck_yaw, body_yaw=body_yaw)
        return within_limits(pose)

    def sway(self, now: float) -> Pose:
        """The voice's wobble, to be added to the current pose."""
        offset, _ = self.wobble.offset(now)
        return offset

    def _become(self, mode: Mode, now: float) -> None:
        self._mode, self._since = mode, now

    def _fall_silent(self, now: float) -> None:
        if self._mode == "speaking":
            self._silent_since = now
        self._reply = None
        self.wobble.hush(now)


def _stance(mode: Mode, since_s: float, now: float) -> Pose:
    """The pose of head and antennas, facing front."""
    match mode:
        case "listening" | "pausing":
            # Keep still: the microphones hear the motors beside them. At the first silent frames
            # one antenna goes down to its thinking position.
            right = _DOWN_RAD if mode == "pausing" else -_OPEN_RAD
            return Pose(
                roll=math.radians(4),
                pitch=math.radians(-4),
                x=0.005,
                right_antenna=right,
                left_antenna=_OPEN_RAD,
            )
        case "thinking":
            ponder = PONDER_RAD * math.sin(2 * math.pi * PONDER_HZ * since_s)
            tilt = Pose(roll=math.radians(-6), pitch=math.radians(-8), neck_yaw=ponder)
            return tilt._replace(right_antenna=_DOWN_RAD)
        case "speaking":
            return Pose(pitch=math.radians(-2), right_antenna=-0.3, left_antenna=0.3)
        case "asleep":
            return ASLEEP
        case "idle":
            breath = math.sin(2 * math.pi * BREATH_HZ * now)
            antenna = ANTENNA_REST_RAD + ANTENNA_BREATH_RAD * breath
            return Pose(z=BREATH_M * breath, right_antenna=-antenna, left_antenna=antenna)
