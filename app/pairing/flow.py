"""The order of things: find, look, start, allow, tell, watch; and undoing what was done, where it
fails or is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from app.access.file import AccessFile
from app.access.policy import parse_address
from app.pairing.app_rpc import AppRpc, AppSays, RpcFailed, RpcRefused, former, setting
from app.pairing.daemon import Daemon
from app.pairing.own_server import OwnServer, unusable
from app.pairing.permission import allowed, to_end
from app.pairing.place import parse_place, robot_at, robots_around, the_only
from app.pairing.running_app import reach_app, restart_app
from app.pairing.steps import Outcome, PairError, Robot, Step, Times, in_url, plain
from app.pairing.way_back import Evidence, Sightings, arrived, firewall_advice, turned_down, why_not
from pipeline.errors import ReachyVoiceError

Tell = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for. ``robot`` as typed, ``None``: look around. ``port``: of our server.
    ``start``: the app may be started. ``daemon_port`` ``None``: as announced, or the usual one."""

    robot: str | None
    port: int
    start: bool = False
    daemon_port: int | None = None


@dataclass(frozen=True, slots=True)
class Doors:
    """Who may connect to our server: the list that is changed, and what the settings let in.
    ``loopback``: programs on this machine need no permission."""

    file: AccessFile
    in_settings: Sequence[str] = ()
    loopback: bool = True


