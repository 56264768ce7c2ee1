"""Scenes with an obvious right answer, and a recogniser for them that needs no model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.harness.scene import RecordedTurn, ScenePause
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.stt.moonshine import Moonshine, MoonshineOptions, MoonshineRecogniser
from pipeline.engines.vad.silero import WINDOW_SAMPLES
from pipeline.messages import Message

LEVELS = {2000: "apples", 4000: "bananas", 6000: "cherries"}
"""The word for each loudness."""


class LevelEars:
    """Hears loud windows as speech and each loudness as its word."""

    def __init__(self) -> None:
        self.passes: list[float] = []
        """Seconds of audio of each pass."""
        self.stt = Moonshine(cast(MoonshineRecogniser, self), MoonshineOptions(), Path())

    def speech_scores(self, pcm: Pcm) -> Any:
        windows = len(pcm) // WINDOW_SAMPLES
        loud = np.abs(pcm[: windows * WINDOW_SAMPLES].astype(int)).reshape(windows, -1).mean(axis=1)
        return np.where(loud > 500, 0.99, 0.01)

    def turn_over(self, pcm: Pcm) -> float:
        return 0.9

    def words_complete(self, messages: Sequence[Message]) -> float | None:
        return None

    def transcribe(self, pcm: Pcm) -> str:
        self.passes.append(len(pcm) / LISTEN_RATE)
        loudness = np.abs(pcm.astype(int))
        heard = {level: int(np.argmax(loudness == level)) for level in LEVELS if level in loudness}
        return " ".join(LEVELS[level] for level in sorted(heard, key=lambda level: heard[level]))


def voice(level: int, samples: int) -> Pcm:
    """Sound at a level that ``LevelEars`` knows; its timbre changes as a voice's does."""
    at = np.arange(samples) / LISTEN_RATE
    phase = np.cumsum(300 + 250 * np.sin(2 * np.pi * 4 * at)) / LISTEN_RATE
    return np.where(phase % 1 < 0.5, level, -level).astype(np.int16)


def scene(*spans_ms: int, name: str = "s") -> RecordedTurn:
    """Alternating speech and pauses after 512 ms of room; whole windows, so VAD and label agree."""
    assert all(ms % 32 == 0 for ms in spans_ms)
    pieces = [np.full(512 * 16, 3, np.int16)]
    at, pauses, levels = 512 * 16, [], iter(LEVELS)
    for place, ms in enumerate(spans_ms):
        speech = place % 2 == 0
        pieces.append(voice(next(levels) if speech else 3, ms * 16))
        if not speech:
            pauses.append(ScenePause(at, at + ms * 16, "word"))
        at += ms * 16
    pieces.append(np.full(3000 * 16, 3, np.int16))
    return RecordedTurn(
        id=name,
        part="tuning",
        source="synthetic:levels",
        speaker="nobody",
        kind="statement",
        text=" ".join(list(LEVELS.values())[: len(spans_ms) // 2 + 1]),
        asked="",
        snr_db=None,
        rt60_s=None,
        pcm=np.concatenate(pieces),
        onset=512 * 16,
        end=at,
        pauses=tuple(pauses),
    )
