"""Running a step's commands: output into a log, progress out of it, no child left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from setup_steps.failures import classify
from setup_steps.progress import Bar, Reader

POLL_S = 0.2
STOP_S = 5.0
_NO_VARIABLES: Mapping[str, str] = {}


class Log:
    """The log of one step. Commands write into the file itself, so nothing is lost with us."""

    def __init__(self, path: Path, env: Mapping[str, str], lock_fd: int | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        self.path = path
        self.env = env
        self.lock_fd = lock_fd

    def run(
        self,
        command: Sequence[str],
        what: str,
        bar: Bar | None = None,
        reader: Reader | None = None,
        env: Mapping[str, str] = _NO_VARIABLES,
        cwd: Path | None = None,
    ) -> None:
        """Raises ``SetupError`` if it fails; ``what`` says what could not be done."""
        with self.path.open("ab") as sink, self.path.open("rb") as source:
            sink.write(f"$ {' '.join(command)}\n".encode())
            sink.flush()
            begin = source.seek(0, os.SEEK_END)
            child = self._start(command, sink, env, cwd)
            try:
                _follow(child, source, bar, reader)
            finally:
                stop(child)
            source.seek(begin)
            output = source.read().decode(errors="replace")
        if child.returncode:
            error = classify(what, output)
            error.log = self.path
            raise error

    def _start(
        self,
        command: Sequence[str],
        sink: BinaryIO,
        env: Mapping[str, str],
        cwd: Path | None,
    ) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C reaches us only, and we end all of it. The child holds the
        # lock too: should this process be killed, the next setup waits for what is left of it.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**self.env, **env},
            cwd=cwd,
            start_new_session=True,
            pass_fds=() if self.lock_fd is None else (self.lock_fd,),
        )


def _follow(
    child: subprocess.Popen[bytes], source: BinaryIO, bar: Bar | None, reader: Reader | None
) -> None:
    fraction: float | None = None
    partial = b""
    while True:
        ended = _ended(child)
        *lines, partial = (partial + source.read()).split(b"\n")
        if reader is not None:
            for line in lines:
                fraction = reader(line.decode(errors="replace"))
        if bar is not None:
            bar.show(fraction)
        if ended:
            return


def _ended(child: subprocess.Popen[bytes]) -> bool:
    try:
        child.wait(POLL_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def stop(child: subprocess.Popen[bytes]) -> None:
    """End the child and what it started, if it still runs."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        os.killpg(child.pid, number)
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            continue
