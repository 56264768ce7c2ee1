"""Is the conversation app there? Its own answer counts; the daemon explains a missing one, and
starts it."""

from __future__ import annotations

import asyncio

from app.pairing.app_rpc import AppRpc, AppSays, RpcFailed, RpcRefused, Trouble
from app.pairing.daemon import Daemon, DaemonError, RunningApp, conversation_app
from app.pairing.steps import PairError, Robot, Times

_INSTALL = "Install or update the conversation app in the robot's dashboard (0.9 or newer)"


async def reach_app(
    robot: Robot, rpc: AppRpc, daemon: Daemon, times: Times, *, start: bool
) -> AppSays:
    """What the app says of itself; with ``start`` it is started, or started again, where that
    helps. Raises ``PairError``."""
    try:
        return await rpc.status()
    except RpcRefused as error:
        raise _other_version(robot, error) from error
    except RpcFailed as error:
        if error.trouble not in (Trouble.REFUSED, Trouble.SILENT):
            raise _no_rpc(robot, error) from error
        first = error
    try:
        running = await daemon.current()
    except DaemonError as error:
        raise _nobody(robot, first, error) from error
    if running is not None and running.state in ("starting", "running"):
        _is_conversation(robot, running)
        patience_s = times.start_s if start else times.settle_s
        return await _appears(robot, rpc, daemon, patience_s, times)
    if not start or (running is not None and running.state == "stopping"):  # it takes no order then
        raise _not_running(robot, running)
    await _start(robot, daemon, running, times.restart_s)
    return await _appears(robot, rpc, daemon, times.start_s, times)


async def restart_app(robot: Robot, rpc: AppRpc, daemon: Daemon, times: Times) -> AppSays:
    """For an app that takes a new setting only when it begins. Raises ``PairError``."""
    try:
        await daemon.restart(times.restart_s)
    except DaemonError as error:
        raise PairError(
            "The robot's app must be restarted to use the new address, and the daemon cannot do it",
            why=error.detail,
            fix="Stop the conversation app and start it again, then pair again",
        ) from error
    return await _appears(robot, rpc, daemon, times.start_s, times)


async def _start(
    robot: Robot, daemon: Daemon, running: RunningApp | None, patience_s: float
) -> None:
    """No other app is ended for it."""
    try:
        if running is not None and not running.over:
            _is_conversation(robot, running)
            await daemon.restart(patience_s)
            return
        name = conversation_app(await daemon.installed())
        if name is None:
            raise PairError(
                "The conversation app is not installed on the robot",
                why="the daemon's list of installed apps has none, or several",
                fix=_INSTALL,
            )
        await daemon.start(name, patience_s)
    except DaemonError as error:
        raise PairError(
            "The robot's daemon could not start the conversation app",
            why=error.detail,
            fix="Start it in the robot's dashboard, which shows its log; then pair again",
        ) from error


async def _appears(
    robot: Robot, rpc: AppRpc, daemon: Daemon, patience_s: float, times: Times
) -> AppSays:
    """Ask until it answers: no event says when an app is up."""
    try:
        async with asyncio.timeout(patience_s):
            while True:
                try:
                    return await rpc.status()
                except RpcRefused as error:
                    raise _other_version(robot, error) from error
                except RpcFailed as error:
                    if error.trouble is Trouble.NO_RPC:
                        raise _no_rpc(robot, error) from error
                await _has_not_ended(robot, daemon)
                await asyncio.sleep(times.ask_every_s)
    except TimeoutError:
        raise PairError(
            f"The conversation app runs, but does not answer at port {robot.app_port}",
            why=f"{patience_s:g} s have passed; it may be an older version, or still be loading",
            fix=f"Wait and pair again; else {_INSTALL[0].lower()}{_INSTALL[1:]}",
        ) from None


async def _has_not_ended(robot: Robot, daemon: Daemon) -> None:
    try:
        running = await daemon.current()
    except DaemonError:
        return
    if running is not None and running.state in ("error", "done"):
        raise _not_running(robot, running)


def _is_conversation(robot: Robot, running: RunningApp) -> None:
    if "conversation" not in running.name.lower():
        raise PairError(
            f"The robot runs another app: {running.name}",
            why="it runs one at a time",
            fix="Stop it in the robot's dashboard, then: "
            f"reachy-voice pair {robot.address} --start",
        )


def _not_running(robot: Robot, running: RunningApp | None) -> PairError:
    command = f"reachy-voice pair {robot.address} --start"
    fix = f"Start it in the robot's dashboard, or: {command}"
    if running is not None and running.state == "error":
        what = f"The app {running.name} has failed on the robot"
        log = f"Look at its log in the robot's dashboard, then: {command}"
        return PairError(what, why=running.error, fix=log)
    if running is not None and running.state == "stopping":
        what = f"The app {running.name} is just being stopped"
        return PairError(what, fix=f"Wait until it has ended, then: {command}")
    return PairError("The conversation app does not run on the robot", fix=fix)


def _nobody(robot: Robot, app: RpcFailed, daemon: DaemonError) -> PairError:
    """Neither of the two answers."""
    if daemon.status is not None:
        return PairError(
            "The conversation app does not answer, and the daemon cannot say why",
            why=daemon.detail,
            fix="Start the app in the robot's dashboard, then pair again",
        )
    where = f"{robot.app_port} (app) or {robot.daemon_port} (daemon)"
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
    return PairError(f"No robot answers at {robot.address}, port {where}", why=app.detail, fix=fix)


def _no_rpc(robot: Robot, error: RpcFailed) -> PairError:
    place = f"{robot.address}:{robot.app_port}"
    if error.trouble is Trouble.LOST:
        return PairError(
            "The robot's app closed the connection before it answered",
            why="it is ending or starting again",
            fix="Wait a moment, then pair again",
        )
    return PairError(
        f"The app at {place} cannot be set from here",
        why=f"it has no JSON-RPC at /rpc, as older versions ({error.detail})",
        fix=f"{_INSTALL}, or set it by hand: Settings -> Connection -> Local",
    )


def _other_version(robot: Robot, error: RpcRefused) -> PairError:
    place = f"{robot.address}:{robot.app_port}"
    if error.unknown_method:
        return PairError(
            f"The app at {place} is not a conversation app that can be paired",
            why=error.message,
            fix=_INSTALL,
        )
    return PairError(f"The app at {place} does not tell its state", why=error.message, fix=_INSTALL)
