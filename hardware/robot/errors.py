"""What can go wrong between us and the robot's daemon, for a person to read."""

from __future__ import annotations

from typing import Literal

from pipeline.errors import ReachyVoiceError

Problem = Literal["not found", "not ready", "busy", "lost", "refuses"]

WORDS: dict[Problem, tuple[str, str]] = {
    # Nothing answers at ``robot.url``, or it is not the daemon of a Reachy Mini.
    "not found": (
        "There is no Reachy Mini at {url}",
        "Start its daemon (reachy-mini-daemon, or the Reachy Mini desktop app), or set robot.url, "
        "such as http://localhost:8000; robot.moves: false lets it rest",
    ),
    # Its daemon answers, but its motors are not up, or not yet.
    "not ready": (
        "The daemon at {url} runs, but its robot does not",
        "Switch the robot on and look at its dashboard, which tells what is missing",
    ),
    # An app or a person moves the robot; we keep still until that is over.
    "busy": (
        "The robot's body keeps still",
        "It moves with the conversation again as soon as that is over",
    ),
    # The daemon was there, and is gone or answers no more.
    "lost": (
        "The robot at {url} is gone",
        "It is looked for again, and moves when it is back; nothing is to be done if you have "
        "restarted it",
    ),
    # The daemon answers, but does not take what we ask.
    "refuses": (
        "The daemon at {url} does not do what it is asked",
        "Update it: this was written for reachy-mini 1.13.0",
    ),
}


class RobotError(ReachyVoiceError):
    """The robot's body cannot be moved. The conversation goes on without it."""

    problem: Problem


def robot_error(problem: Problem, url: str, why: str) -> RobotError:
    """The error for one of ``WORDS``."""
    what, fix = WORDS[problem]
    error = RobotError(what.format(url=url), why=why, fix=fix)
    error.problem = problem
    return error
