"""CPU time and resident memory of a process and its children."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """``cpu_seconds`` since the processes began; ``rss_mib`` is the sum over the processes, so that
    a page shared by several (libraries, say) counts once for each."""

    cpu_seconds: float
    rss_mib: float


def usage(pid: int) -> ProcessUsage:
    """Usage of ``pid`` and everything it started. Processes that end meanwhile do not count."""
    cpu = rss = 0.0
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        try:
            times = process.cpu_times()
            cpu += times.user + times.system
            rss += process.memory_info().rss / MIB
        except psutil.NoSuchProcess:
            continue
    return ProcessUsage(cpu, rss)
