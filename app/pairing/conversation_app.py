"""Reach the conversation app. If it does not answer, the daemon says why, and can start it."""

from __future__ import annotations

import asyncio

from app.pairing.robot_programs import (
    AppError,
    AppSays,
    DaemonError,
    RunningApp,
    Trouble,
    app_status,
    installed_app,
    restart_app,
    running_app,
    start_app,
)
from app.pairing.steps import PairError, Robot, Times

_INSTALL = "Install or update the conversation app in the robot's dashboard (0.9 or newer)"


async def reach_app(robot: Robot, times: Times, *, start: bool) -> AppSays:
    """The app's status; ``start`` starts or restarts the app if that helps. Raises
    ``PairError``."""
    try:
        return await app_status(robot, times.connect_s)
    except AppError as error:
        if error.trouble not in (Trouble.REFUSED, Trouble.SILENT):
            raise _unusable(robot, error) from error
        missing = error
    try:
        running = await running_app(robot, times.connect_s)
    except DaemonError as error:
        raise _nothing_there(robot, missing, error) from error
    if running is not None and running.state in ("starting", "running"):
        _require_conversation(robot, running)
        return await _appears(robot, times, times.start_s if start else times.settle_s)
    if not start or (running is not None and running.state == "stopping"):  # it ignores commands
        raise _not_running(robot, running)
    await _start(robot, running, times)
    return await _appears(robot, times, times.start_s)


async def reach_restarted(robot: Robot, times: Times) -> AppSays:
    """Restart an app that applies a new setting only at start. Raises ``PairError``."""
    try:
        await restart_app(robot, times.connect_s, times.restart_s)
    except DaemonError as error:
        raise PairError(
            "The robot's app must be restarted to use the new address, and the daemon cannot do it",
            why=error.detail,
            fix="Stop the conversation app and start it again, then pair again",
        ) from error
    return await _appears(robot, times, times.start_s)


async def _start(robot: Robot, running: RunningApp | None, times: Times) -> None:
    """Start or restart the app, without stopping another app."""
    try:
        if running is not None and running.state != "done":
            _require_conversation(robot, running)
            await restart_app(robot, times.connect_s, times.restart_s)
            return
        name = await installed_app(robot, times.connect_s)
        if name is None:
            raise PairError(
                "The conversation app is not installed on the robot",
                why="the daemon's list of installed apps has none, or several",
                fix=_INSTALL,
            )
        await start_app(robot, name, times.connect_s, times.restart_s)
    except DaemonError as error:
        raise PairError(
            "The robot's daemon could not start the conversation app",
            why=error.detail,
            fix="Start it in the robot's dashboard, which shows its log; then pair again",
        ) from error


async def _appears(robot: Robot, times: Times, patience_s: float) -> AppSays:
    """Poll until the app answers: no event reports its start."""
    fatal = (Trouble.NO_RPC, Trouble.UNKNOWN_METHOD, Trouble.PIN, Trouble.ERROR)
    try:
        async with asyncio.timeout(patience_s):
            while True:
                try:
                    return await app_status(robot, times.connect_s)
                except AppError as error:
                    if error.trouble in fatal:
                        raise _unusable(robot, error) from error
                await _require_not_ended(robot, times)
                await asyncio.sleep(times.ask_every_s)
    except TimeoutError:
        raise PairError(
            f"The conversation app runs, but does not answer at port {robot.app_port}",
            why=f"{patience_s:g} s have passed; it may be an older version, or still be loading",
            fix=f"Wait and pair again; else {_INSTALL[0].lower()}{_INSTALL[1:]}",
        ) from None


async def _require_not_ended(robot: Robot, times: Times) -> None:
    try:
        running = await running_app(robot, times.connect_s)
    except DaemonError:
        return
    if running is not None and running.state in ("error", "done"):
        raise _not_running(robot, running)


def _require_conversation(robot: Robot, running: RunningApp) -> None:
    if "conversation" not in running.name.lower():
        raise PairError(
            f"The robot runs another app: {running.name}",
            why="it can run only one app at a time",
            fix="Stop it in the robot's dashboard, then: "
            f"reachy-voice pair {robot.address} --start",
        )


def _not_running(robot: Robot, running: RunningApp | None) -> PairError:
    command = f"reachy-voice pair {robot.address} --start"
    match running:
        case RunningApp(name, "error", error):
            fix = f"Look at its log in the robot's dashboard, then: {command}"
            return PairError(f"The app {name} has failed on the robot", why=error, fix=fix)
        case RunningApp(name, "stopping"):
            fix = f"Wait until it has ended, then: {command}"
            return PairError(f"The app {name} is being stopped", fix=fix)
        case _:
            fix = f"Start it in the robot's dashboard, or: {command}"
            return PairError("The conversation app is not running on the robot", fix=fix)


def _nothing_there(robot: Robot, app: AppError, daemon: DaemonError) -> PairError:
    """Neither app nor daemon gives an answer."""
    if daemon.answered:
        return PairError(
            "The conversation app does not answer, and the daemon cannot say why",
            why=daemon.detail,
            fix="Start the app in the robot's dashboard, then pair again",
        )
    if app.trouble is Trouble.SILENT:
        return PairError(
            f"Nothing answers at {robot.address}",
            why="the robot is off, in another network, or behind a firewall",
            fix=f"Try: ping {robot.address}",
        )
    if robot.here:
        fix = "Start the robot's daemon (its desktop app) and the conversation app on this machine"
    else:
        fix = (
            "Is that the robot? A Reachy Mini Lite is paired on the machine that it is plugged "
            "into: reachy-voice pair localhost"
        )
    where = f"{robot.app_port} (app) or {robot.daemon_port} (daemon)"
    return PairError(f"No robot answers at {robot.address}, port {where}", why=app.detail, fix=fix)


def _unusable(robot: Robot, error: AppError) -> PairError:
    """Something answers at the app's port, but not as the app should."""
    place = f"{robot.address}:{robot.app_port}"
    match error.trouble:
        case Trouble.LOST:
            return PairError(
                "The robot's app closed the connection before it answered",
                why="it is stopping or restarting",
                fix="Wait a moment, then pair again",
            )
        case Trouble.UNKNOWN_METHOD:
            what = f"The app at {place} is not a conversation app that can be paired"
            return PairError(what, why=error.detail, fix=_INSTALL)
        case Trouble.PIN | Trouble.ERROR:
            what = f"The app at {place} does not report its state"
            return PairError(what, why=error.detail, fix=_INSTALL)
        case _:
            return PairError(
                f"The app at {place} cannot be configured from here",
                why=f"it has no JSON-RPC at /rpc, like older versions ({error.detail})",
                fix=f"{_INSTALL}, or configure it by hand: Settings -> Connection -> Local",
            )
