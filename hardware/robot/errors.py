"""What can go wrong between us and the robot's daemon, for a person to read."""

from __future__ import annotations

from pipeline.errors import NamedError


class RobotError(NamedError):
    """The robot's body cannot be moved. The conversation goes on without it."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(why, url=url)


class RobotNotFound(RobotError):
    """Nothing answers at ``robot.url``, or it is not the daemon of a Reachy Mini."""

    WHAT = "There is no Reachy Mini at {url}"
    FIX = (
        "Start its daemon (reachy-mini-daemon, or the Reachy Mini desktop app), or set robot.url, "
        "such as http://localhost:8000; robot.moves: false lets it rest"
    )


class RobotNotReady(RobotNotFound):
    """Its daemon answers, but its motors are not up, or not yet."""

    WHAT = "The daemon at {url} runs, but its robot does not"
    FIX = "Switch the robot on and look at its dashboard, which tells what is missing"


class RobotBusy(RobotError):
    """An app or a person moves the robot; we keep still until that is over."""

    WHAT = "The robot's body keeps still"
    FIX = "It moves with the conversation again as soon as that is over"


class RobotLost(RobotError):
    """The daemon was there, and is gone or answers no more."""

    WHAT = "The robot at {url} is gone"
    FIX = (
        "It is looked for again, and moves when it is back; nothing is to be done if you have "
        "restarted it"
    )


class RobotRefuses(RobotError):
    """The daemon answers, but does not take what we ask."""

    WHAT = "The daemon at {url} does not do what it is asked"
    FIX = "Update it: this was written for reachy-mini 1.13.0"
