"""Noise reduction for a VAD: what stays, what goes, and how a second score counts."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.acoustics import (
    NoiseKind,
    Signal,
    gained,
    noise,
    rms_dbfs,
    to_pcm,
    to_signal,
)
from benchmarks.harness.heard_speech import bounds
from pipeline.audio import LISTEN_RATE, Framer, Pcm
from pipeline.engines.vad.noise import NoiseReducer, SecondOpinion
from pipeline.engines.vad.silero import SileroVad
from tests.support.recordings import recording

pytestmark = pytest.mark.engines

WINDOW = 512
PER_SECOND = LISTEN_RATE / WINDOW
THE_NETWORK_ALONE = patch.object(SecondOpinion, "together", lambda opinion, plain, *others: plain)


def reduced(pcm: Pcm, speech_from: int) -> Pcm:
    """All windows in order; from that sample on they count as speech."""
    reducer, found = NoiseReducer(WINDOW), []
    for frame in Framer(WINDOW).feed(pcm):
        reducer.hear(frame.pcm)
        found.append(reducer.reduced())
        reducer.learn(1.0 if frame.index >= speech_from else 0.0)
    return np.concatenate(found)


def tone(count: int, hz: float) -> Signal:
    return np.sin(np.arange(count) * 2 * np.pi * hz / LISTEN_RATE).astype(np.float32)


def test_steady_noise_is_removed_and_a_voice_kept() -> None:
    heard = gained(noise("pink", 3 * LISTEN_RATE, np.random.default_rng(1)), -30)
    heard[2 * LISTEN_RATE :] += gained(tone(LISTEN_RATE, 1000), -20)
    found = to_signal(reduced(to_pcm(heard), 2 * LISTEN_RATE))
    second = [slice(n * LISTEN_RATE, (n + 1) * LISTEN_RATE - WINDOW) for n in range(3)]
    assert rms_dbfs(found[second[1]]) < rms_dbfs(heard[second[1]]) - 6
    assert rms_dbfs(found[second[2]]) > rms_dbfs(heard[second[2]]) - 1


def test_nothing_is_delayed() -> None:
    heard = gained(noise("pink", 2 * LISTEN_RATE, np.random.default_rng(1)), -60)
    heard[LISTEN_RATE + 700 : LISTEN_RATE + 900] += gained(tone(200, 1000), -10)
    found = to_signal(reduced(to_pcm(heard), LISTEN_RATE))
    loud = np.flatnonzero(np.abs(found) > 0.1)
    assert abs(int(loud[0]) - (LISTEN_RATE + 700)) < 16


@given(st.lists(st.integers(-32768, 32767), min_size=1, max_size=8), st.floats(0, 1))
def test_any_sound_gives_a_window_of_samples(levels: list[int], score: float) -> None:
    reducer = NoiseReducer(WINDOW)
    reducer.learn(score)
    for level in levels:
        reducer.hear(np.full(WINDOW, level, np.int16))
        found = reducer.reduced()
        assert found.shape == (WINDOW,)
        assert found.dtype == np.int16
        reducer.learn(score)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=200))
def test_the_score_is_never_less_than_that_of_the_plain_sound(
    scores: list[tuple[float, float]],
) -> None:
    opinion = SecondOpinion(WINDOW)
    for number, (plain, other) in enumerate(scores):
        newest = [each for _, each in scores[max(0, number - 2) : number + 1]]
        assert plain <= opinion.together(plain, other) <= max(plain, min(newest))


def test_three_windows_must_agree() -> None:
    opinion = SecondOpinion(WINDOW)
    assert [opinion.together(0.1, score) for score in (0.9, 0.9, 0.8, 0.2)] == [
        0.1,
        0.1,
        0.8,
        0.2,
    ]


@pytest.mark.parametrize("level_dbfs", [-60, -45, -26])
def test_the_noise_level_is_estimated(level_dbfs: int) -> None:
    reducer = NoiseReducer(WINDOW)
    heard = gained(noise("pink", 2 * LISTEN_RATE, np.random.default_rng(1)), level_dbfs)
    for frame in Framer(WINDOW).feed(to_pcm(heard)):
        reducer.hear(frame.pcm)
        reducer.learn(0.0)
    assert reducer.noise_dbfs == pytest.approx(level_dbfs, abs=1.5)


def test_continuous_speech_is_a_crowd() -> None:
    opinion = SecondOpinion(WINDOW)
    found = [opinion.together(0.1, 1.0) for _ in range(int(20 * PER_SECOND))]
    heard_s = np.count_nonzero(np.array(found) > 0.5) / PER_SECOND
    assert 10 < heard_s < 12, "nobody speaks so long without a breath"
    assert set(found[int(12 * PER_SECOND) :]) == {0.1}
    for _ in range(int(10 * PER_SECOND)):
        opinion.together(0.1, 0.0)
    assert [opinion.together(0.1, 0.9) for _ in range(3)][-1] == 0.9


def speech_s(vad: SileroVad, pcm: Pcm) -> float:
    stream = vad.open()
    scores = [stream.score(frame.pcm) for frame in Framer(WINDOW).feed(pcm)]
    return np.count_nonzero(np.array(scores) >= 0.5) / PER_SECOND


@pytest.mark.real
def test_in_soft_noise_only_the_plain_sound_counts(vad: SileroVad) -> None:
    clip = to_signal(recording("something").pcm)
    faint = to_pcm(
        gained(clip, -52.0) + gained(noise("pink", len(clip), np.random.default_rng(1)), -55.0)
    )
    with THE_NETWORK_ALONE:
        plain = speech_s(vad, faint)
    assert speech_s(vad, faint) == plain


@pytest.mark.real
@pytest.mark.parametrize("kind", ["pink", "fan", "babble"])
def test_speech_that_is_3_db_softer_than_noise_is_heard(vad: SileroVad, kind: NoiseKind) -> None:
    """More of it than with the network alone; the noise alone is not speech."""
    clip = recording("something").pcm
    onset, end = bounds(clip)
    voice = to_signal(clip[onset:end])
    voice = gained(voice, -29 - rms_dbfs(voice))
    around = gained(noise(kind, len(voice) + 2 * LISTEN_RATE, np.random.default_rng(2)), -26)
    mixed = around.copy()
    mixed[2 * LISTEN_RATE :] += voice
    with THE_NETWORK_ALONE:
        alone_s = speech_s(vad, to_pcm(mixed))
    assert speech_s(vad, to_pcm(mixed)) > max(alone_s, 0.5)
    assert speech_s(vad, to_pcm(around)) == 0
