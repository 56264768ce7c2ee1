"""The client of the robot's daemon, tested against the real one with a mock-up robot and against
other servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hardware.robot import daemon as module
from hardware.robot.daemon import open_daemon
from hardware.robot.errors import Problem
from hardware.robot.poses import LIMITS, NEUTRAL, Pose, near, within_limits
from tests.support.moving_robot import raises_problem
from tests.support.places import ROOT
from tests.support.robot_daemon import LOCK, RobotDaemon, free_port

pytestmark = [
    pytest.mark.machine,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),  # the first time, the daemon is installed
]


def as_pose(state: dict[str, object]) -> Pose:
    head, antennas = state["head_pose"], state["antennas_position"]
    assert isinstance(head, dict)
    assert isinstance(antennas, list)
    body_yaw = state["body_yaw"]
    assert isinstance(body_yaw, float)
    right, left = antennas
    neck_yaw = head.pop("yaw") - body_yaw
    return Pose(
        **head, neck_yaw=neck_yaw, body_yaw=body_yaw, right_antenna=right, left_antenna=left
    )


async def test_it_reads_the_daemons_state(robot: RobotDaemon) -> None:
    async with open_daemon(robot.url) as daemon:
        await daemon.check()
        # The robot may still settle between the two.
        assert near(as_pose(await robot.get("state/full")), await daemon.pose())
        assert await daemon.holder() is None
        assert not await daemon.plays_a_move()


async def test_it_switches_the_motors(robot: RobotDaemon) -> None:
    async with open_daemon(robot.url) as daemon:
        for mode in ("disabled", "enabled"):
            await daemon.set_motors(mode)
            assert await daemon.motors() == mode
            assert (await robot.get("motors/status"))["mode"] == mode


def corners() -> list[Pose]:
    """Extreme targets: each axis by itself, then pairs of opposite corners."""
    single = [
        Pose(*(sign * limit if at == axis else 0.0 for at, limit in enumerate(LIMITS)))
        for axis in range(len(LIMITS))
        for sign in (-1, 1)
    ]
    signs = [(1, 1, 1, 1, 1, 1, 1), (-1, 1, -1, 1, -1, 1, -1), (1, -1, 1, 1, 1, -1, 1)]
    signs += [tuple(-sign for sign in row) for row in signs]
    axes = [[s * limit for s, limit in zip(row, LIMITS[:7], strict=True)] for row in signs]
    return single + [Pose(*row, 0.5, -0.5) for row in axes]


async def test_the_robot_goes_where_it_is_told_in_every_corner(robot: RobotDaemon) -> None:
    async with open_daemon(robot.url) as daemon, daemon.targets() as targets:
        for corner in corners():
            assert near(within_limits(corner), corner)
            for part in (0.3, 0.6, 0.8, 1.0):  # its kinematics follow a path, not jumps
                on_the_way = Pose(*(value * part for value in corner))
                await targets.send(on_the_way)
                await robot.reaches(lambda state, goal=on_the_way: near(as_pose(state), goal))
        await targets.send(NEUTRAL)
        await robot.reaches(lambda state: near(as_pose(state), NEUTRAL))


async def test_it_sees_that_the_daemon_plays_a_move(robot: RobotDaemon) -> None:
    async with open_daemon(robot.url) as daemon:
        pose = {"head_pose": {"yaw": 0.3}, "duration": 20.0}
        move = await robot.post("move/goto", pose)
        assert await daemon.plays_a_move()
        await robot.post("move/stop", move)
        assert not await daemon.plays_a_move()


async def test_a_rejected_target_is_reported(
    robot: RobotDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.json, "dumps", lambda target: str(target))
    async with open_daemon(robot.url) as daemon, daemon.targets() as targets:
        await targets.send(NEUTRAL)
        with raises_problem("refuses", match="does not take a target"):
            await targets.watch()


# --- what is no such daemon ---------------------------------------------------------------------

HTTP = "HTTP/1.1 {}\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{}"


@asynccontextmanager
async def answering(answers: dict[str, tuple[str, object]]) -> AsyncIterator[str]:
    """A server with an answer (status and JSON, or text) per path suffix; it hangs on other paths,
    like an unplugged one."""
    hung = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        for end, (status, content) in answers.items():
            if path.endswith(end):
                text = content if isinstance(content, str) else json.dumps(content)
                kind = "text/html" if isinstance(content, str) else "application/json"
                writer.write(HTTP.format(status, kind, len(text), text).encode())
                break
        else:
            await hung.wait()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        hung.set()


@pytest.mark.parametrize("url", ["", "robot.local:70000", "http://\u2603", "\0"])
async def test_an_invalid_address_is_reported(url: str) -> None:
    with raises_problem("not found", match=r"robot\.url is no"):
        async with open_daemon(url):
            pass


async def test_nothing_answers() -> None:
    async with open_daemon(f"127.0.0.1:{free_port()}") as daemon:
        with raises_problem("not found", match="nothing answers"):
            await daemon.check()
        with raises_problem("lost", match="takes no targets"):
            async with daemon.targets():
                pass


@pytest.mark.parametrize(
    ("status", "content", "problem", "said"),
    [
        ("200 OK", "<html>A printer</html>", "not found", "no daemon of a Reachy Mini"),
        ("200 OK", {"hello": "world"}, "not found", "no daemon of a Reachy Mini"),
        ("200 OK", [], "not found", "no daemon of a Reachy Mini"),
        ("404 Not Found", "what?", "not found", "knows no /api/daemon/status"),
        ("302 Found", "", "refuses", "answers 302"),
        ("500 Internal Server Error", "oh", "refuses", "answers 500"),
        ("503 Service Unavailable", {"detail": "no"}, "not ready", "motors are not up"),
        ("200 OK", {"state": "starting"}, "not ready", "its state is starting"),
        ("200 OK", {"state": "error", "error": "No port."}, "not ready", "No port."),
    ],
)
async def test_another_server_is_not_taken_for_a_robot(
    status: str, content: object, problem: Problem, said: str
) -> None:
    answers = {"/api/daemon/status": (status, content)}
    async with answering(answers) as url, open_daemon(url) as daemon:
        with raises_problem(problem, match=said):
            await daemon.check()


async def test_a_server_that_hangs_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    async with answering({}) as url, open_daemon(url) as daemon:
        with raises_problem("lost", match="does not answer"):
            await daemon.check()
        with raises_problem("lost", match="takes no targets"):
            async with daemon.targets():
                pass


@pytest.mark.parametrize(
    ("lock", "app", "holder"),
    [
        ({"state": "free", "holder_name": None}, None, None),
        ({"state": "local_app", "holder_name": "dance"}, None, "dance"),
        ({"state": "remote_session", "holder_name": None}, None, "remote_session"),
        (None, None, None),  # a daemon that has no such lock yet
        (None, {"info": {"name": "dance"}, "state": "running"}, "dance"),
        (None, {"info": {"name": "dance"}, "state": "done"}, None),
    ],
)
async def test_the_holder_of_the_robot_is_found(
    lock: object, app: object, holder: str | None
) -> None:
    unknown = ("404 Not Found", {"detail": "Not Found"})
    answers = {
        "/robot-app-lock-status": ("200 OK", lock) if lock else unknown,
        "/current-app-status": ("200 OK", app),
    }
    async with answering(answers) as url, open_daemon(url) as daemon:
        assert await daemon.holder() == holder


@pytest.mark.parametrize("pose", [{}, {"head_pose": {"m": [0] * 16}}, {"head_pose": None}, None])
async def test_an_unknown_format_is_reported(pose: object) -> None:
    async with answering({"/state/full": ("200 OK", pose)}) as url, open_daemon(url) as daemon:
        with raises_problem("refuses", match="unknown format"):
            await daemon.pose()


async def test_the_lock_file_names_no_registry_and_is_not_part_of_the_product() -> None:
    lock = LOCK.read_text()
    assert "://" not in lock
    assert "reachy-mini==1.13.0" in lock
    ours = ROOT / "requirements.lock"
    assert "reachy" not in ours.read_text()
