"""How long a child may take to build its engine: as long as it gets on.

A big model takes minutes to import and load on a busy machine, and how many is not known before. A
child that waits for something that never comes uses neither processor nor disk nor memory.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass

import psutil

from pipeline.errors import EngineError

log = logging.getLogger("reachy_voice.worker")

QUIET_S = 60.0
"""A child that did nothing for so long hangs."""
LONGEST_S = 1800.0
"""Whatever it does. NeMo took up to 270 s on two busy cores."""
_LEAST_CPU = 0.01
"""Of one core."""
_LEAST_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Used:
    """By a process and its children, so far: seconds of processor time, bytes read from disk, bytes
    of memory."""

    cpu_s: float = 0.0
    read_bytes: int = 0
    memory_bytes: int = 0

    def gets_on(self, since: Used, seconds: float) -> bool:
        """Whether it did something in the ``seconds`` since then."""
        return (
            self.cpu_s - since.cpu_s >= _LEAST_CPU * seconds
            or self.read_bytes - since.read_bytes >= _LEAST_BYTES
            or abs(self.memory_bytes - since.memory_bytes) >= _LEAST_BYTES
        )


class StartWatch:
    """One start of the engine ``name`` in process ``pid``. Call ``look`` every ``quiet_s``."""

    def __init__(self, name: str, pid: int, quiet_s: float = QUIET_S) -> None:
        self.quiet_s = quiet_s
        self._name = name
        self._pid = pid
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._before = Used()

    async def look(self) -> None:
        """Raises ``EngineError`` when the child does not get on."""
        used = await asyncio.to_thread(_used, self._pid)
        seconds = self._loop.time() - self._began
        what = f"The {self._name} engine did not start within {seconds:.0f} s"
        if seconds >= LONGEST_S:
            raise EngineError(what)
        if not used.gets_on(self._before, self.quiet_s):
            raise EngineError(what, why=f"its process did nothing for {self.quiet_s:g} s")
        self._before = used
        log.info(
            "the %s engine is still starting, after %.0f s: %.0f s of CPU, %d MiB so far",
            *(self._name, seconds, used.cpu_s, used.memory_bytes // 2**20),
        )


def _used(pid: int) -> Used:
    cpu_s, read_bytes, memory_bytes = 0.0, 0, 0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.Error), each.oneshot():
                cpu = each.cpu_times()
                cpu_s += cpu.user + cpu.system
                memory_bytes += each.memory_info().rss
                if hasattr(each, "io_counters"):
                    read_bytes += each.io_counters().read_bytes
    return Used(cpu_s, read_bytes, memory_bytes)
