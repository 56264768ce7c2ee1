"""The sound card, measured on a virtual one: latency, position, stop, duplex, unplug.

    python -m benchmarks.sound_card latency stop             (some minutes)
    python -m benchmarks.sound_card duplex --minutes 10      (in real time)
    python -m benchmarks.sound_card offline --hours 1        (no card, no real time)
    python -m benchmarks.sound_card unplug --times 100

The real PortAudio on a private PulseAudio (``tests/support/virtual_sound.py``); a recorder that is
no part of us (``parec``) says what came out, and when: late by what it gathers, about 5 ms. What
else the machine did, and when its host stopped it, is printed with each result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.air import BLOCK_MS, Air
from benchmarks.machine import Machine
from benchmarks.sound_card_drift import AIR_MS, DriftingEcho, Listening, offline
from hardware.settings import Sound
from hardware.sound.card import SoundCard
from hardware.sound.notices import Dropped, Lost, Opened, SoundNotice
from hardware.sound.pairing import SoundBlock
from pipeline.audio import LISTEN_RATE, Pcm, Resampler
from tests.support.virtual_sound import ECHO, NAME, RATE, Recorder, VirtualSound, lag_of

PLAY_HZ = 24_000


def figures(values: Sequence[float]) -> dict[str, float]:
    at = np.percentile(np.array(values), [50, 95, 100]) if values else [np.nan] * 3
    names = ("p50", "p95", "max")
    return {"n": len(values)} | {
        name: round(float(x), 2) for name, x in zip(names, at, strict=True)
    }


def noise(rate: int, seconds: float, seed: int) -> Pcm:
    """300 to 4,000 Hz, about -24 dBFS."""
    count = round(rate * seconds)
    spectrum = np.fft.rfft(np.random.default_rng(seed).normal(size=count))
    hertz = np.fft.rfftfreq(count, 1 / rate)
    spectrum[(hertz < 300) | (hertz > 4000)] = 0
    wave = np.fft.irfft(spectrum, count)
    quiet: Pcm = (wave / wave.std() * 2000).astype(np.int16)
    return quiet


class Running:
    """A card that runs; each block is kept with the time when it came."""

    def __init__(self, name: str, rate_hz: int | None, keep: bool = True) -> None:
        self.notices: list[SoundNotice] = []
        self.blocks: list[tuple[SoundBlock, float]] = []
        self.card = SoundCard(
            Sound(microphone=name, speaker=name, rate_hz=_rate(rate_hz)), self._note
        )
        self.on_block: Callable[[SoundBlock, float], None] = lambda block, came_s: None
        self._keep = keep
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Running]:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.card.run())
            tasks.create_task(self._read())
            await asyncio.sleep(2)
            yield self
            running.cancel()

    async def counts(self, kind: type[SoundNotice], times: int) -> None:
        async with asyncio.timeout(60):
            while sum(isinstance(notice, kind) for notice in self.notices) < times:
                await self.change()

    async def change(self) -> None:
        """Until a block or a notice comes."""
        self._changed.clear()
        await self._changed.wait()

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        async for block in self.card.blocks():
            came_s = loop.time()
            if self._keep:
                self.blocks.append((block, came_s))
            self.on_block(block, came_s)
            self._changed.set()

    def _note(self, notice: SoundNotice) -> None:
        self.notices.append(notice)
        self._changed.set()


def _rate(rate_hz: int | None) -> Any:
    return rate_hz


# --- latency and position -------------------------------------------------------------------------


async def latency(sound: VirtualSound, options: argparse.Namespace) -> dict[str, Any]:
    """Numbers 1: a microphone that hears the loudspeaker; where a sound is, is known three times:
    from us, from the recorder, and from what comes back."""
    said = noise(PLAY_HZ, options.seconds, 7)
    positions: list[tuple[float, float]] = []
    async with Running(ECHO, options.rate).running() as scene:
        scene.on_block = lambda block, came_s: positions.append(
            (came_s, scene.card.heard_s("answer"))
        )
        recording = sound.recording()
        recorder = await asyncio.to_thread(recording.__enter__)
        await asyncio.sleep(1)
        scene.card.play(said, PLAY_HZ, "answer")
        await asyncio.sleep(options.seconds + 0.5)
        await asyncio.to_thread(recording.__exit__, None, None, None)
        state = scene.card.state()
    out_s, place_s = _places(recorder, said)
    errors = [
        1000 * abs(heard_s - float(np.interp(now_s, out_s, place_s)))
        for now_s, heard_s in positions
        if out_s[0] < now_s < out_s[-1]
    ]
    return {
        "rate_hz": state.microphone_hz,
        "block_to_pipeline_ms_by_stamps": figures(
            [1000 * (came_s - block.captured_at) for block, came_s in scene.blocks[50:]]
        ),
        "block_to_pipeline_ms_by_recorder": figures(_arrivals(scene, recorder)),
        "position_error_ms": figures(errors),
        "echo_after_played_ms": figures(_echo_delays(scene)),
        "xruns": [state.microphone_xruns, state.speaker_xruns],
        "reference": {"moves": state.reference_moves, "gaps": state.reference_gaps},
        "dropped_samples": state.dropped_samples,
    }


def _places(recorder: Recorder, said: Pcm) -> tuple[list[float], list[float]]:
    """When each half second of what was said came out; where the card ran dry, it is later."""
    wanted, out = Resampler(PLAY_HZ, RATE).feed(said), recorder.pcm
    step = RATE // 2
    out_s, place_s = [], []
    begin = 0
    for start in range(step, len(wanted) - step, step):
        at, alike = lag_of(wanted[start : start + step // 2], out[begin : begin + 4 * RATE])
        if alike > 0.95:
            begin += at
            out_s.append(recorder.time_of(begin))
            place_s.append(start / RATE)
    if len(out_s) < 4:
        raise RuntimeError("what was recorded is not what was played")
    return out_s, place_s


def _arrivals(scene: Running, recorder: Recorder) -> list[float]:
    """From coming out of the loudspeaker, which is at the microphone, to the reader: of one block a
    second, by correlation of 0.5 s."""
    heard = np.concatenate([block.pcm for block, _ in scene.blocks])
    out = Resampler(RATE, LISTEN_RATE).feed(recorder.pcm)
    late = []
    loud = np.flatnonzero(np.abs(heard) > 500)
    for start in range(int(loud[0]) + LISTEN_RATE, int(loud[-1]) - LISTEN_RATE, LISTEN_RATE):
        at, alike = lag_of(heard[start : start + LISTEN_RATE // 2], out)
        if alike > 0.8:
            block = start // 160
            last = at + (block + 1) * 160 - start
            out_s = recorder.time_of(round(last * RATE / LISTEN_RATE))
            late.append(1000 * (scene.blocks[block][1] - out_s))
    return late


def _echo_delays(scene: Running) -> list[float]:
    heard = np.concatenate([block.pcm for block, _ in scene.blocks])
    played = np.concatenate([block.played for block, _ in scene.blocks])
    loud = np.flatnonzero(np.abs(played) > 500)
    delays = []
    for start in range(int(loud[0]) + LISTEN_RATE, int(loud[-1]) - LISTEN_RATE, LISTEN_RATE):
        at, alike = lag_of(
            played[start : start + LISTEN_RATE // 2], heard[start : start + LISTEN_RATE]
        )
        if alike > 0.8:
            delays.append(at / 16)
    return delays


# --- stop -----------------------------------------------------------------------------------------


async def stop(sound: VirtualSound, options: argparse.Namespace) -> dict[str, Any]:
    """Number 4: from ``flush`` to the last sample that is not silence."""
    flushed_s: list[float] = []
    async with Running(NAME, options.rate, keep=False).running() as scene:
        recording = sound.recording()
        recorder = await asyncio.to_thread(recording.__enter__)
        for number in range(options.stops):
            scene.card.play(noise(PLAY_HZ, 3, number), PLAY_HZ, f"answer {number}")
            await asyncio.sleep(0.3 + 0.0137 * (number % 7))
            flushed_s.append(time.monotonic())
            scene.card.flush()
            await asyncio.sleep(0.25)
        await asyncio.to_thread(recording.__exit__, None, None, None)
    loud = np.flatnonzero(np.abs(recorder.pcm) > 30)
    loud_s = np.array([recorder.time_of(0)]) + loud / RATE
    late = []
    for at_s in flushed_s:
        until = loud_s[(loud_s > at_s - 0.1) & (loud_s < at_s + 0.25)]
        late.append(1000 * (float(until[-1]) - at_s))
    return {"flush_to_silence_ms": figures(late)}


# --- duplex ---------------------------------------------------------------------------------------


async def duplex(sound: VirtualSound, options: argparse.Namespace) -> dict[str, Any]:
    """Number 2: what the loudspeaker plays comes back through a resampler that is wrong by so many
    ppm; our streams on the real card, and the echo canceller on them."""
    listening = Listening()
    late: list[float] = []
    lately: deque[SoundBlock] = deque(maxlen=150)
    delays: list[float] = []
    seconds = options.minutes * 60
    async with Running(NAME, options.rate, keep=False).running() as scene:
        with Air(sound, RATE, DriftingEcho(options.ppm), AIR_MS) as air:
            await asyncio.sleep(2)

            def on_block(block: SoundBlock, came_s: float) -> None:
                late.append(1000 * (came_s - block.captured_at))
                listening.take(block)
                lately.append(block)
                if len(late) % 1000 == 500:
                    delays.extend(_delay_of(list(lately)))

            scene.on_block = on_block
            end = time.monotonic() + seconds
            number = 0
            while time.monotonic() < end:
                # Answers of 8 s with pauses of 2.
                scene.card.play(noise(PLAY_HZ, 8, number), PLAY_HZ, f"answer {number}")
                await asyncio.sleep(10)
                number += 1
        state = scene.card.state()
    part = max(1, len(late) // 10)
    return {
        "ppm": options.ppm,
        "blocks": len(late),
        "dropped_samples": state.dropped_samples,
        "dropped_notices": sum(isinstance(notice, Dropped) for notice in scene.notices),
        "lost_samples": listening.lost_samples,
        "air_ran_dry": len(air.dry_at),
        "air_late_ms": len(air.late_at) * BLOCK_MS,
        "echo_after_played_ms_every_10_s": delays,
        "xruns": [state.microphone_xruns, state.speaker_xruns],
        "block_to_pipeline_ms": {
            "first tenth": figures(late[:part]),
            "last tenth": figures(late[-part:]),
        },
    } | listening.report()


def _delay_of(blocks: list[SoundBlock]) -> list[float]:
    """How far the echo follows the first half second, which the room's delay is part of."""
    played = np.concatenate([block.played for block in blocks])[: LISTEN_RATE // 2]
    at, alike = lag_of(played, np.concatenate([block.pcm for block in blocks]))
    return [round(at / 16, 1)] if alike > 0.5 else []


# --- unplug ---------------------------------------------------------------------------------------


def _handles() -> tuple[int, int]:
    """Open files, and threads of any library, without those that this benchmark waits in."""
    own = sum(thread.name.startswith("asyncio_") for thread in threading.enumerate())
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")) - own


async def _until_heard(scene: Running, answer: str) -> None:
    """An idle sink takes 1.7 s to start."""
    async with asyncio.timeout(20):
        while scene.card.heard_s(answer) < 0.2:
            await scene.change()


async def unplug(sound: VirtualSound, options: argparse.Namespace) -> dict[str, Any]:
    """Number 5: the card goes in the middle of an answer, and comes again."""
    handles: list[tuple[int, int]] = []
    found_s: list[float] = []
    noticed_s: list[float] = []
    said = noise(PLAY_HZ, 20, 1)
    async with Running(NAME, options.rate, keep=False).running() as scene:
        for number in range(1, options.times + 1):
            scene.card.play(said, PLAY_HZ, f"answer {number}")
            await _until_heard(scene, f"answer {number}")
            gone_s = time.monotonic()
            await asyncio.to_thread(sound.unplug)
            await scene.counts(Lost, number)
            noticed_s.append(time.monotonic() - gone_s)
            await asyncio.to_thread(sound.plug, False)
            there_s = time.monotonic()
            await scene.counts(Opened, number + 1)
            found_s.append(time.monotonic() - there_s)
            handles.append(_handles())
            print(f"\r{number} of {options.times}", end="", file=sys.stderr, flush=True)
    wrong = [
        notice
        for notice in scene.notices
        if isinstance(notice, Opened) and notice.microphone != NAME
    ]
    return {
        "recoveries": len(found_s),
        "other_devices_used": len(wrong),
        "noticed_s": figures(noticed_s),
        "found_again_s": figures(found_s),
        "files_and_threads": {"after 1": handles[0], f"after {len(handles)}": handles[-1]},
    }


Measurement = Callable[[VirtualSound, argparse.Namespace], Coroutine[Any, Any, dict[str, Any]]]
LIVE: dict[str, Measurement] = {
    "latency": latency,
    "stop": stop,
    "duplex": duplex,
    "unplug": unplug,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+", choices=[*LIVE, "offline"])
    parser.add_argument("--rate", type=int, default=None, choices=[16_000, 24_000, 48_000])
    parser.add_argument("--seconds", type=float, default=30, help="of latency")
    parser.add_argument("--stops", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10, help="of duplex")
    parser.add_argument("--ppm", type=float, default=100, help="of duplex and offline")
    parser.add_argument("--hours", type=float, default=1, help="of offline")
    parser.add_argument("--times", type=int, default=100, help="of unplug")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    report: dict[str, Any] = {}
    for what in options.what:
        began = time.monotonic()
        with Machine() as machine:
            result = _measured(what, options)
        report[what] = result | {
            "took_s": round(time.monotonic() - began),
            "machine": machine.report,
        }
        print(json.dumps({what: report[what]}, indent=2), flush=True)
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")


def _measured(what: str, options: argparse.Namespace) -> dict[str, Any]:
    if what == "offline":
        return offline(options.hours, options.ppm)
    with (
        tempfile.TemporaryDirectory() as folder,
        VirtualSound(Path(folder) / "sound") as sound,
    ):
        return asyncio.run(LIVE[what](sound, options))


if __name__ == "__main__":
    main()
