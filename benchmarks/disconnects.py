"""Abrupt disconnects at random moments of a reply: what leaks, and how memory grows.

    python -m benchmarks.disconnects [-n TIMES] [--warm-ups TIMES] [--seed N] [--out FILE]

A real server and real sessions on loopback over scripted engines, client and server in one
process. Half of the clients vanish with a TCP reset, a third of them has a key and comes back once.
Writes a JSON and ends with 1 if anything is left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import json
import os
import sys
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = 40
"""How often memory is looked at."""


def main() -> None:
    options = _arguments()
    result = asyncio.run(_run(options.times, options.warm_ups, options.seed))
    text = json.dumps(result, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    sys.exit(0 if result["nothing_left"] else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", dest="times", type=int, default=1000)
    parser.add_argument("--warm-ups", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


async def _run(times: int, warm_ups: int, seed: int) -> dict[str, Any]:
    load = os.getloadavg()[0]
    async with importlib.import_module("tests.support.vanishing").vanishing(seed) as clients:
        for number in range(warm_ups):
            await clients.vanish(number)
        tracemalloc.start()
        began = time.perf_counter()
        memory = [_memory(0)]
        for number in range(times):
            await clients.vanish(warm_ups + number)
            if (number + 1) % max(1, times // SAMPLES) == 0:
                memory.append(_memory(number + 1))
        seconds = time.perf_counter() - began
        tracemalloc.stop()
        left = await clients.left()
    return {
        "disconnects": times,
        "warm_ups": warm_ups,
        "seed": seed,
        "seconds": round(seconds, 1),
        "nothing_left": left.nothing,
        "left": asdict(left),
        "last_event_before_it": dict(clients.moments.most_common()),
        "bytes_per_disconnect": {
            "allocated": _slope([(at, allocated) for at, allocated, _ in memory]),
            "resident": _slope([(at, resident) for at, _, resident in memory]),
        },
        "load_average": {"before": load, "after": os.getloadavg()[0]},
        "samples": [
            {"disconnects": at, "allocated": allocated, "resident": resident}
            for at, allocated, resident in memory
        ],
    }


def _memory(at: int) -> tuple[int, int, int]:
    """``(disconnects so far, bytes that Python has allocated since the start, resident bytes)``."""
    gc.collect()
    return at, tracemalloc.get_traced_memory()[0], psutil.Process().memory_info().rss


def _slope(points: Sequence[tuple[int, int]]) -> dict[str, float]:
    """Least squares over the second half, when every cache is full; with its standard error."""
    half = np.array(points[len(points) // 2 :], dtype=float)
    at, value = half[:, 0], half[:, 1]
    if len(half) < 3:
        return {"slope": float("nan"), "error": float("nan")}
    slope, offset = np.polyfit(at, value, 1)
    rest = value - (slope * at + offset)
    spread = float(np.sqrt((rest**2).sum() / (len(at) - 2) / ((at - at.mean()) ** 2).sum()))
    return {"slope": round(float(slope), 1), "error": round(spread, 1)}


if __name__ == "__main__":
    main()
