"""A "voice" whose every sample is known: a buzz with syllables. No speech is needed."""

from __future__ import annotations

import numpy as np

from benchmarks.harness.acoustics import Signal
from benchmarks.harness.scene import Scene
from benchmarks.turns.clips import Border, Clip
from benchmarks.turns.compose import Conditions, compose
from benchmarks.turns.splice import Cut, utterance
from pipeline.audio import LISTEN_RATE

FRAME = LISTEN_RATE // 100


def samples(seconds: float) -> int:
    return round(seconds * LISTEN_RATE)


def buzz(seconds: float, hz: float = 140.0) -> Signal:
    """Something like a vowel at about -20 dBFS, of full level from its first sample on."""
    time_s = np.arange(samples(seconds)) / LISTEN_RATE
    wave = sum(np.sin(2 * np.pi * hz * k * time_s + k) / k for k in range(1, 20))
    return np.asarray(0.1 * wave, dtype=np.float32)


def silence(seconds: float) -> Signal:
    return np.zeros(samples(seconds), dtype=np.float32)


def clip(*pieces: Signal, borders: tuple[Border, ...] = ()) -> Clip:
    signal = np.concatenate(pieces).astype(np.float32)
    quiet = 10 ** (-70 / 20) * np.random.default_rng(0).standard_normal(len(signal))
    return Clip(
        name="buzz",
        source="synthetic:buzz",
        speaker="buzz",
        kind="question",
        text="Is it me, or you?",
        signal=(signal + quiet).astype(np.float32),
        borders=borders,
    )


def one_border(kind: str = "clause") -> Clip:
    """0.1 s of silence, 0.6 s of speech, a border, 0.5 s of speech, 0.2 s of silence."""
    border = Border(samples(0.7), kind, 3)  # type: ignore[arg-type]
    return clip(silence(0.1), buzz(0.6), buzz(0.5, 180.0), silence(0.2), borders=(border,))


def scene(spoken: Clip, cuts: list[Cut], heard: Conditions = Conditions(), seed: int = 1) -> Scene:  # noqa: B008
    return compose(utterance(spoken, cuts), heard, "tuning", "tuning-000-buzz", seed)
