"""The programs of a fleet: reachy-voice processes, and engines behind them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

FLEET = Path("examples/fleet/fleet.yaml")


@dataclass
class ServerProcess:
    """One reachy-voice process, which can be restarted after it has ended."""

    port: int
    config: str
    sets: Sequence[str]
    environ: dict[str, str]
    core: int | None = None
    """The only core that the process may use."""
    cpu_s: float = 0.0
    rss_mb: float = 0.0
    _process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        sets = [f"--set={each}" for each in (*self.sets, f"server.port={self.port}")]
        command = [sys.executable, "-m", "app.cli", "serve", "--config", self.config]
        self._process = await asyncio.create_subprocess_exec(
            *command, *sets, env=self.environ, stderr=asyncio.subprocess.DEVNULL
        )
        if self.core is not None:
            psutil.Process(self._process.pid).cpu_affinity([self.core])
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}") as client:
            headers = {"Authorization": f"Bearer {self.environ['REACHY_VOICE_KEY']}"}
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get("/ready", headers=headers)).status_code == 200:
                        return
                await asyncio.sleep(0.25)

    def look(self) -> None:
        """Record the processor time and memory of the process and its engines."""
        assert self._process
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            family = [process, *process.children(recursive=True)]
            times = [each.cpu_times() for each in family]
            self.cpu_s = sum(each.user + each.system for each in times)
            self.rss_mb = sum(each.memory_info().rss for each in family) / 1e6

    async def end(self, number: signal.Signals) -> None:
        assert self._process
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        await self._process.wait()


def fleet_environ() -> dict[str, str]:
    """The environment, with the keys that all processes share."""
    key = secrets.token_urlsafe(32)
    return {
        **os.environ,
        "REACHY_VOICE_KEY": key,
        "REACHY_VOICE__ACCESS__KEYS": key,
        "REACHY_VOICE__ACCESS__SHARED_KEY": secrets.token_urlsafe(32),
    }


@asynccontextmanager
async def engines() -> AsyncIterator[list[str]]:
    """Start a program that plays the three engines; yields the settings that point to it."""
    command = [sys.executable, "-m", "benchmarks.fleet", "--engines"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    urls = json.loads(await process.stdout.readline())
    try:
        yield [f"{kind}.url={url}" for kind, url in urls.items()]
    finally:
        process.terminate()
        await process.wait()
