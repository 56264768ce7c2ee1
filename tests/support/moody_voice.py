"""Speech-like sound, and a voice that fails on demand, for tests in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import numpy as np

from pipeline.audio import Pcm
from pipeline.messages import SpeechRequest
from pipeline.work import Work

RATE = 16_000
S_PER_CHAR = 0.065
FAULT_S = 30.0

Mood = Literal["fine", "hum", "hiss", "silent", "empty", "loop", "endless", "stuck", "broken"]


@cache
def speechlike(seconds: float, seed: int = 0, rate: int = RATE) -> Pcm:
    """Syllables of 0.2 s, each with a different pitch and timbre; int16 mono."""
    draw = np.random.default_rng(seed)
    made, length = [np.zeros(0)], 0
    while length < seconds * rate:
        size = int(draw.uniform(0.12, 0.26) * rate)
        at = np.arange(size) / rate
        pitch = draw.uniform(90, 160) * (1 + draw.uniform(-0.3, 0.3) * at)
        centres = draw.uniform((300, 900, 2300), (900, 2200, 3500))
        voiced = np.zeros(size)
        for n in range(1, int(4000 / pitch[0])):
            gain = sum(np.exp(-(((n * pitch[0] - c) / 150) ** 2)) for c in centres)
            voiced += gain * np.sin(2 * np.pi * n * np.cumsum(pitch) / rate)
        swell = np.sin(np.pi * np.arange(size) / size) ** 0.7
        made.append(voiced * swell * draw.uniform(0.4, 1.0))
        made.append(np.zeros(int(draw.uniform(0.0, 0.06) * rate)))
        length = sum(map(len, made))
    signal = np.concatenate(made)[: round(seconds * rate)]
    return (signal / max(float(np.abs(signal).max()), 1e-9) * 12_000).astype(np.int16)


def hum(seconds: float, rate: int = RATE) -> Pcm:
    at = np.arange(round(seconds * rate)) / rate
    return (8000 * np.sin(2 * np.pi * 220 * at)).astype(np.int16)


def hiss(seconds: float, rate: int = RATE) -> Pcm:
    draw = np.random.default_rng(1)
    return (3000 * draw.standard_normal(round(seconds * rate))).clip(-32768, 32767).astype(np.int16)


def loop(seconds: float, rate: int = RATE, period_s: float = 0.9) -> Pcm:
    piece = speechlike(period_s, 7, rate)
    return np.tile(piece, int(seconds / period_s) + 1)[: round(seconds * rate)]


@dataclass
class MoodyTts:
    moods: list[Mood] = field(default_factory=list)
    """One for each call; later calls succeed."""
    fine_s: float = 0.0
    """Good sound in a faulty call before it fails."""
    rtf: float = 0.05
    """Seconds of work per second of speech."""
    chunk_s: float = 0.2
    first_s: float = 0.08
    rate: int = RATE
    voices: Sequence[str] = ("joe",)
    said: list[tuple[str, int]] = field(default_factory=list)
    """Text and take of each call."""
    running: int = 0
    error: Exception | None = None
    faulty_s: list[float] = field(default_factory=list)
    """How long each faulty call went on after it began to fail, in loop time."""

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        self.said.append((request.text, request.take))
        mood = self.moods.pop(0) if self.moods else "fine"
        self.running += 1
        fails_at: float | None = None
        now = asyncio.get_running_loop().time
        try:
            await asyncio.sleep(self.first_s)
            if mood == "stuck":
                await asyncio.Event().wait()
            if mood == "broken":
                assert self.error
                raise self.error
            pcm = self._sound(mood, request.text)
            fine_s = self._fine_s(mood, request.text)
            size = round(self.chunk_s * self.rate)
            for start in range(0, len(pcm), size):
                chunk = pcm[start : start + size]
                await asyncio.sleep(self.rtf * len(chunk) / self.rate)
                if fails_at is None and start + size > fine_s * self.rate:
                    fails_at = now()
                yield chunk
        finally:
            self.running -= 1
            if mood != "fine" and fails_at is not None:
                self.faulty_s.append(now() - fails_at)

    def _fine_s(self, mood: Mood, text: str) -> float:
        usual_s = len(text) * S_PER_CHAR
        if mood in ("fine", "endless"):
            return usual_s
        return 0.0 if mood == "empty" else min(self.fine_s, usual_s)

    def _sound(self, mood: Mood, text: str) -> Pcm:
        fine = speechlike(len(text) * S_PER_CHAR, len(text))
        before = fine[: round(self.fine_s * self.rate)]
        match mood:
            case "hum":
                return np.concatenate((before, hum(FAULT_S)))
            case "hiss":
                return np.concatenate((before, hiss(FAULT_S)))
            case "silent":
                return np.concatenate((before, np.zeros(round(FAULT_S * self.rate), np.int16)))
            case "loop":
                return np.concatenate((before, loop(FAULT_S)))
            case "endless":
                return np.concatenate((fine, speechlike(FAULT_S, 99)))
            case "empty":
                return np.zeros(self.rate // 4, np.int16)
            case _:
                return fine