class Pairing:
    """One run of ``reachy-voice pair``. ``tell`` gets each outcome as soon as it is known."""

    def __init__(self, wish: Wish, doors: Doors, tell: Tell, times: Times | None = None) -> None:
        self._wish = wish
        self._doors = doors
        self._tell = tell
        self._times = times or Times()
        self._step = Step.ROBOT
        self._told: ReachyVoiceError | None = None
        self._changed = False
        """The app may have another setting than before."""
        self._confirmed = False
        """It has, and will have no other one of ours."""

    async def run(self) -> Robot:
        """The robot, which then talks to our server. Raises ``ReachyVoiceError``; what was done is
        undone then, as after a cancellation."""
        with self._telling():
            robot = await self._find()
            self._ok(f"{robot.place}{', on this machine' if robot.here else ''}")
            rpc = AppRpc(robot, self._times.connect_s)
            own = OwnServer(robot.ours, self._wish.port, self._times.connect_s)
            async with own, Daemon(robot, self._times.connect_s) as daemon:
                await self._connect(robot, rpc, own, daemon)
        return robot

    async def _connect(self, robot: Robot, rpc: AppRpc, own: OwnServer, daemon: Daemon) -> None:
        port = self._wish.port
        self._step = Step.SERVER
        if (error := unusable(await own.look(), robot.ours, port)) is not None:
            raise error
        self._ok(f"the robot can be sent to {in_url(robot.ours)}:{port}")

        self._step = Step.APP
        app = await reach_app(robot, rpc, daemon, self._times, start=self._wish.start)
        self._ok("the conversation app answers")

        self._step = Step.ACCESS
        async with self._allowed(robot), self._set_back(robot, rpc, app):
            with self._telling():
                sightings = await own.callers()
                if _is_paired(robot, port, app, sightings):
                    self._step = Step.WAY_BACK
                    self._ok(f"{robot.place} is connected to this server already")
                    return
                app = await self._point(robot, rpc, daemon)
                await self._watch(robot, rpc, own, app, sightings)

    async def _find(self) -> Robot:
        wish, times = self._wish, self._times
        if wish.robot is None:
            return the_only(await robots_around(times, wish.daemon_port))
        return await robot_at(parse_place(wish.robot), times, wish.daemon_port)

    async def _point(self, robot: Robot, rpc: AppRpc, daemon: Daemon) -> AppSays:
        self._step = Step.SETTING
        self._changed = True
        try:
            app = await rpc.configure(setting(robot.ours, self._wish.port))
        except RpcRefused as error:
            raise _refused_setting(robot, self._wish.port, error) from error
        except RpcFailed as error:
            raise PairError(
                "The robot's app did not confirm the address of this server",
                why=error.detail or str(error.trouble),
                fix="Pair again; if that does not help, restart the app in the robot's dashboard",
            ) from error
        self._confirmed = True
        if app.waits_for_restart:
            app = await restart_app(robot, rpc, daemon, self._times)
        self._ok(f"the app is told to use {in_url(robot.ours)}:{self._wish.port}")
        return app

    async def _watch(
        self,
        robot: Robot,
        rpc: AppRpc,
        own: OwnServer,
        app: AppSays | None,
        before: Sightings | None,
    ) -> None:
        """Until both sides say that they have met."""
        self._step = Step.WAY_BACK
        port, now = self._wish.port, asyncio.get_running_loop().time
        settled = app is None or not app.connected
        settles_at = now() + self._times.way_back_s / 2
        seen = Evidence(robot, port, app, before, None, settled)
        try:
            async with asyncio.timeout(self._times.way_back_s):
                while not arrived(seen):
                    await asyncio.sleep(self._times.ask_every_s)
                    try:
                        app = await rpc.status()
                    except (RpcFailed, RpcRefused):
                        app = None
                    settled |= app is None or not app.connected or now() >= settles_at
                    seen = Evidence(robot, port, app, before, await own.callers(), settled)
                    if turned_down(seen):
                        break
        except TimeoutError:
            pass
        if not arrived(seen):
            if (gone := unusable(await own.look(), robot.ours, port)) is not None:
                raise gone
            advice = await asyncio.to_thread(firewall_advice, robot, port)
            raise why_not(seen, advice)
        self._ok(f"{robot.place} is connected to this server")

    # --- what is undone where it does not succeed ----------------------------------------------

    @asynccontextmanager
    async def _allowed(self, robot: Robot) -> AsyncIterator[None]:
        address = parse_address(robot.address)
        if address is None or (self._doors.loopback and robot.here):
            self._ok("programs on this machine need no permission")
            yield
            return

        def undone(error: ReachyVoiceError | None) -> None:
            if error is None:
                self._tell(Outcome(Step.ACCESS, "undone", f"{address} is off the list again"))
                return
            fix = f"reachy-voice allow --remove {address}"
            what = f"{address} is still allowed to connect"
            self._tell(Outcome(Step.ACCESS, "left", what, error.why, fix))

        doors = self._doors
        async with allowed(doors.file, str(address), doors.in_settings, undone) as new:
            said = "may connect without a key" if new else "was allowed already"
            self._ok(f"{address} {said}")
            yield

    @asynccontextmanager
    async def _set_back(self, robot: Robot, rpc: AppRpc, before: AppSays) -> AsyncIterator[None]:
        """What is set inside is set back, if it does not succeed."""
        try:
            yield
        except BaseException:
            if self._changed and not before.points_at(robot.ours, self._wish.port):
                await to_end(self._restore(robot, rpc, before))
            raise

    async def _restore(self, robot: Robot, rpc: AppRpc, before: AppSays) -> None:
        what = "The app has its former connection again"
        try:
            if self._confirmed:
                now = await rpc.status()
                if not now.points_at(robot.ours, self._wish.port):
                    self._tell(_not_ours(now, before))
                    return
            if (parameters := former(before)) is not None:
                if (await rpc.configure(parameters)).waits_for_restart:
                    what = f"{what}, once it is restarted"
                self._tell(Outcome(Step.SETTING, "undone", what))
                return
            why = "it was not known"
        except (RpcFailed, RpcRefused) as error:
            why = error.message if isinstance(error, RpcRefused) else str(error.trouble)
        what = "The app did not get its former connection back"
        fix = "In the app: Settings -> Connection"
        self._tell(Outcome(Step.SETTING, "left", what, why, fix))

    # --- what is told --------------------------------------------------------------------------

    def _ok(self, what: str) -> None:
        self._tell(Outcome(self._step, "ok", what))

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Tells of the error that ends a step, once, and before anything is undone."""
        try:
            yield
        except ReachyVoiceError as error:
            if self._told is not error:
                self._told = error
                self._tell(Outcome(self._step, "failed", error.what, error.why, error.fix))
            raise


def _is_paired(robot: Robot, port: int, app: AppSays, sightings: Sightings | None) -> bool:
    knocks = (sightings or {}).get(robot.address)
    is_open = knocks is not None and knocks.open > 0
    return is_open and app.connected and app.points_at(robot.ours, port)


def _not_ours(now: AppSays, before: AppSays) -> Outcome:
    """The app forgot our setting, or another one was made meanwhile."""
    place = f"{now.mode} {now.host}:{now.port}" if now.mode == "local" else now.mode
    if (now.mode, now.host, now.port) == (before.mode, before.host, before.port):
        return Outcome(Step.SETTING, "undone", "The app has its former connection")
    what = f"The app has another connection by now: {plain(place)}"
    return Outcome(Step.SETTING, "left", what, fix="In the app: Settings -> Connection")


def _refused_setting(robot: Robot, port: int, error: RpcRefused) -> PairError:
    by_hand = f"In the app: Settings -> Connection -> Local, host {robot.ours}, port {port}"
    if error.unknown_method:
        return PairError(
            "This version of the app cannot be pointed at a server from here",
            why=error.message,
            fix=f"Update it (0.9 or newer), or by hand. {by_hand}",
        )
    if "pin" in error.reason:
        return PairError(
            "The robot's app asks for a PIN before it is set", why=error.message, fix=by_hand
        )
    return PairError("The robot's app refused the setting", why=error.message, fix=by_hand)
