"""How late the server's event loop runs while one client talks.

    python -m benchmarks.latency.loop_lag [--turns N] [--config F] [--set K=V] [--out FILE]

The real server with its configured engines runs in this process's loop. A client in its own thread
plays recordings in real time over a loopback socket and waits for each spoken answer. A timer in
the server's loop measures how late it is (``app.server.metrics``).
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import numpy as np

from app.compose import Assistant
from app.models.weights import WeightsCache
from app.server.metrics import watch_lag
from app.server.serving import local_server
from app.settings.load import load_settings
from app.talk.realtime_client import TurnFailed, connect
from benchmarks.harness.program import arguments, finish, load
from benchmarks.latency.clips import Take, recordings_of_people, takes


async def _talk(url: str, performed: list[Take]) -> int:
    """The number of answered turns."""
    answered = 0
    async with connect(url) as client:
        await client.configure()
        for take in performed:
            try:
                answered += (await client.speak(take.pcm, take.end)).first_audio_at is not None
            except TurnFailed:
                break
    return answered


async def measure(assistant: Assistant, turns: int) -> dict[str, Any]:
    performed = takes(recordings_of_people(), turns, seed=0)
    late_s: list[float] = []
    async with local_server(assistant) as url:
        began = time.monotonic()
        watching = asyncio.create_task(watch_lag(late_s.append))
        answered = await asyncio.to_thread(lambda: asyncio.run(_talk(url, performed)))
        watching.cancel()
        seconds = round(time.monotonic() - began, 1)
    late_ms = np.array(late_s) * 1000
    lag_ms = {f"p{q}": round(float(np.percentile(late_ms, q)), 3) for q in (50, 95, 99)}
    lag_ms["max"] = round(float(late_ms.max()), 3)
    return {
        "turns": turns,
        "answered": answered,
        "seconds": seconds,
        "n": len(late_ms),
        "lag_ms": lag_ms,
    }


def main() -> None:
    parser = arguments(__doc__, "benchmarks.latency.loop_lag", settings=True)
    parser.add_argument("--turns", type=int, default=20)
    given = parser.parse_args()
    before = load()
    settings = load_settings(given.config, given.sets).settings
    assistant = Assistant(settings, WeightsCache(settings.paths.cache(os.environ)))
    finish(asyncio.run(measure(assistant, given.turns)), given.out, before)


if __name__ == "__main__":
    main()
