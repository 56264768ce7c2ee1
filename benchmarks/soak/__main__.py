"""Hours of conversations with several clients: errors, and whether memory grows.

    python -m benchmarks.soak [--hours 8] [--clients 4] [--seed N] [--out FILE]
    python -m benchmarks.soak --real [--minutes 30] [--clients 3] [--out FILE]

The first is in virtual time: the whole server except uvicorn, with engines that are quick, slow, or
fail now and then (``benchmarks.soak.engines``). The second is the real server with its
configured engines over loopback WebSockets, in real time, and people's recordings.

An error is: an event that does not conform, or is out of order (``tests/support/conformance.py``);
an ``error`` about a permitted request; a response that does not end, or ends twice; an exception in
the log or in the loop; a connection closed by the server; and, at the end, a leftover task, open
engine call or conversation.

Memory is measured after a collection: blocks allocated by Python (``sys.getallocatedblocks``), and
resident bytes after the allocator has returned free memory. The slope is fitted to the time after
the warm-up, with its standard error. Exit code 1: an error occurred, or memory grows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil

from benchmarks.harness.program import arguments, finish, load
from benchmarks.soak.links import Report
from benchmarks.soak.servers import Soak, real_soak, virtual_soak
from tests.support.virtual_time import VirtualLoop

SAMPLES = 48
"""How often memory is measured."""
WARM_UP = 1 / 4
"""Share of the time. Conversations have reached full length by then (``servers.MAX_ITEMS``)."""
SLOPE_ERRORS, SLOPE_SHARE = 3.0, 0.005
"""Memory grows if its slope exceeds this many standard errors, and amounts to more than this share
of the memory over the whole run."""
PARTING_S = 1500.0
"""How long clients may take to finish."""


@dataclass
class Memory:
    """``rows``: (hours, blocks, resident bytes)."""

    rows: list[tuple[float, int, int]] = field(default_factory=list)

    def look(self, hours: float) -> None:
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        own = psutil.Process()
        processes = (own, *own.children(recursive=True))  # engines may have their own
        resident = sum(process.memory_info().rss for process in processes)
        self.rows.append((hours, sys.getallocatedblocks(), resident))

    def slopes(self) -> dict[str, dict[str, float | bool]]:
        names = {"allocated_blocks": 1, "resident_bytes": 2}
        return {name: slope([(r[0], r[at]) for r in self.rows]) for name, at in names.items()}


def slope(points: Sequence[tuple[float, float]]) -> dict[str, float | bool]:
    """Per hour, by least squares over the rows after the warm-up; with its standard error."""
    kept = np.array([p for p in points if p[0] >= points[-1][0] * WARM_UP], dtype=float)
    at, value = kept[:, 0], kept[:, 1]
    if len(kept) < 4:
        return {"slope": float("nan"), "error": float("nan"), "grows": False}
    rate, offset = np.polyfit(at, value, 1)
    rest = value - (rate * at + offset)
    error = float(np.sqrt((rest**2).sum() / (len(at) - 2) / ((at - at.mean()) ** 2).sum()))
    change = abs(float(rate)) * (at[-1] - at[0])
    grows = abs(rate) >= SLOPE_ERRORS * error and change >= SLOPE_SHARE * float(value.mean())
    return {"slope": round(float(rate), 1), "error": round(error, 1), "grows": bool(grows)}


class _Log(logging.Handler):
    """Counts errors logged by the server as problems."""

    def __init__(self, report: Report) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        leaf = record.exc_info[1] if record.exc_info else None
        while isinstance(leaf, BaseExceptionGroup):
            leaf = leaf.exceptions[0]
        self._report.problem(f"log: {record.getMessage()} {type(leaf).__name__}: {leaf}")


@asynccontextmanager
async def watched(report: Report) -> AsyncIterator[None]:
    """Counts logged errors and failures in the loop as problems."""
    loop = asyncio.get_running_loop()
    handler = _Log(report)
    logging.getLogger().addHandler(handler)

    def failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        report.problem(f"loop: {context['message']} {context.get('exception')!r}")

    loop.set_exception_handler(failed)
    try:
        yield
    finally:
        loop.set_exception_handler(None)
        logging.getLogger().removeHandler(handler)


async def soak(
    scene: Soak,
    seconds: float,
    memory: Memory,
    report: Report,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Run the clients of a scene for this long, then let each finish; return the leftovers."""
    before = asyncio.all_tasks()
    loop = asyncio.get_running_loop()
    async with watched(report):
        running = [asyncio.create_task(client.live()) for client in scene.clients]
        began = loop.time()
        for number in range(SAMPLES + 1):
            due = began + seconds * number / SAMPLES
            await asyncio.wait(running, timeout=max(0.0, due - loop.time()))
            for client in scene.clients:
                if client.link:
                    client.link.forget()
            memory.look((loop.time() - began) / 3600)
            tell(f"{memory.rows[-1]}, problems: {report.counts['problems']} {report.problems[:1]}")
        for client in scene.clients:
            client.stopping.set()
        done, late = await asyncio.wait(running, timeout=PARTING_S)
        for task in done:
            if error := task.exception():
                report.problem(f"a client failed: {error!r}")
        for task in late:
            report.problem("a client did not come to an end")
            task.cancel()
        left = await scene.close()
        await asyncio.sleep(1.0)  # what ends by itself has ended
        left["tasks"] = len(asyncio.all_tasks() - before - {asyncio.current_task()})
    report.balance()
    for what, count in left.items():
        if count:
            report.problem(f"{count} {what} left")
    return left


def run(given: argparse.Namespace) -> dict[str, Any]:
    report, memory = Report(), Memory()
    seconds = 60 * given.minutes if given.real else 3600 * given.hours
    make = real_soak if given.real else virtual_soak
    began = time.perf_counter()

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    async def play() -> dict[str, Any]:
        async with make(given.clients, given.seed, report) as scene:
            return await soak(scene, seconds, memory, report, tell)

    with asyncio.Runner(loop_factory=None if given.real else VirtualLoop) as runner:
        left = runner.run(play())
    slopes = memory.slopes()
    return {
        "scene": "real" if given.real else "virtual",
        "hours": seconds / 3600,
        "clients": given.clients,
        "seed": given.seed,
        "errors": report.counts.pop("problems", 0),
        "first_errors": report.problems,
        "left": left,
        "memory_per_hour": slopes,
        "grows": any(each["grows"] for each in slopes.values()),
        "counts": dict(sorted(report.counts.items())),
        "seconds": round(time.perf_counter() - began, 1),
        "memory": memory.rows,
    }


def main() -> None:
    parser = arguments(__doc__, "benchmarks.soak")
    parser.add_argument("--hours", type=float, default=8.0, help="of virtual time")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--minutes", type=float, default=30.0, help="of real time")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    before = load()
    result = run(given)
    finish(result, given.out, before, details="memory")
    sys.exit(1 if result["errors"] or result["grows"] else 0)


if __name__ == "__main__":
    main()
