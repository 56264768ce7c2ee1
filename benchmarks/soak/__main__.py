"""Hours of conversations with several clients: what goes wrong, and whether memory grows.

    python -m benchmarks.soak [--hours 8] [--clients 4] [--seed N] [--out FILE] [--trace]
    python -m benchmarks.soak --real [--minutes 30] [--clients 3] [--out FILE]

The first is in virtual time: the whole server but uvicorn, with engines that are quick, slow, and
failing now and then (``benchmarks.soak.engines``). The second is the real server with its
configured engines over loopback WebSockets, in real time, and people's recordings.

An error is: an event that does not conform, or comes in a wrong order
(``tests/support/conformance.py``); an ``error`` about what a client may do; a response that does
not end, or ends twice; an exception in the log or in the loop; a connection that the server ends;
and, at the end, a task, an open call of an engine or a conversation that is left.

Memory is looked at after a collection: blocks that Python has allocated
(``sys.getallocatedblocks``), and resident bytes after the allocator has given back what it can. The
slope is fitted to the time after the warm-up, with its standard error. ``--trace`` says where what
has grown was allocated. Ends with 1 if there was an error, or if memory grows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import os
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.soak.links import Report
from benchmarks.soak.scenes import Soak, real_soak, virtual_soak
from tests.support.virtual_time import VirtualLoop

SAMPLES = 48
"""How often memory is looked at."""
WARM_UP = 1 / 4
"""Of the time. Conversations are as long as they get by then (``scenes.MAX_ITEMS``)."""
NO_SLOPE_ERRORS = 3.0
"""A slope is none if it is less than so many of its standard errors, or if over the whole run it
makes less than ``NO_SLOPE_SHARE`` of what is there."""
NO_SLOPE_SHARE = 0.005
PARTING_S = 900.0
"""So long clients may take to end what goes on."""


@dataclass
class Memory:
    """``rows``: (hours, blocks, resident bytes)."""

    rows: list[tuple[float, int, int]] = field(default_factory=list)

    def look(self, hours: float) -> None:
        gc.collect()
        _give_back()
        own = psutil.Process()
        processes = (own, *own.children(recursive=True))  # engines may have their own
        resident = sum(process.memory_info().rss for process in processes)
        self.rows.append((hours, sys.getallocatedblocks(), resident))

    def slopes(self) -> dict[str, dict[str, float | bool]]:
        names = {"allocated_blocks": 1, "resident_bytes": 2}
        return {name: slope([(r[0], r[at]) for r in self.rows]) for name, at in names.items()}


def slope(points: Sequence[tuple[float, float]]) -> dict[str, float | bool]:
    """Per hour, by least squares over what comes after the warm-up; with its standard error."""
    kept = np.array([p for p in points if p[0] >= points[-1][0] * WARM_UP], dtype=float)
    at, value = kept[:, 0], kept[:, 1]
    if len(kept) < 4:
        return {"slope": float("nan"), "error": float("nan"), "none": True}
    rate, offset = np.polyfit(at, value, 1)
    rest = value - (rate * at + offset)
    error = float(np.sqrt((rest**2).sum() / (len(at) - 2) / ((at - at.mean()) ** 2).sum()))
    grown = abs(float(rate)) * (at[-1] - at[0])
    none = abs(rate) < NO_SLOPE_ERRORS * error or grown < NO_SLOPE_SHARE * float(value.mean())
    return {"slope": round(float(rate), 1), "error": round(error, 1), "none": bool(none)}


def _give_back() -> None:
    """Let glibc's allocator return free pages, so that resident bytes are what is in use."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)


class _Log(logging.Handler):
    """Errors that the server has logged are problems."""

    def __init__(self, report: Report) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        leaf = error
        while isinstance(leaf, BaseExceptionGroup):
            leaf = leaf.exceptions[0]
        self._report.problem(f"log: {record.getMessage()} {type(leaf).__name__}: {leaf}")


@asynccontextmanager
async def watched(report: Report) -> AsyncIterator[None]:
    """What is logged as an error, or ends in the loop, is a problem."""
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
    look: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Run the clients of a scene for so long, then let each end in peace; what is left."""
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
            look()
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
        await asyncio.sleep(1.0)  # of virtual time: what ends by itself has ended
        left["tasks"] = len(asyncio.all_tasks() - before - {asyncio.current_task()})
    report.balance()
    for what, count in left.items():
        if count:
            report.problem(f"{count} {what} left")
    return left


def run(scene: str, given: argparse.Namespace) -> dict[str, Any]:
    report, memory = Report(), Memory()

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    trace = _Trace() if given.trace else None
    look = trace.look if trace else (lambda: None)
    began = time.perf_counter()

    async def play() -> dict[str, Any]:
        if scene == "real":
            async with real_soak(given.clients, given.seed, report) as soaked:
                return await soak(soaked, 60 * given.minutes, memory, report, look, tell)
        async with virtual_soak(given.clients, given.seed, report) as soaked:
            return await soak(soaked, 3600 * given.hours, memory, report, look, tell)

    with asyncio.Runner(loop_factory=VirtualLoop if scene == "virtual" else None) as runner:
        left = runner.run(play())
    slopes = memory.slopes()
    return {
        "scene": scene,
        "hours": given.hours if scene == "virtual" else given.minutes / 60,
        "clients": given.clients,
        "seed": given.seed,
        "errors": report.counts.pop("problems", 0),
        "first_errors": report.problems,
        "left": left,
        "memory_per_hour": slopes,
        "grows": not all(each["none"] for each in slopes.values()),
        "counts": dict(sorted(report.counts.items())),
        "seconds": round(time.perf_counter() - began, 1),
        "load_average": os.getloadavg()[0],
        "memory": [
            {"hours": round(hours, 3), "blocks": blocks, "resident": resident}
            for hours, blocks, resident in memory.rows
        ],
        **({"grown_at": trace.grown()} if trace else {}),
    }


class _Trace:
    """Where what has grown was allocated, from the end of the warm-up to the end."""

    def __init__(self) -> None:
        self._looks = 0
        self._first: tracemalloc.Snapshot | None = None
        self._last: tracemalloc.Snapshot | None = None
        tracemalloc.start(3)

    def look(self) -> None:
        self._looks += 1
        if self._looks == int(SAMPLES * WARM_UP):
            self._first = tracemalloc.take_snapshot()
        elif self._looks == SAMPLES + 1:
            self._last = tracemalloc.take_snapshot()

    def grown(self) -> list[str]:
        if not (self._first and self._last):
            return []
        return [str(each) for each in self._last.compare_to(self._first, "traceback")[:25]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    result = run("real" if given.real else "virtual", given)
    text = json.dumps(result, indent=1)
    print(text)
    if given.out:
        given.out.write_text(f"{text}\n", encoding="utf-8")
    sys.exit(1 if result["errors"] or result["grows"] else 0)


if __name__ == "__main__":
    main()
