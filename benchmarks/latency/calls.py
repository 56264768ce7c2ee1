"""First audio over WebRTC, and over a bad network, against a WebSocket.

    python -m benchmarks.latency.calls [--turns 60] [--seed N] [--out FILE]

One server with scripted engines and its three clients in one process, in real time: ``socket``, a
``call``, and a call whose packets are up to 50 ms late and lost at 5 %, both ways. They take turns
in random order. A figure is the time from the last sample of speech until the first audible sample
arrives, without the client's own buffer. ``dearer``: how much higher the percentiles are than those
of ``socket``. ``drift``: how an arm's figures change, in ms a minute. ``lost``: turns without an
answer, or with words other than those said.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any

import numpy as np

from app.webrtc.output_queue import FRAME_SAMPLES
from app.webrtc.tracks import FRAME_S
from benchmarks.harness.program import arguments, finish, load
from benchmarks.harness.statistics import Bootstrap, interval
from pipeline.items import MessageItem
from tests.clients.engines import TIME
from tests.support.caller import Caller, calling, tone, tone_cast
from tests.support.scripted_server import Talk, servers, talking
from tests.support.staged_server import StagedAssistant

LOSS, JITTER_S = 0.05, 0.05
PERCENTS = (50, 95)
LONGEST_S = 20.0
"""A turn that takes longer counts as lost."""
LONGEST_RUN_S = 3600.0

Speak = Callable[[], Awaitable[float]]
"""Says the phrase; returns the seconds from its end to the answer's beginning."""


async def by_call(caller: Caller) -> float:
    loop = asyncio.get_running_loop()
    caller.microphone.say(tone(TIME))
    await caller.microphone.silent.wait()
    ended = loop.time()
    heard = await caller.hears()
    await caller.until("output_audio_buffer.stopped")
    return heard - ended


class SocketMicrophone:
    """While ``run`` runs, sends what is said into it, else silence, at 24 kHz in real time."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._said = np.zeros(0, np.int16)
        self.silent = asyncio.Event()

    def say(self, pcm: Any) -> None:
        self._said = np.concatenate((self._said, pcm))
        self.silent.clear()

    async def run(self) -> None:
        loop, frame = asyncio.get_running_loop(), FRAME_SAMPLES // 2
        due = loop.time()
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            due += FRAME_S
            piece, self._said = self._said[:frame], self._said[frame:]
            pcm = np.concatenate((piece, np.zeros(frame - len(piece), np.int16)))
            audio = base64.b64encode(pcm.tobytes()).decode()
            await self._talk.send("input_audio_buffer.append", audio=audio)
            if not len(self._said):
                self.silent.set()


async def by_socket(talk: Talk, microphone: SocketMicrophone) -> float:
    loop = asyncio.get_running_loop()
    microphone.say(tone(TIME)[::2])
    await microphone.silent.wait()
    ended = loop.time()
    await talk.until("response.output_audio.delta")
    heard = loop.time()
    await talk.until("response.done")
    return heard - ended


async def measure(turns: int, seed: int) -> list[dict[str, Any]]:
    """A row for each turn of each arm."""
    rows: list[dict[str, Any]] = []
    chance, loop = random.Random(seed), asyncio.get_running_loop()
    assistant = StagedAssistant(cast=tone_cast())
    async with AsyncExitStack() as stack:
        start = await stack.enter_async_context(servers())
        served = await start(assistant, webrtc=True)
        talk = await stack.enter_async_context(talking(served))
        call = await stack.enter_async_context(calling(served, longest_s=LONGEST_RUN_S))
        bad = await stack.enter_async_context(calling(served, longest_s=LONGEST_RUN_S))
        bad.spoil(LOSS, JITTER_S, seed)
        microphone = SocketMicrophone(talk)
        sending = asyncio.create_task(microphone.run())
        arms: Mapping[str, Speak] = {
            "socket": lambda: by_socket(talk, microphone),
            "call": lambda: by_call(call),
            "bad call": lambda: by_call(bad),
        }
        began = loop.time()
        for number in range(turns):
            for arm in chance.sample(sorted(arms), len(arms)):
                heard = sum(len(each.chat.items) for each in assistant.sessions)
                try:
                    async with asyncio.timeout(LONGEST_S):
                        took_s = await arms[arm]()
                except TimeoutError:
                    took_s = None
                items = [item for each in assistant.sessions for item in each.chat.items]
                messages = [item for item in items if isinstance(item, MessageItem)]
                words = {item.text for item in messages if item.role == "user"}
                rows.append(
                    {
                        "arm": arm,
                        "turn": number,
                        "at_s": round(loop.time() - began, 1),
                        "ms": took_s and round(1000 * took_s, 1),
                        "right": len(items) == heard + 2 and words == {TIME},
                    }
                )
        sending.cancel()
    return rows


def figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Figures of the turns that were answered in all arms."""
    arms = sorted({row["arm"] for row in rows})
    ms = {arm: {r["turn"]: r["ms"] for r in rows if r["arm"] == arm} for arm in arms}
    whole = [turn for turn in ms["socket"] if None not in [ms[arm][turn] for arm in arms]]
    sources = [str(turn) for turn in whole]
    bootstrap = Bootstrap(sources)
    report: dict[str, Any] = {}
    for arm in arms:
        mine = [row for row in rows if row["arm"] == arm]
        report[arm] = {"lost": sum(not row["right"] or row["ms"] is None for row in mine)}
        times = [row["at_s"] / 60 for row in mine if row["ms"] is not None]
        slope = np.polyfit(times, [row["ms"] for row in mine if row["ms"] is not None], 1)[0]
        report[arm] |= {"n": len(mine), "drift": round(float(slope), 2)}
        for percent in PERCENTS:
            of = [
                bootstrap.percentiles([ms[each][turn] for turn in whole], percent, sources)
                for each in (arm, "socket")
            ]
            dearer = asdict(interval(of[0] - of[1], len(whole), len(whole)))
            report[arm][f"p{percent}"] = {"ms": round(float(of[0][0])), "dearer": dearer}
    return report


def main() -> None:
    parser = arguments(__doc__, "benchmarks.latency.calls")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    before = load()
    rows = asyncio.run(measure(args.turns, args.seed))
    data = {**figures(rows), "minutes": round(rows[-1]["at_s"] / 60, 1), "turns": rows}
    finish(data, args.out, before, details="turns")


if __name__ == "__main__":
    main()
