"""The cost of the console, and the latency that a browser adds.

    python -m benchmarks.console [-n N] [--seconds S] [--out FILE]

Runs its own server with the default engines, and Debian's headless Chromium:

- **page**: bytes of all files, and first contentful paint in ``N`` fresh browsers.
- **cost**: the server's CPU time with each page open for ``S`` seconds, less that without a page.
- **visible**: from the first audio of an answer at a client until its turn appears on Turns.
- **browser**, **websocket**: the same recording, from the last sample of speech to the first sample
  of the answer: in the browser by its own audio clock, from the microphone's input to the player's
  output; over a WebSocket as ``reachy-voice bench`` measures. They take turns, each in a session of
  its own.
- **interrupted**: from the first loud sample of speech over an answer, at the microphone's input,
  until the player's output is silent.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from playwright.async_api import expect

from app.cli.measuring import percentile, spawned_server
from app.console.console import STATIC
from app.server.process_usage import usage
from app.talk.realtime_client import RATE, connect, room_tone
from benchmarks.harness.program import arguments, finish, load
from hardware.wav import speech_end
from pipeline.audio import LISTEN_RATE, Pcm, Resampler
from tests.support.browser import Visit, browsing
from tests.support.recordings import recording

PAGES = ("talk", "turns", "server")
CLIP = "goforward"
OVER = "something"
ANSWER_MS = 30_000
LOUD = 1_000
"""Peak of int16 that is speech: the microphone's silence is exact zeros."""


