"""What pairing handles: the robot, one outcome for each step, and the errors that end it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from hardware.daemon_url import DAEMON_PORT
from pipeline.errors import ReachyVoiceError

APP_PORT = 7860
"""The conversation app's own page and its ``/rpc``; in its ``main.py`` as ``custom_app_url``."""


class Step(StrEnum):
    """In the order in which they are taken."""

    ROBOT = "robot"
    SERVER = "server"
    APP = "app"
    ACCESS = "access"
    SETTING = "setting"
    WAY_BACK = "way back"


State = Literal["ok", "failed", "undone", "left"]
"""``left``: what could not be undone."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one step; ``why`` and ``fix`` are for those that failed."""

    step: Step
    state: State
    what: str
    why: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Robot:
    """Where a robot is, and how this machine looks from there.

    ``address`` and ``ours`` are as sockets take them; they are equal where the robot's programs run
    on this very machine.
    """

    name: str
    address: str
    ours: str
    app_port: int = APP_PORT
    daemon_port: int = DAEMON_PORT

    @property
    def here(self) -> bool:
        """Whether the robot's programs run on this machine, as with a Reachy Mini Lite."""
        return self.address == self.ours

    @property
    def place(self) -> str:
        """Name and address, as shown."""
        return self.address if self.name == self.address else f"{self.name} ({self.address})"


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds; each one bounds something that might never come."""

    connect_s: float = 3.0
    """One connection, one request."""
    browse_s: float = 3.0
    """Robots that answer to mDNS."""
    way_back_s: float = 10.0
    """From the new setting to the app's connection; measured with a real app: under 4 s."""
    ask_every_s: float = 0.5
    """Neither the app nor the server pushes an event when they have met."""
    start_s: float = 90.0
    """An app that is being started; on the robot's own computer it takes half a minute."""
    restart_s: float = 30.0
    """The daemon's answer to a restart: it gives the app 20 s to end before it kills it."""
    settle_s: float = 10.0
    """An app that runs according to the daemon, and does not answer yet."""


class PairError(ReachyVoiceError):
    """The robot does not talk to this server."""

    exit_code = 23


class NoServer(PairError):
    """There is no server here that a robot could use."""

    exit_code = 9


class WhichRobot(PairError):
    """No robot or several were found, or the name is unknown."""

    exit_code = 2


def in_url(address: str) -> str:
    """An address as URLs have it: IPv6 in brackets."""
    return f"[{address}]" if ":" in address else address


def plain(text: object, most: int = 300) -> str:
    """What another program said, on one printable line of at most ``most`` characters."""
    words = " ".join(str(text).split())
    shown = words if words.isprintable() else ascii(words)[1:-1]
    return shown if len(shown) <= most else shown[: most - 1] + "…"
