"""Turns that open without speech: sounds of rooms, crowds, machines and music."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from benchmarks.harness.acoustics import Signal, gained, noise, rms_dbfs, room_tone, to_pcm
from benchmarks.harness.virtual_engines import InlineVad
from benchmarks.onsets.scenes import NOISES, noise_of
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.echo.sent import ClientEcho
from pipeline.engines.stages import Stages
from pipeline.engines.vad.silero import SileroVad
from pipeline.hearing.client_echo import EchoHearing
from pipeline.hearing.listening import Ended, Listener, Paused, Started
from pipeline.settings import Echo, Endpointing

FALSE_START_MINUTES = 6
NOISE_LEVELS_DBFS = (-50, -38, -26)
_SOUND_LEVELS_DBFS = (-38, -26)
_SCALE_HZ = (220, 262, 294, 330, 392, 440, 523, 587, 659)


async def false_starts(vad: SileroVad, endpointing: Endpointing, seed: int) -> dict[str, Any]:
    """Turns per hour, and the share of time that they are open, for each kind of sound.

    A pause lasts as long as the longest wait. Without a recogniser: each of these turns would still
    need a word to be answered.
    """
    turns, open_share = {}, {}
    for name, make in _sounds(seed):
        starts, open_s = await turns_in(to_pcm(make()), vad, endpointing)
        turns[name] = round(starts * 60 / FALSE_START_MINUTES, 1)
        open_share[name] = round(open_s / 60 / FALSE_START_MINUTES, 4)
    return {"minutes_each": FALSE_START_MINUTES, "per_hour": turns, "share_of_time": open_share}


def _sounds(seed: int) -> Iterator[tuple[str, Callable[[], Signal]]]:
    rng = np.random.default_rng(seed)
    count = FALSE_START_MINUTES * 60 * LISTEN_RATE

    def at(kind: Callable[[], Signal], level_dbfs: int) -> Signal:
        sound = kind()
        return gained(sound, level_dbfs - rms_dbfs(sound)) + room_tone(count, rng)

    yield "room tone", lambda: room_tone(count, rng)
    for kind, level_dbfs in itertools.product(NOISES, NOISE_LEVELS_DBFS):
        yield (
            f"{kind} {level_dbfs} dBFS",
            partial(at, partial(noise_of, kind, count, rng), level_dbfs),
        )
    for sound, level_dbfs in itertools.product((motors, music, bursts), _SOUND_LEVELS_DBFS):
        yield (
            f"{sound.__name__} {level_dbfs} dBFS",
            partial(at, partial(sound, count, rng), level_dbfs),
        )


async def turns_in(pcm: Pcm, vad: SileroVad, endpointing: Endpointing) -> tuple[int, float]:
    """Turns that open, and the seconds that they are open."""
    turn = SimpleNamespace(history_seconds=8.0)
    stages = cast(Stages, SimpleNamespace(vad=InlineVad(vad), turn=turn))
    hearing = EchoHearing(ClientEcho(vad.window_samples), Echo())
    listener = Listener(stages, hearing, endpointing)
    starts, open_samples, began = 0, 0, None
    async for signals in listener.hear(pcm):
        pending = list(signals)
        for signal in pending:
            match signal:
                case Started():
                    starts, began = starts + 1, signal.start
                case Paused():
                    pending.extend(listener.judge(endpointing.unsure_wait_ms))
                case Ended() if began is not None:
                    open_samples, began = open_samples + signal.speech_end - began, None
    if began is not None:
        open_samples += len(pcm) - began
    return starts, open_samples / LISTEN_RATE


def motors(count: int, rng: np.random.Generator) -> Signal:
    """A robot's servos: harmonics that glide, with a hiss, in bursts of 0.2 to 1.2 s."""
    whole = np.zeros(count, dtype=np.float32)
    for start, length in _events(count, rng, (0.2, 1.2), pause_s=(0.2, 3.0)):
        hz = rng.uniform(80, 400) + np.linspace(0, rng.uniform(-60, 200), length)
        phase = 2 * np.pi * np.cumsum(hz) / LISTEN_RATE
        tone = np.sum([np.sin(n * phase) / n**0.7 for n in range(1, 12)], axis=0)
        tone += rng.normal(0, 0.6, length)
        whole[start : start + length] = tone * np.hanning(length) ** 0.3
    return whole


def music(count: int, rng: np.random.Generator) -> Signal:
    """Plucked chords of three notes, one after the other."""
    whole = np.zeros(count, dtype=np.float32)
    for start, length in _events(count, rng, (0.2, 0.8), pause_s=(0.0, 0.0)):
        time_s = np.arange(length) / LISTEN_RATE
        notes = itertools.product(rng.choice(_SCALE_HZ, 3), range(1, 6))
        chord = np.sum([np.sin(2 * np.pi * hz * n * time_s) / n**1.5 for hz, n in notes], axis=0)
        whole[start : start + length] = chord * np.exp(-2 * time_s)
    return whole


def bursts(count: int, rng: np.random.Generator) -> Signal:
    """Pink noise that comes and goes every half second."""
    piece = LISTEN_RATE // 2
    on = np.repeat(rng.random(count // piece + 1) < 0.5, piece)[:count].astype(np.float32)
    return noise("pink", count, rng) * np.convolve(on, np.ones(400) / 400, "same").astype(
        np.float32
    )


def _events(
    count: int, rng: np.random.Generator, long_s: tuple[float, float], pause_s: tuple[float, float]
) -> Iterator[tuple[int, int]]:
    start = 0
    while True:
        length = int(rng.uniform(*long_s) * LISTEN_RATE)
        if start + length > count:
            return
        yield start, length
        start += length + int(rng.uniform(*pause_s) * LISTEN_RATE)