def main() -> None:
    parser = arguments(__doc__, "benchmarks.console")
    parser.add_argument("-n", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    before = load()
    finish(asyncio.run(_measure(given.n, given.seconds)), given.out, before)


async def _measure(n: int, seconds: float) -> dict[str, Any]:
    pcm = recording(CLIP).pcm
    async with spawned_server(("--set", "conversation.sampling.max_tokens=24")) as server:
        page = server.url.replace("ws:", "http:").replace("v1/realtime", "console/")
        found: dict[str, Any] = {
            "page": {
                "bytes": sum(path.stat().st_size for path in STATIC.iterdir()),
                "first_paint_ms": _percentiles([await _first_paint(page) for _ in range(n)]),
            },
            "cost": {"core_percent": await _cost(page, server.pid, seconds)},
        }
        browser, websocket, visible, interrupted = [], [], [], []
        for _ in range(n):
            websocket.append(await _by_websocket(server.url, pcm))
            latency_ms, visible_ms = await _by_browser(page, pcm)
            browser.append(latency_ms)
            visible.append(visible_ms)
            interrupted.append(await _interrupted_ms(page))
    found["browser_ms"] = _percentiles(browser)
    found["websocket_ms"] = _percentiles(websocket)
    found["visible_ms"] = _percentiles(visible)
    found["interrupted_ms"] = _percentiles(interrupted)
    found["browser_adds_ms"] = found["browser_ms"]["p50"] - found["websocket_ms"]["p50"]
    return found


async def _first_paint(address: str) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        async with browsing(Path(scratch)) as visit:
            await visit.page.goto(address)
            await expect(visit.page.get_by_role("status")).to_contain_text("Connected")
            paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            return float(await visit.page.evaluate(paint))


async def _cost(address: str, pid: int, seconds: float) -> dict[str, float]:
    async def spent() -> float:
        before = usage(pid).cpu_seconds
        await asyncio.sleep(seconds)
        return (usage(pid).cpu_seconds - before) / seconds * 100

    alone = await spent()
    cost = {"alone": alone}
    with tempfile.TemporaryDirectory() as scratch:
        async with browsing(Path(scratch)) as visit:
            for name in PAGES:
                await visit.page.goto(f"{address}#{name}")
                await visit.page.reload()
                await expect(visit.page.locator("main :visible").first).to_be_visible()
                cost[name] = await spent() - alone
    return cost


async def _by_websocket(url: str, pcm: Pcm) -> float:
    resampler = Resampler(LISTEN_RATE, RATE)
    said = np.concatenate((resampler.feed(pcm), resampler.flush()))
    before = room_tone(RATE)
    async with connect(url) as client:
        await client.configure()
        end = len(before) + speech_end(said, RATE)
        turn = await client.speak(np.concatenate((before, said)), end)
    latency_ms = turn.voice_to_voice_ms
    assert latency_ms is not None, "the answer had no audio"
    return latency_ms


async def _by_browser(address: str, pcm: Pcm) -> tuple[float, float]:
    """Latency, and how long after the first audio the turn appeared on the page Turns."""
    quiet = np.zeros(LISTEN_RATE, dtype=np.int16)
    with tempfile.TemporaryDirectory() as scratch:
        async with browsing(Path(scratch), np.concatenate((quiet, pcm, quiet))) as visit:
            turns = await visit.context.new_page()
            await turns.goto(f"{address}#turns")
            await expect(turns.get_by_role("status")).to_contain_text("turns")
            talk = visit.page
            await talk.goto(address)
            before = await turns.locator("ol.turns > li").count()
            await talk.get_by_role("button", name="Start talking").click()
            await expect(talk.get_by_role("status")).to_contain_text("speaking", timeout=ANSWER_MS)
            heard = time.monotonic()
            rows = turns.locator("ol.turns > li")
            await expect(rows).to_have_count(min(200, before + 1), timeout=ANSWER_MS)
            visible_ms = max(0.0, (time.monotonic() - heard) * 1000)
            stop = talk.get_by_role("button", name="Stop")
            await expect(stop).to_be_disabled(timeout=2 * ANSWER_MS)
            return await _latency_ms(visit, pcm), visible_ms


async def _interrupted_ms(address: str) -> float:
    quiet = np.zeros(LISTEN_RATE, dtype=np.int16)
    said = np.concatenate((quiet, recording(OVER).pcm, quiet))
    with tempfile.TemporaryDirectory() as scratch:
        async with browsing(Path(scratch), said) as visit:
            page = visit.page
            await page.goto(address)
            await expect(page.get_by_role("status")).to_contain_text("Connected")
            await page.get_by_label("Write to Reachy").fill("Tell me a long story about the sea.")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("status")).to_contain_text("speaking", timeout=ANSWER_MS)
            await page.get_by_role("button", name="Start talking").click()
            interrupted = page.get_by_text("Reachy, interrupted")
            await expect(interrupted).to_be_visible(timeout=ANSWER_MS)
            spoken, played = await visit.tape("spoken"), await visit.tape("played")
    onset = int(np.flatnonzero(np.abs(spoken.astype(np.int32)) > LOUD)[0])
    sounding = np.flatnonzero(played[onset:])
    pauses = np.flatnonzero(np.diff(sounding) > LISTEN_RATE // 5)  # the next answer follows one
    last = sounding[pauses[0]] if len(pauses) else sounding[-1]
    return float(last) / LISTEN_RATE * 1000


async def _latency_ms(visit: Visit, said: Pcm) -> float:
    """Counts from the end of speech in the recording, since the browser's noise suppression cuts
    the end off what the microphone heard."""
    spoken, played = await visit.tape("spoken"), await visit.tape("played")
    first = int(np.flatnonzero(played)[0])  # the player's silence is exact zeros; a voice's is not
    end = _place(said, spoken) + speech_end(said, LISTEN_RATE)
    return (first - end) / LISTEN_RATE * 1000


def _place(part: Pcm, whole: Pcm) -> int:
    """The index in ``whole`` at which it is most like ``part``: the peak of their correlation."""
    size = len(part) + len(whole)
    spectrum = np.fft.rfft(whole.astype(np.float64), size)
    likeness = np.fft.irfft(spectrum * np.conj(np.fft.rfft(part.astype(np.float64), size)), size)
    return int(np.argmax(likeness[: len(whole)]))


def _percentiles(values: list[float]) -> dict[str, float | int | None]:
    at = {f"p{percent}": percentile(values, percent) for percent in (50, 95)}
    return {"n": len(values), **at}


if __name__ == "__main__":
    main()
