"""Types of pairing: the robot, the outcome of each step, and the errors that end it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.errors import ReachyVoiceError

APP_PORT = 7860
"""Serves the conversation app's page and ``/rpc`` (``custom_app_url`` in its ``main.py``)."""


PairingStep = Literal["robot", "server", "app", "access", "setting", "way back"]
"""The steps, in order."""
State = Literal["ok", "failed", "undone", "left"]
"""``left``: a change that could not be undone."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The outcome of one step; ``fix``: what to do about it."""

    step: PairingStep
    state: State
    what: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class RobotAddress:
    """A robot's address, and the address at which it reaches this machine.

    Sockets accept ``address`` and ``ours``; they are equal if the robot's programs run on this
    machine.
    """

    name: str
    address: str
    ours: str
    app_port: int = APP_PORT

    @property
    def here(self) -> bool:
        """Whether the robot's programs run on this machine, as with a Reachy Mini Lite."""
        return self.address == self.ours

    @property
    def place(self) -> str:
        """Name and address, for display."""
        return self.address if self.name == self.address else f"{self.name} ({self.address})"


@dataclass(frozen=True, slots=True)
class Times:
    """Timeouts in seconds."""

    connect_s: float = 3.0
    """One connection or request."""
    browse_s: float = 3.0
    """Search for robots by mDNS."""
    way_back_s: float = 10.0
    """From the new setting to the app's connection; measured with a real app: under 4 s."""
    ask_every_s: float = 0.5
    """Polling interval: neither app nor server sends an event when they have connected."""
    restart_s: float = 90.0
    """Until an app that must be restarted by hand has connected."""


class PairError(ReachyVoiceError):
    """The robot does not talk to this server."""

    exit_code = 23


class NoLocalServer(PairError):
    """There is no server here that a robot could use."""

    exit_code = 9


class WhichRobot(PairError):
    """No robot or several were found, or the name is unknown."""

    exit_code = 2


def plain(text: object, most: int = 300) -> str:
    """Text from another program, as one printable line of at most ``most`` characters."""
    words = " ".join(str(text).split())
    line = words if words.isprintable() else ascii(words)[1:-1]
    return line if len(line) <= most else line[: most - 1] + "…"
