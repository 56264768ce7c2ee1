"""How long the server's event loop keeps anybody waiting while one client talks.

    python -m benchmarks.latency.loop_lag [--turns N] [--config F] [--set K=V] [--out FILE]

The real server with its configured engines runs in this process's loop; a client in a thread of
its own says recordings in real time over a loopback socket and waits for each spoken answer. A
timer in the server's loop notes how late it is (``app.server.loop_lag``).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from websockets.sync.client import ClientConnection, connect

from app.compose import Assistant
from app.models.weights import WeightsCache
from app.server.loop_lag import LoopLag
from app.server.serving import local_server
from app.settings.load import load_settings
from pipeline.audio import LISTEN_RATE, Pcm, pcm_to_bytes
from tests.support.recordings import real_recordings

FRAME = LISTEN_RATE // 50
ANSWER_S = 60.0
MAX_SECONDS = 6.0
"""Longer recordings are no questions."""
BAR_MS = 10.0
"""Issue 3: P99 of the lag."""


class Talker:
    """A client that speaks in real time; blocking, for a thread of its own."""

    def __init__(self, url: str, recordings: list[Pcm]) -> None:
        self._url = url
        self._recordings = recordings

    def hold(self, turns: int) -> int:
        """Number of turns that were answered."""
        answered = 0
        with connect(self._url, max_size=None) as socket:
            rate = {"type": "audio/pcm", "rate": LISTEN_RATE}
            session = {"type": "realtime", "audio": {"input": {"format": rate}}}
            socket.send(json.dumps({"type": "session.update", "session": session}))
            for turn in range(turns):
                self._say(socket, self._recordings[turn % len(self._recordings)])
                answered += self._listen(socket)
        return answered

    def _say(self, socket: ClientConnection, pcm: Pcm) -> None:
        room = np.zeros(LISTEN_RATE * 3 // 2, np.int16)
        self._stream(socket, np.concatenate((pcm, room)))

    def _stream(self, socket: ClientConnection, pcm: Pcm) -> None:
        began = time.monotonic()
        for start in range(0, len(pcm), FRAME):
            audio = base64.b64encode(pcm_to_bytes(pcm[start : start + FRAME])).decode()
            socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            time.sleep(max(0.0, began + (start + FRAME) / LISTEN_RATE - time.monotonic()))

    def _listen(self, socket: ClientConnection) -> bool:
        """Keep the microphone open and silent until the answer has come."""
        silence = np.zeros(FRAME, np.int16)
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            self._stream(socket, silence)
            try:
                while True:
                    event: dict[str, Any] = json.loads(socket.recv(timeout=0))
                    if event["type"] == "response.done":
                        return event["response"]["status"] in ("completed", "incomplete")
            except TimeoutError:
                pass
        return False


async def measure(assistant: Assistant, turns: int, recordings: list[Pcm]) -> dict[str, Any]:
    late_s: list[float] = []
    async with local_server(assistant) as url:
        began = time.monotonic()
        with LoopLag(late_s.append).watched():
            answered = await asyncio.to_thread(Talker(url, recordings).hold, turns)
        seconds = time.monotonic() - began
    late_ms = np.array(late_s) * 1000
    p50, p95, p99 = np.percentile(late_ms, (50, 95, 99))
    return {
        "turns": turns,
        "answered": answered,
        "seconds": round(seconds, 1),
        "n": len(late_ms),
        "lag_ms": {
            "p50": round(float(p50), 3),
            "p95": round(float(p95), 3),
            "p99": round(float(p99), 3),
            "max": round(float(late_ms.max()), 3),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m benchmarks.latency.loop_lag"
    )
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="K=V")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    recordings = [each.pcm for each in real_recordings() if each.seconds <= MAX_SECONDS]
    settings = load_settings(options.config, tuple(options.set)).settings
    cache = WeightsCache(settings.paths.cache(os.environ))
    load_before = os.getloadavg()[0]
    report = asyncio.run(measure(Assistant(settings, cache), options.turns, recordings))
    report["load_average"] = [load_before, os.getloadavg()[0]]
    report["cores"] = os.cpu_count()
    text = json.dumps(report, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    sys.exit(0 if report["lag_ms"]["p99"] <= BAR_MS else 1)


if __name__ == "__main__":
    main()
