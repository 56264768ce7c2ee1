"""This machine as ``pair`` finds it: a real server with real sessions and its own access list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.access.file import AccessFile
from app.access.policy import Caller, Refusal, Way, parse_network
from app.pairing.flow import Pairing
from app.pairing.steps import PairingStep, RobotAddress, StepOutcome, Times
from app.server.gate import Access
from app.server.server import build_app
from tests.support.fake_robot import ADDRESS, FakeRobot
from tests.support.scripted_server import running
from tests.support.staged_server import StagedAssistant

PATIENT = Times(browse_s=0.2, ask_every_s=0.02)
"""Timeouts for steps that succeed at once."""

QUICK = Times(connect_s=1.0, browse_s=0.2, way_back_s=0.4, ask_every_s=0.02, restart_s=0.4)
"""Timeouts for steps whose event never comes."""


@dataclass
class Scene:
    port: int
    file: AccessFile
    in_settings: tuple[str, ...] = ()
    loopback: bool = False
    outcomes: list[StepOutcome] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def pair(
        self,
        robot: FakeRobot,
        place: str | None = None,
        *,
        port: int = 0,
        times: Times = PATIENT,
    ) -> RobotAddress:
        """``place`` ``None``: the robot's address."""
        typed = place or robot.address
        if ":" not in typed:
            typed = f"{typed}:{robot.app_port}"
        return await Pairing(
            typed,
            port or self.port,
            self.file,
            self.tell,
            self.in_settings,
            self.loopback,
            times,
        ).run()

    def tell(self, outcome: StepOutcome) -> None:
        self.outcomes.append(outcome)
        self.changed.set()

    async def until(self, step: PairingStep) -> None:
        """Wait until that step has succeeded."""
        while not self.said(step):
            self.changed.clear()
            await self.changed.wait()

    def said(self, step: PairingStep) -> list[str]:
        return [outcome.what for outcome in self.outcomes if outcome.step is step]

    async def allowed(self) -> list[str]:
        known = await asyncio.to_thread(self.file.read)
        return [entry.network for entry in known.addresses]

    async def allow(self, network: str) -> None:
        parsed = parse_network(network)
        edit = lambda known: known.with_address(parsed, "")  # noqa: E731
        await asyncio.to_thread(self.file.change, edit)


class RobotElsewhere(Access):
    """The robot of ``fake_robot``, at 127.0.0.2, does not count as a program of this machine."""

    async def decide(self, caller: Caller, *, has_secret: bool) -> Way | Refusal:
        self.rules = replace(self.rules, loopback=caller.place != ADDRESS)
        return await super().decide(caller, has_secret=has_secret)


@asynccontextmanager
async def scene(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    loopback: bool = False,
    max_sessions: int = 4,
    ready: bool = True,
    other_file: bool = False,
) -> AsyncIterator[Scene]:
    """A server on a free port. Without ``loopback`` it admits only 127.0.0.1, not the robot.
    ``other_file``: it reads a different list from the one that changes."""
    file = AccessFile(folder / "access.json")
    used = AccessFile(folder / "other.json") if other_file else file
    access = Access(file=used) if loopback else RobotElsewhere(file=used)
    assistant = StagedAssistant()
    app = build_app(assistant, max_sessions=max_sessions, access=access)
    if not ready:
        assistant.reasons["llm"] = "loading"
    in_settings = () if loopback else ("127.0.0.1",)
    async with running(app, host) as (port, _):
        yield Scene(port, file, in_settings, loopback)
