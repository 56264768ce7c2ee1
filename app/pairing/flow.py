"""``reachy-voice pair``: find the robot, check the server, allow the robot, configure its app, and
wait for the connection. A failure or cancellation undoes all changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

from app.access.file import AccessFile, AccessList
from app.access.policy import Network, in_url, is_in, parse_address, parse_network
from app.pairing.conversation_app import (
    BY_HAND,
    AppError,
    AppSays,
    app_status,
    configure_app,
    former,
    setting,
)
from app.pairing.own_server import callers
from app.pairing.place import robot_at, robots_around, the_only
from app.pairing.steps import PairError, PairingStep, RobotAddress, State, StepOutcome, Times
from app.pairing.way_back import ConnectionEvidence, firewall_advice, why_not
from app.server.callers import Knocks
from pipeline.errors import ConfigError, ReachyVoiceError
from pipeline.work import in_thread

NOTE = "Reachy Mini, by reachy-voice pair"


@dataclass
class Pairing:
    """One run."""

    target: str | None
    """The robot as typed; ``None``: search for it."""
    port: int
    """The port of our server."""
    file: AccessFile
    """The list of allowed addresses."""
    tell: Callable[[StepOutcome], None]
    """Gets each outcome as soon as it is known."""
    in_settings: Sequence[str] = ()
    """Networks allowed by the settings."""
    loopback: bool = True
    """If true, programs on this machine need no permission."""
    times: Times = field(default_factory=Times)

    _step: PairingStep = field(init=False, default="robot")
    _undo: AsyncExitStack = field(init=False, default_factory=AsyncExitStack)

    async def run(self) -> RobotAddress:
        """Pair, and return the robot. After an error (``ReachyVoiceError``) or a cancellation, all
        changes are undone."""
        async with self._undo as undo:  # all changes, even if one cannot be undone
            try:
                robot = await self._pair()
            except ReachyVoiceError as error:
                self._say("failed", error.what)
                raise
            undo.pop_all()
            return robot

    async def _pair(self) -> RobotAddress:
        if self.target is None:
            robot = the_only(await robots_around(self.times))
        else:
            robot = await robot_at(self.target, self.times)
        self._say("ok", f"{robot.place}{', on this machine' if robot.here else ''}")

        self._step = "server"
        await self._knocks(robot)
        self._say("ok", f"the robot can use {in_url(robot.ours)}:{self.port}")

        self._step = "app"
        app = await app_status(robot, self.times.connect_s)
        self._say("ok", "the conversation app answers")

        self._step = "access"
        await self._allow(robot)

        before = await self._knocks(robot)
        if before.open and app.connected and app.points_at(robot.ours, self.port):
            self._step = "way back"
            self._say("ok", f"{robot.place} is connected to this server already")
            return robot

        self._step = "setting"
        app = await self._point(robot, app)

        self._step = "way back"
        await self._watch(robot, app, before)
        self._say("ok", f"{robot.place} is connected to this server")
        return robot

    async def _knocks(self, robot: RobotAddress) -> Knocks:
        """The robot's attempts to connect so far. Raises ``NoLocalServer``."""
        known = await callers(robot.ours, self.port, self.times.connect_s)
        return known.get(robot.address, Knocks())

    # --- the list of allowed addresses ----------------------------------------------------------

    async def _allow(self, robot: RobotAddress) -> None:
        address = parse_address(robot.address)
        if address is None or (self.loopback and robot.here):
            self._say("ok", "programs on this machine need no permission")
            return
        network = parse_network(str(address))
        said = "was allowed already"

        def edit(access: AccessList) -> AccessList:
            if is_in(address, [*access.networks(), *map(parse_network, self.in_settings)]):
                return access
            nonlocal said
            said = "may connect without a key"
            self._undo.push_async_callback(self._forbid, network)
            return access.with_address(network, NOTE)

        await in_thread(lambda: self.file.change(edit))
        self._say("ok", f"{address} {said}")

    async def _forbid(self, network: Network) -> None:
        self._step = "access"
        address, was_allowed = network.network_address, False

        def edit(access: AccessList) -> AccessList:
            nonlocal was_allowed
            was_allowed = network in access.networks()
            return access.without_address(network)

        try:
            await asyncio.to_thread(self.file.change, edit)
            if was_allowed:
                self._say("undone", f"{address} is no longer allowed")
        except ConfigError as error:
            fix = f"reachy-voice allow --remove {address}"
            self._say("left", f"{address} is still allowed to connect ({error.why})", fix)

    # --- the app's setting ---------------------------------------------------------------------

    async def _point(self, robot: RobotAddress, before: AppSays) -> AppSays:
        if not before.points_at(robot.ours, self.port):
            self._undo.push_async_callback(self._restore, robot, before)
        try:
            parameters = setting(robot.ours, self.port)
            app = await configure_app(robot, parameters, self.times.connect_s)
        except AppError as error:
            raise PairError(
                "The robot's app did not take the address of this server",
                why=error.why,
                fix=f"Pair again, or configure it by hand. {BY_HAND} -> Local, host {robot.ours}, "
                f"port {self.port}",
            ) from error
        later = "; restart it now in the robot's dashboard" if app.waits_for_restart else ""
        self._say("ok", f"the app is set to {in_url(robot.ours)}:{self.port}{later}")
        return app

    async def _restore(self, robot: RobotAddress, before: AppSays) -> None:
        self._step = "setting"
        try:
            now = await app_status(robot, self.times.connect_s)
            if not now.points_at(robot.ours, self.port):  # it lost our setting, or has another one
                self._say("undone", "The app does not use this server")
                return
            if parameters := former(before):
                app = await configure_app(robot, parameters, self.times.connect_s)
                later = ", once it is restarted" if app.waits_for_restart else ""
                self._say("undone", f"The app's former connection is restored{later}")
                return
            why = "the former connection is unknown"
        except AppError as error:
            why = error.why
        self._say("left", f"The app's former connection could not be restored ({why})", BY_HAND)

    # --- the way back --------------------------------------------------------------------------

    async def _watch(self, robot: RobotAddress, app: AppSays, before: Knocks) -> None:
        """Wait until both sides report the connection. Raises ``PairError``."""
        patience_s = self.times.restart_s if app.waits_for_restart else self.times.way_back_s
        evidence = ConnectionEvidence(robot, self.port, None, before, before)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while not evidence.arrived and evidence.refusal not in (401, 403):
                    await asyncio.sleep(self.times.ask_every_s)
                    try:
                        says = await app_status(robot, self.times.connect_s)
                    except AppError:
                        says = None
                    now = await self._knocks(robot)
                    evidence = ConnectionEvidence(robot, self.port, says, before, now)
        if not evidence.arrived:
            raise why_not(evidence, await asyncio.to_thread(firewall_advice, robot, self.port))

    def _say(self, state: State, what: str, fix: str = "") -> None:
        self.tell(StepOutcome(self._step, state, what, fix))
