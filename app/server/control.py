"""How ``reachy-voice models use`` and ``say`` talk to a server, or to ``talk``, on this machine.

A UNIX socket that only the server's own user may open: one line of JSON asks, lines of JSON answer.
That user could also change the settings and restart the server, so no other credentials are needed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, ReachyVoiceError

log = logging.getLogger("reachy_voice.control")

MOST_BYTES = 65_536
REQUEST_S = 5.0
"""Time-out for a request, which is one line."""

Tell = Callable[[str], None]


Carry = Callable[[Mapping[str, Any], Tell], Awaitable[Mapping[str, Any]]]
"""Carries out a request and returns the fields of the last answer. Raises ``ReachyVoiceError``."""


def talk_socket_path(environ: Mapping[str, str]) -> Path:
    """The socket of ``talk``, which has its own engines. Raises ``ConfigError``."""
    return socket_path(0, environ).with_name("talk.sock")


def socket_path(port: int, environ: Mapping[str, str]) -> Path:
    """The socket of the server on that port. Raises ``ConfigError`` if its folder is not ours."""
    base = environ.get("XDG_RUNTIME_DIR")
    if base:
        folder = Path(base) / "reachy-voice"
    else:
        folder = Path(tempfile.gettempdir()) / f"reachy-voice-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:  # as after `su`, which keeps the variable
        fix = "Set XDG_RUNTIME_DIR to a folder of yours, or unset it"
        raise ConfigError(f"{folder} cannot be used", why=str(error), fix=fix) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ConfigError(
            f"{folder} cannot be used",
            why="it must be your own folder, closed to other users",
            fix=f"Remove it, or run: chmod 700 {folder}",
        )
    return folder / f"{port}.sock"


# --- the server --------------------------------------------------------------------------------


async def answer_requests(
    path: Path, carry: Carry, on_listening: Callable[[], None] = lambda: None
) -> None:
    """Answer requests until cancelled. Raises ``OSError`` if the address cannot be bound."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        await asyncio.to_thread(_listen, listener, path)
        on_listening()
        async with asyncio.TaskGroup() as group:
            while True:
                connection, _ = await asyncio.get_running_loop().sock_accept(listener)
                group.create_task(_serve(connection, carry))
    finally:
        listener.close()
        await asyncio.to_thread(_remove, path)


async def _serve(connection: socket.socket, carry: Carry) -> None:
    with connection:
        connection.setblocking(False)
        try:
            await _answer(connection, carry)
        except Exception as error:  # whatever the request contained
            log.warning("a request was not understood: %s: %s", type(error).__name__, error)


def _remove(path: Path) -> None:
    """Remove the socket, unless another server listens there by now."""
    if not _answers(path):
        path.unlink(missing_ok=True)


def _listen(listener: socket.socket, path: Path) -> None:
    path.unlink(missing_ok=True)  # left by a killed server: the port is ours
    listener.setblocking(False)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen()


async def _answer(connection: socket.socket, carry: Carry) -> None:
    async with asyncio.timeout(REQUEST_S):
        asked = json.loads(await _read_line(connection))

    async with asyncio.TaskGroup() as group:
        carrying = group.create_task(_carry_out(connection, carry, asked))
        if "say" in asked:  # other requests continue without their client
            watching = group.create_task(_end_with_client(connection, carrying))
            carrying.add_done_callback(lambda _: watching.cancel())


async def _end_with_client(connection: socket.socket, carrying: asyncio.Task[None]) -> None:
    with suppress(OSError):
        while await asyncio.get_running_loop().sock_recv(connection, MOST_BYTES):
            pass
    carrying.cancel()


async def _carry_out(connection: socket.socket, carry: Carry, asked: Mapping[str, Any]) -> None:
    def send(answer: Mapping[str, Any]) -> None:
        with suppress(OSError):  # the client may be gone; a few lines always fit
            connection.send(json.dumps(answer).encode() + b"\n")

    try:
        answer = await carry(asked, lambda step: send({"step": step}))
    except ReachyVoiceError as error:
        send({"error": [error.what, error.why, error.fix], "exit_code": error.exit_code})
    except Exception:
        log.exception("a request failed")
        send({"error": ["Internal error", "see the server's log", ""], "exit_code": 1})
    else:
        send({"done": answer})


async def _read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = await asyncio.get_running_loop().sock_recv(connection, MOST_BYTES)
        line += piece
        if not piece or len(line) > MOST_BYTES:
            raise ValueError("no line of JSON arrived")
    return line


# --- the client --------------------------------------------------------------------------------


class NotRunning(ReachyVoiceError):
    """No server is running here."""

    exit_code = 9


def _another(path: Path) -> str:
    """How to reach a server on another port, if one is running."""
    for other in sorted(path.parent.glob("*.sock")):
        if other != path and other.stem.isdigit() and _answers(other):
            return f"One runs at port {other.stem}: add --set server.port={other.stem}"
    return ""


def _answers(path: Path) -> bool:
    """Whether a server listens there; a killed one leaves its socket behind."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True


def ask(path: Path, asked: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Have the server at ``path`` carry out a request; returns its answer. Raises as ``request``
    and ``answer_to``."""
    with request(path, asked) as connection:
        return answer_to(connection, tell)


@contextmanager
def request(path: Path, asked: Mapping[str, Any]) -> Iterator[socket.socket]:
    """A connection to the server at ``path``, which carries out a request meanwhile. Raises
    ``NotRunning``."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError as error:
            what, fix = "`reachy-voice talk` does not run on this machine", "Start it"
            if path.stem.isdigit():
                what = "No server of yours runs on this machine at that port"
                fix = _another(path) or (
                    "Start it with `reachy-voice serve`, or name its settings with --config"
                )
            why = f"nothing answers at {path}: {error.strerror or error}"
            raise NotRunning(what, why=why, fix=fix) from error
        connection.sendall(json.dumps(asked).encode() + b"\n")
        yield connection


def answer_to(connection: socket.socket, tell: Tell) -> dict[str, Any]:
    """Wait for the answer to a ``request``. Raises ``NotRunning`` if the server ends first, or a
    ``ReachyVoiceError`` with its reason and exit code."""
    with connection.makefile() as lines:
        for line in lines:
            answer = json.loads(line)
            if "step" in answer:
                tell(answer["step"])
            elif "error" in answer:
                what, why, fix = answer["error"]
                refused = ReachyVoiceError(what, why=why, fix=fix)
                refused.exit_code = answer["exit_code"]
                raise refused
            else:
                done: dict[str, Any] = answer["done"]
                return done
    raise NotRunning("The server ended before the request was done", fix="See its log")
