"""The whole path: no change without playback, a saved state, detected gaps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.echo.canceller import EchoCanceller
from pipeline.echo.kalman import BLOCK, Samples
from pipeline.echo.tuning import CANCELLER_NO_DOUBT, CANCELLER_REALIGNED_MS
from tests.support.echo_sound import (
    cleaned,
    hum,
    pcm,
    post_filtered,
    power_db,
    residual,
    room,
    seconds,
    speechlike,
    through,
)

pytestmark = pytest.mark.machine

SILENT = np.zeros(BLOCK, np.int16)


def scene(length_s: float, seed: int, delay_ms: float = 40) -> tuple[Samples, Samples]:
    """Playback and its echo."""
    reference = speechlike(length_s, seed)
    return reference, through(reference, room(delay_ms, seed))


# --- nothing is played -------------------------------------------------------------------------


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
@settings(max_examples=20)
def test_without_playback_no_bit_changes(seeds: list[int]) -> None:
    canceller = EchoCanceller()
    before = SILENT
    for seed in seeds:
        heard = np.random.default_rng(seed).integers(-32768, 32768, BLOCK).astype(np.int16)
        found = canceller.process(heard, SILENT)
        assert np.array_equal(found.residual, heard)
        assert np.array_equal(found.post_filtered, before)
        assert found.idle
        assert found.llr == CANCELLER_NO_DOUBT
        before = heard


def test_it_is_idle_again_when_the_last_echo_has_faded() -> None:
    reference, echo = scene(1, 1)
    silence = np.zeros(LISTEN_RATE, np.float32)
    heard = pcm(np.concatenate((echo, silence)) + hum(2 * LISTEN_RATE, 1))
    found = cleaned(EchoCanceller(), heard, pcm(np.concatenate((reference, silence))))
    idle = [each.idle for each in found]
    assert not any(idle[:130])
    assert all(idle[140:])
    assert np.array_equal(residual(found[140:]), heard[140 * BLOCK :].astype(np.float32) / 32768)


def test_blocks_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="160"):
        EchoCanceller().process(SILENT[:-1], SILENT)
    with pytest.raises(ValueError, match="160"):
        EchoCanceller().process(SILENT, np.zeros(2 * BLOCK, np.int16))


# --- an echo, and near-end speech --------------------------------------------------------------


def test_echo_is_removed_and_speech_kept() -> None:
    reference, echo = scene(9, 2)
    near = 0.3 * speechlike(9, 3)
    near[: 6 * LISTEN_RATE] = 0
    heard = pcm(echo + near.astype(np.float32) + hum(len(echo), 2))
    found = cleaned(EchoCanceller(), heard, pcm(reference))
    left, after = residual(found), post_filtered(found)
    assert power_db(seconds(left, 5, 6)) < power_db(seconds(echo, 5, 6)) - 18
    assert power_db(seconds(after, 5, 6)) < power_db(seconds(echo, 5, 6)) - 26
    assert np.corrcoef(seconds(left, 6, 9), seconds(near, 6, 9))[0, 1] > 0.9
    llr = np.array([each.llr for each in found])
    assert np.mean(llr[400:600] > 2) < 0.05
    assert np.mean(llr[610:660] > 2) > 0.5


# --- what is kept ------------------------------------------------------------------------------


def trained() -> tuple[EchoCanceller, Pcm, Pcm, Samples]:
    """A canceller after 6 s, and 2 s more of both sounds."""
    reference, echo = scene(8, 4)
    heard, played = pcm(echo + hum(len(echo), 4)), pcm(reference)
    canceller = EchoCanceller()
    middle = 6 * LISTEN_RATE
    cleaned(canceller, heard[:middle], played[:middle])
    return canceller, heard[middle:], played[middle:], echo[middle:]


def test_a_restored_state_works_from_the_first_word() -> None:
    canceller, heard, played, echo = trained()
    state = canceller.state()
    warm = EchoCanceller()
    warm.restore(state)
    again = warm.state()
    assert np.array_equal(again.weights, state.weights)
    np.testing.assert_allclose(again.leakage_db, state.leakage_db, atol=1e-4)
    assert (again.ppm, again.lag_samples) == (state.ppm, state.lag_samples)
    left = residual(cleaned(warm, heard, played))
    cold = residual(cleaned(EchoCanceller(), heard, played))
    # Earlier playback is unknown to it, so the room's tail remains for 300 ms.
    assert power_db(seconds(left, 0.4, 1)) < power_db(seconds(echo, 0.4, 1)) - 15
    assert power_db(seconds(left, 0.4, 1)) < power_db(seconds(cold, 0.4, 1)) - 6


def test_an_invalid_state_is_refused() -> None:
    state = EchoCanceller().state()
    for wrong in (
        replace(state, weights=state.weights[:1]),
        replace(state, weights=np.full_like(state.weights, np.nan)),
        replace(state, leakage_db=state.leakage_db[:-1]),
        replace(state, ppm=4000.0),
        replace(state, lag_samples=-1.0),
    ):
        with pytest.raises(ValueError, match="state"):
            EchoCanceller().restore(wrong)


# --- gaps --------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [160, 441, -160])
def test_an_unreported_gap_is_found_and_followed(late: int) -> None:
    reference, echo = scene(10, 5)
    at = 7 * LISTEN_RATE
    after = np.roll(echo, late)[at:] if late > 0 else np.pad(echo[at - late :], (0, -late))
    heard = np.concatenate((echo[:at], after)) + hum(len(echo), 5)
    canceller = EchoCanceller()
    left = residual(cleaned(canceller, pcm(heard), pcm(reference)))
    assert canceller.slips == 1
    assert power_db(seconds(left, 7.3, 9)) < power_db(seconds(heard, 7.3, 9)) - 15


@pytest.mark.parametrize("seed", [6, 7, 8])
def test_near_end_speech_is_no_gap(seed: int) -> None:
    reference, echo = scene(9, seed)
    near = 0.5 * speechlike(9, seed + 100)
    near[: 5 * LISTEN_RATE] = 0
    canceller = EchoCanceller()
    cleaned(canceller, pcm(echo + near.astype(np.float32) + hum(len(echo), seed)), pcm(reference))
    assert canceller.slips == 0


def test_a_gap_that_is_reported_closes_the_gate() -> None:
    canceller, heard, played, _ = trained()
    near = pcm(0.5 * speechlike(2, 9))
    both = np.clip(heard.astype(np.int32) + near, -32768, 32767).astype(np.int16)
    canceller.realign()
    llr = [each.llr for each in cleaned(canceller, both, played)]
    closed = CANCELLER_REALIGNED_MS // 10
    assert max(llr[4:closed]) == 0
    assert max(llr[closed : closed + 30]) > 2


def test_a_gap_of_known_length_is_corrected_at_once() -> None:
    reference, echo = scene(8, 10)
    at, late = 6 * LISTEN_RATE, 237
    canceller = EchoCanceller()
    cleaned(canceller, pcm(echo[:at] + hum(at, 10)), pcm(reference[:at]))
    canceller.realign(late)
    after = echo[at - late : len(echo) - late]
    left = residual(cleaned(canceller, pcm(after), pcm(reference[at:])))
    assert canceller.slips == 0
    assert power_db(seconds(left, 0.1, 1)) < power_db(seconds(after, 0.1, 1)) - 15


def test_drift_beyond_a_block_is_followed_without_a_jump() -> None:
    """The reading point leaves the resampler's reach, and the filter moves by a block."""
    canceller, heard, played, echo = trained()
    state = canceller.state()
    for lag in (17.0005, 216.9995):
        warm = EchoCanceller()
        by = round(lag - state.lag_samples)
        warm.restore(replace(state, lag_samples=lag, ppm=5.0 if by < 0 else -5.0))
        # The same echo, as read that much later in the reference.
        moved = np.roll(heard, by)
        left = residual(cleaned(warm, moved, played))
        assert abs(warm.state().lag_samples - lag) > 100
        assert power_db(seconds(left, 0.5, 1.5)) < power_db(seconds(echo, 0.5, 1.5)) - 10


def test_another_room_is_noticed_and_learned_anew() -> None:
    """The robot is carried to another room: no time shift explains the change."""
    reference, echo = scene(14, 11)
    other = -through(reference, room(90, 12))
    at = 8 * LISTEN_RATE
    heard = np.concatenate((echo[:at], other[at:])) + hum(len(echo), 11)
    left = residual(cleaned(EchoCanceller(), pcm(heard), pcm(reference)))
    assert power_db(seconds(left, 12, 14)) < power_db(seconds(heard, 12, 14)) - 10


@pytest.mark.parametrize("level", [0.0, 1e-4])
def test_a_missing_echo_adds_no_sound(level: float) -> None:
    """The client stopped playing, or its microphone is off, and the server does not know."""
    played = pcm(0.5 * speechlike(8.0, seed=5))
    canceller = EchoCanceller()
    echo = through(to_float(played), room(12, seed=5)) + hum(len(played), 7, level)
    cleaned(canceller, pcm(echo), played)
    silent = pcm(hum(len(played), 6, level))
    found = cleaned(canceller, silent, played)
    assert power_db(residual(found)) <= power_db(to_float(silent)) + 3.1
    assert max(each.llr for each in found[20:]) < 4
