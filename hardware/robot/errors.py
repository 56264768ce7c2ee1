"""What can go wrong between us and the robot's daemon, for a person to read."""

from __future__ import annotations

from pipeline.errors import ReachyVoiceError


class RobotError(ReachyVoiceError):
    """The robot's body cannot be moved. The conversation goes on without it."""


class RobotNotFound(RobotError):
    """Nobody answers at ``robot.url``, or it is no daemon of a Reachy Mini, or it is not ready."""


class RobotBusy(RobotError):
    """An app, or somebody else, moves the robot; we keep still until that is over."""


class RobotLost(RobotError):
    """The daemon was there, and is gone or answers no more."""


class RobotRefuses(RobotError):
    """The daemon answers, but does not take what we ask."""


def not_found(url: str, why: str) -> RobotNotFound:
    return RobotNotFound(
        f"There is no Reachy Mini at {url}",
        why=why,
        fix="Start its daemon (reachy-mini-daemon, or the Reachy Mini desktop app), or set "
        "robot.url, such as http://localhost:8000; robot.moves: false lets it rest",
    )


def not_ready(url: str, why: str) -> RobotNotFound:
    return RobotNotFound(
        f"The daemon at {url} runs, but its robot does not",
        why=why,
        fix="Switch the robot on and look at its dashboard, which tells what is missing",
    )


def busy(why: str) -> RobotBusy:
    return RobotBusy(
        "The robot's body keeps still",
        why=why,
        fix="It moves with the conversation again as soon as that is over",
    )


def lost(url: str, why: str) -> RobotLost:
    return RobotLost(
        f"The robot at {url} is gone",
        why=why,
        fix="It is looked for again, and moves when it is back; nothing is to be done if you "
        "have restarted it",
    )


def refuses(url: str, why: str) -> RobotRefuses:
    return RobotRefuses(
        f"The daemon at {url} does not do what it is asked",
        why=why,
        fix="Update it: this was written for reachy-mini 1.13.0",
    )
