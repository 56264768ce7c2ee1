"""Run a step's commands: output to a log, elapsed time on screen, no orphaned child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.setup.failures import classify

POLL_S = 0.5
STOP_S = 5.0
PLAIN_S = 30.0
"""Interval of the lines that show the time if there is no terminal."""
_NO_VARIABLES: Mapping[str, str] = {}


def tell(text: str, end: str = "\n") -> None:
    """Print it for the user at once; standard output is for what was asked."""
    print(text, end=end, file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """``1:05`` for 65 seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


class Log:
    """The log of one step. Commands write to it directly, so no output is lost if we die."""

    def __init__(
        self,
        path: Path,
        env: Mapping[str, str],
        lock_fd: int | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        """``quiet``: show no time, because another step does."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        self.path = path
        self.env = env
        self.lock_fd = lock_fd
        self.quiet = quiet
        self.stopped = threading.Event()
        """Once set, the running command is ended, and no other is started."""
        self._started = self._shown = time.monotonic()

    def run(
        self,
        command: Sequence[str],
        what: str,
        env: Mapping[str, str] = _NO_VARIABLES,
        cwd: Path | None = None,
    ) -> None:
        """Run a command. Raises ``SetupError`` if it fails; ``what`` describes the failure."""
        with self.path.open("ab") as sink:
            sink.write(f"$ {' '.join(command)}\n".encode())
            sink.flush()
            begin = sink.tell()
            # A new session, so that Ctrl-C reaches only us and we end the whole session. The child
            # holds the lock too: if this process is killed, the next setup waits for the child.
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**self.env, **env},
                cwd=cwd,
                start_new_session=True,
                pass_fds=() if self.lock_fd is None else (self.lock_fd,),
            )
        try:
            while _runs(child) and not self.stopped.is_set():
                self.show()
        finally:
            stop(child)
        if child.returncode:
            error = classify(what, self.path.read_bytes()[begin:].decode(errors="replace"))
            error.log = self.path
            raise error

    def done(self) -> None:
        """Print the step's last line."""
        before = "\r" if sys.stderr.isatty() else ""
        took = clock(time.monotonic() - self._started)
        tell(f"{before}      done in {took}")

    def show(self) -> None:
        """Print the elapsed time from time to time."""
        if self.quiet:
            return
        now = time.monotonic()
        elapsed = clock(now - self._started)
        if sys.stderr.isatty():
            tell(f"\r      {elapsed}", end="")
        elif now - self._shown >= PLAIN_S:
            self._shown = now
            tell(f"      {elapsed}")


def _runs(child: subprocess.Popen[bytes]) -> bool:
    try:
        child.wait(POLL_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def stop(child: subprocess.Popen[bytes]) -> None:
    """End the child and its descendants if it still runs."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        os.killpg(child.pid, number)
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            continue
