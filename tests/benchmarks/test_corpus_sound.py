"""The corpus's sound: noise as loud as it says, no digital silence, no clicks."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from benchmarks.harness.acoustics import (
    NoiseKind,
    at_speed,
    in_room,
    like_floor,
    noise,
    rms_dbfs,
    room_response,
    to_signal,
)
from benchmarks.turns.compose import Conditions, active_samples
from benchmarks.turns.plan import SNRS_DB, with_speed
from benchmarks.turns.splice import Cut, stretched, utterance
from pipeline.audio import LISTEN_RATE
from tests.benchmarks.corpus_speech import FRAME, buzz, one_border, samples, scene, silence

# --- sound -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rt60_s", [None, 0.4])
@pytest.mark.parametrize("snr_db", SNRS_DB)
def test_noise_is_as_loud_as_it_says(snr_db: float, rt60_s: float | None) -> None:
    spoken = one_border()
    cuts = [Cut(spoken.borders[0], 0.6)]
    quiet = scene(spoken, cuts, Conditions(None, rt60_s))
    noisy = scene(spoken, cuts, Conditions(snr_db, rt60_s))
    assert (noisy.onset, noisy.end, noisy.pauses) == (quiet.onset, quiet.end, quiet.pauses)
    active = active_samples(len(quiet.pcm), quiet.onset, quiet.end, quiet.pauses)
    speech = to_signal(quiet.pcm)
    added = to_signal(noisy.pcm) - speech
    assert rms_dbfs(speech[active]) - rms_dbfs(added) == pytest.approx(snr_db, abs=0.5)


@pytest.mark.parametrize("kind", get_args(NoiseKind))
def test_noise_has_its_level_and_its_seed(kind: NoiseKind) -> None:
    made = noise(kind, samples(2.0), np.random.default_rng(3))
    assert rms_dbfs(made) == pytest.approx(0.0, abs=0.01)
    assert np.array_equal(made, noise(kind, samples(2.0), np.random.default_rng(3)))
    assert not np.array_equal(made, noise(kind, samples(2.0), np.random.default_rng(4)))


def test_nowhere_is_digital_silence() -> None:
    spoken = one_border()
    for seed in range(5):
        pcm = scene(spoken, [Cut(spoken.borders[0], 2.0)], seed=seed).pcm
        edges = np.flatnonzero(np.concatenate([[True], pcm != 0, [True]]))
        assert np.diff(edges).max() - 1 < 32, "a run of zeros"
        assert 1 < np.std(pcm[: samples(0.4)].astype(float)) < 60


def test_pauses_and_surroundings_have_the_recordings_own_floor() -> None:
    hiss = (0.004 * np.random.default_rng(5).standard_normal(samples(2.0))).astype(np.float32)
    spoken = one_border()
    spoken = replace(spoken, signal=spoken.signal + hiss[: len(spoken.signal)])
    made = scene(spoken, [Cut(spoken.borders[0], 1.0)])
    (pause,) = made.pauses
    heard = to_signal(made.pcm)
    active = active_samples(len(heard), made.onset, made.end, made.pauses)
    before, inside = heard[: made.onset - FRAME], heard[pause.start + FRAME : pause.end - FRAME]
    assert rms_dbfs(before) == pytest.approx(rms_dbfs(inside), abs=2.0)
    assert rms_dbfs(inside) > rms_dbfs(heard[active]) - 36, "the hiss is in the pause as well"


def test_the_floor_follows_level_and_colour() -> None:
    rng = np.random.default_rng(1)
    dark = np.convolve(rng.standard_normal(samples(1.0)), np.ones(8) / 8, "same") * 0.01
    signal = np.concatenate([dark, buzz(1.0)]).astype(np.float32)
    made = like_floor(signal, samples(3.0), rng)
    assert rms_dbfs(made) == pytest.approx(rms_dbfs(dark.astype(np.float32)), abs=2.0)
    high = np.diff(made.astype(np.float64))
    assert rms_dbfs(high.astype(np.float32)) < rms_dbfs(made) - 3


def test_nothing_clicks_where_a_pause_is_cut_in() -> None:
    spoken = one_border()
    for stretch in (1.0, 1.5):
        said = utterance(spoken, [Cut(spoken.borders[0], 0.5, stretch)])
        steepest = np.abs(np.diff(spoken.signal[samples(0.15) : samples(0.65)])).max()
        near = np.abs(np.diff(said.signal[samples(0.3) :]))
        assert near.max() <= 1.5 * steepest


@pytest.mark.parametrize("factor", [1.3, 1.5, 1.8])
def test_a_drawn_out_syllable_is_longer_at_the_same_pitch(factor: float) -> None:
    made = stretched(buzz(0.15, 200.0), factor)
    assert len(made) == round(samples(0.15) * factor)
    spectrum = np.abs(np.fft.rfft(made * np.hanning(len(made)), 1 << 16))
    pitch_hz = np.argmax(spectrum[: 1 << 11]) * LISTEN_RATE / (1 << 16)
    assert pitch_hz == pytest.approx(200.0, abs=5.0)
    assert rms_dbfs(made) == pytest.approx(rms_dbfs(buzz(0.15, 200.0)), abs=1.5)


def test_a_room_keeps_the_direct_sound_in_place_and_fades_in_its_time() -> None:
    response = room_response(0.4, np.random.default_rng(2))
    impulse = silence(1.0)
    impulse[1000] = 0.5
    heard = in_room(impulse, response)
    assert np.argmax(np.abs(heard)) == 1000
    assert np.abs(heard[:1000]).max() < 1e-6
    early = rms_dbfs(heard[1000 + samples(0.02) : 1000 + samples(0.06)])
    late = rms_dbfs(heard[1000 + samples(0.22) : 1000 + samples(0.26)])
    assert early - late == pytest.approx(60 * 0.2 / 0.4, abs=3.0)


def test_a_change_of_speed_moves_the_borders_along() -> None:
    changed = with_speed(one_border(), 1.04)
    assert len(changed.signal) == pytest.approx(samples(1.4) / 1.04, abs=2)
    assert changed.borders[0].at == round(samples(0.7) / 1.04)
    assert np.array_equal(at_speed(buzz(0.1), 1.0), buzz(0.1))
