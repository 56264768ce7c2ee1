"""How ``reachy-voice models use`` talks to a server on this machine.

A UNIX socket that only the server's own user may open: one line of JSON asks, lines of JSON answer.
That user could also change the settings and restart the server, so no other credentials are needed.
Requests are handled one at a time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import stat
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, ReachyVoiceError

log = logging.getLogger("reachy_voice.control")

MOST_BYTES = 65_536
REQUEST_S = 5.0
"""Time-out for a request, which is one line."""

Tell = Callable[[str], None]


Use = Callable[[Sequence[str], Tell, bool | None], Awaitable[None]]
"""``LiveSettings.use``, the only supported request. Raises ``ReachyVoiceError``."""


def socket_path(port: int, environ: Mapping[str, str]) -> Path:
    """The socket of the server on that port. Raises ``ConfigError`` if its folder is another
    user's."""
    base = environ.get("XDG_RUNTIME_DIR")
    if base:
        folder = Path(base) / "reachy-voice"
    else:
        folder = Path(tempfile.gettempdir()) / f"reachy-voice-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ConfigError(
            f"{folder} cannot be used",
            why="it must be your own folder, closed to other users",
            fix=f"Remove it, or run: chmod 700 {folder}",
        )
    return folder / f"{port}.sock"


# --- the server --------------------------------------------------------------------------------


async def answer_requests(path: Path, use: Use, on_listening: Callable[[], None]) -> None:
    """Runs until cancelled. Raises ``OSError`` if the address cannot be bound."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        await asyncio.to_thread(_listen, listener, path)
        on_listening()
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
            with connection:
                connection.setblocking(False)
                try:
                    await _answer(connection, use)
                except Exception as error:  # whatever it was made of
                    what = type(error).__name__
                    log.warning("a request was not understood: %s: %s", what, error)
    finally:
        listener.close()
        await asyncio.to_thread(_remove, path)


def _remove(path: Path) -> None:
    """Unless another server has created its own there in the meantime."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(path))
        return
    path.unlink(missing_ok=True)


def _listen(listener: socket.socket, path: Path) -> None:
    path.unlink(missing_ok=True)  # left by a killed server: the port is ours
    listener.setblocking(False)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen()


async def _answer(connection: socket.socket, use: Use) -> None:
    async with asyncio.timeout(REQUEST_S):
        asked = json.loads(await _read_line(connection))
    assignments = [str(text) for text in asked["assignments"]]

    def send(answer: Mapping[str, Any]) -> None:
        # The client may be gone; its request continues. A few lines always fit.
        with suppress(OSError):
            connection.send(json.dumps(answer).encode() + b"\n")

    try:
        await use(assignments, lambda step: send({"step": step}), asked.get("unload_first"))
    except ReachyVoiceError as error:
        send({"error": [error.what, error.why, error.fix], "exit_code": error.exit_code})
    except Exception:
        log.exception("a request failed")
        send({"error": ["Internal error", "see the server's log", ""], "exit_code": 1})
    else:
        send({"done": True})


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
    ports = sorted(other.stem for other in path.parent.glob("*.sock") if other != path)
    return f"One runs at port {ports[0]}: add --set server.port={ports[0]}" if ports else ""


def ask(
    path: Path, assignments: Sequence[str], tell: Tell, unload_first: bool | None = None
) -> None:
    """``LiveSettings.use`` of the server at ``path``; returns when it is done. Raises
    ``NotRunning``, or a ``ReachyVoiceError`` with the server's reason and exit code."""
    asked = {"assignments": list(assignments), "unload_first": unload_first}
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(json.dumps(asked).encode() + b"\n")
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
                        return
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NotRunning(
            "No server of yours runs on this machine at that port",
            why=f"nothing answers at {path}",
            fix=_another(path)
            or "Start it with `reachy-voice serve`, or name its settings with --config",
        ) from error
    raise NotRunning("The server ended before the request was done", fix="See its log")
