"""Errors of the robot's daemon, in words for a user."""

from __future__ import annotations

from typing import Literal

from pipeline.errors import ReachyVoiceError

Problem = Literal["not found", "not ready", "busy", "lost", "refuses"]

WORDS: dict[Problem, tuple[str, str]] = {
    # Nothing answers at ``robot.url``, or it is not a Reachy Mini's daemon.
    "not found": (
        "There is no Reachy Mini at {url}",
        "Start its daemon (reachy-mini-daemon, or the Reachy Mini desktop app), or set robot.url, "
        "such as http://localhost:8000; robot.moves: false turns movement off",
    ),
    # Its daemon answers, but its motors are not up, or not yet.
    "not ready": (
        "The daemon at {url} is running, but its robot is not",
        "Switch the robot on and look at its dashboard, which shows what is missing",
    ),
    # An app or a person is moving the robot; keep still until they have finished.
    "busy": (
        "The robot's body keeps still",
        "It moves with the conversation again as soon as that is over",
    ),
    # The daemon was there, but is gone or no longer answers.
    "lost": (
        "The robot at {url} is gone",
        "It is looked for again, and moves when it is back; nothing is to be done if you have "
        "restarted it",
    ),
    # The daemon answers, but refuses a request.
    "refuses": (
        "The daemon at {url} refused a request",
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
