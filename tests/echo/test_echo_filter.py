"""The filter learns a room, its residual is explained, and near-end speech is detected."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import LISTEN_RATE, Framer, Pcm, to_float
from pipeline.echo.canceller import EchoCanceller, EchoFree
from pipeline.echo.gate import EchoGate, near_end
from pipeline.echo.kalman import BLOCK, PARTITIONS, KalmanFilter, Samples
from pipeline.engines.vad.silero import WINDOW_SAMPLES, SileroVad
from tests.support.echo_sound import (
    blocks,
    cleaned,
    hum,
    pcm,
    power_db,
    room,
    seconds,
    speechlike,
    through,
)
from tests.support.recordings import recording

pytestmark = pytest.mark.quick


def filtered(filter_: KalmanFilter, reference: Samples, heard: Samples) -> tuple[Samples, Samples]:
    """Residual and echo."""
    found = [
        filter_.process(played, block)  # type: ignore[arg-type]
        for played, block in zip(blocks(reference), blocks(heard), strict=True)
    ]
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def test_a_nonlinear_loudspeaker_is_modelled_by_a_cubic_term() -> None:
    reference = speechlike(10, 3)
    bent = through((np.tanh(2 * reference) / 2).astype(np.float32), room(30, 3))
    left, _ = filtered(KalmanFilter(), reference, bent + hum(len(bent), 3))
    assert power_db(seconds(left, 8, 10)) < power_db(seconds(bent, 8, 10)) - 20


@pytest.mark.parametrize(("level_db", "least_db"), [(6, 16), (0, 12), (-6, 8)])
def test_near_end_speech_is_kept(level_db: float, least_db: float) -> None:
    """By signal-to-noise ratio of the residual; noise is remaining echo and speech lost to the
    filter."""
    reference = speechlike(10, 4)
    echo = through(reference, room(40, 4))
    near = speechlike(10, 5)
    near[: 7 * 16_000] = 0
    near *= np.float32(10 ** ((power_db(echo) + level_db - power_db(seconds(near, 7, 10))) / 20))
    left, _ = filtered(KalmanFilter(), reference, echo + near + hum(len(echo), 4))
    wrong = seconds(left - near, 7.0, 10)
    assert power_db(seconds(near, 7, 10)) - power_db(wrong) > least_db


def test_noise_alone_does_not_make_it_unstable() -> None:
    rng = np.random.default_rng(7)
    reference = rng.uniform(-1, 1, 400 * BLOCK).astype(np.float32)
    heard = rng.uniform(-1, 1, 400 * BLOCK).astype(np.float32)
    left, _ = filtered(KalmanFilter(), reference, heard)
    assert power_db(left) < power_db(heard) + 2.5


def learnt() -> tuple[KalmanFilter, Samples, Samples]:
    """A filter after 4 s, and 1 s more of both sounds."""
    reference = speechlike(5, 8)
    echo = through(reference, room(50, 8)) + hum(len(reference), 8)
    filter_ = KalmanFilter()
    filtered(filter_, seconds(reference, 0, 4), seconds(echo, 0, 4))
    return filter_, reference, echo


@pytest.mark.parametrize("blocks_later", [1, -1, 2])
def test_a_filter_moved_by_blocks_expects_the_same_echo(blocks_later: int) -> None:
    filter_, reference, echo = learnt()
    for _ in range(abs(blocks_later)):
        filter_.later() if blocks_later > 0 else filter_.earlier()
    end = 64_000 - blocks_later * BLOCK
    filter_.refill(reference[end - (PARTITIONS + 1) * BLOCK : end])
    left = []
    for start in range(64_000, 72_000, BLOCK):
        played = reference[start - blocks_later * BLOCK :][:BLOCK]
        left.append(filter_.process(played, echo[start : start + BLOCK])[0])
    assert power_db(np.concatenate(left)) < power_db(echo[64_000:72_000]) - 12


def test_blocks_without_learning_keep_the_weights() -> None:
    filter_, reference, echo = learnt()
    before = filter_.weights
    for start in range(64_000, 72_000, BLOCK):
        block = slice(start, start + BLOCK)
        filter_.process(reference[block], -echo[block], learns=False)
    change = np.abs(filter_.weights - before).max() / np.abs(before).max()
    assert change < 0.05  # only the constraint is applied


# --- A filter's residual -----------------------------------------------------------------------


def gated(gate: EchoGate, residual: Samples, echo: Samples) -> tuple[Samples, list[float]]:
    found = [
        gate.process(left, taken)  # type: ignore[arg-type]
        for left, taken in zip(blocks(residual), blocks(echo), strict=True)
    ]
    return np.concatenate([sound for sound, _ in found]), [llr for _, llr in found]


def left_over(echo: Samples, seed: int) -> Samples:
    """The echo 20 dB lower with random phases, and some noise."""
    count = len(echo)
    flipped = np.random.default_rng(seed).choice([-0.1, 0.1], count // 40 + 1)
    return echo * np.repeat(flipped, 40)[:count].astype(np.float32) + hum(count, seed)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_residual_echo_is_explained_and_removed(seed: int) -> None:
    echo = 0.1 * speechlike(8, seed)
    residual = left_over(echo, seed)
    sound, llr = gated(EchoGate(), residual, echo)
    late = llr[400:]
    assert np.mean(np.array(late) > 2) < 0.03
    assert power_db(seconds(sound, 4, 8)) < power_db(seconds(residual, 4, 8)) - 6


@pytest.mark.parametrize("under_db", [0, 6, 12])
def test_near_end_speech_stands_out(under_db: float) -> None:
    """Softer than the echo by this much."""
    echo = 0.1 * speechlike(8, 4)
    near = 0.1 * 10 ** (-under_db / 20) * speechlike(8, 5)
    near[: 5 * 16_000] = 0
    residual = left_over(echo, 4) + near.astype(np.float32)
    sound, llr = gated(EchoGate(), residual, echo)
    assert np.mean(np.array(llr[510:700]) > 2) > 0.5
    late = seconds(sound, 5, 8)[BLOCK:]
    kept = np.corrcoef(late, seconds(near, 5, 8)[:-BLOCK])[0, 1]
    assert kept > 0.8


def test_playback_begins_without_a_click() -> None:
    heard = np.concatenate((hum(16_000, 7, 1e-3), speechlike(1, 7)))
    gate = EchoGate()
    found = []
    for number, block in enumerate(blocks(heard)):
        if number < 150:
            found.append(gate.pass_through(block))  # type: ignore[arg-type]
        else:
            found.append(gate.process(block, np.zeros(BLOCK, np.float32))[0])  # type: ignore[arg-type]
    sound = np.concatenate(found)
    border = slice(150 * BLOCK - 40, 152 * BLOCK + 40)
    wanted = np.concatenate((np.zeros(BLOCK, np.float32), heard))[border]
    assert power_db(sound[border] - wanted) < power_db(wanted) - 6


# --- the detector, also with the real network on real speech -----------------------------------


SCORES = st.floats(0, 1)
RATIOS = st.floats(0, 15)


@pytest.mark.parametrize("wrong", [(0.0, 0.1, 8.0), (0.1, 0.0, 8.0), (0.9, 0.9, 1.9)])
def test_no_trigger_without_speech_above_the_echo(wrong: tuple[float, float, float]) -> None:
    assert not near_end(*wrong)


def test_a_high_score_makes_up_for_a_low_one() -> None:
    assert near_end(0.3, 0.95, 6.0)
    assert near_end(0.95, 0.5, 9.0)
    assert not near_end(0.3, 0.5, 6.0)
    assert not near_end(0.3, 0.95, 3.9)


@given(SCORES, SCORES, RATIOS, SCORES, SCORES, RATIOS)
def test_more_evidence_is_never_less(
    first: float, second: float, llr: float, more: float, still_more: float, louder: float
) -> None:
    if near_end(first, second, llr):
        assert near_end(max(first, more), max(second, still_more), max(llr, louder))


# --- with the network --------------------------------------------------------------------------


def fired_s(vad: SileroVad, found: list[EchoFree]) -> list[float]:
    """End times of the windows that trigger, in seconds."""
    in_a_row, first, second = 0, vad.open(), vad.open()
    plain, filtered = Framer(WINDOW_SAMPLES), Framer(WINDOW_SAMPLES)
    times = []
    for each in found:
        after = list(filtered.feed(each.post_filtered))
        for frame, other in zip(plain.feed(each.residual), after, strict=True):
            holds = near_end(first.score(frame.pcm), second.score(other.pcm), each.llr)
            in_a_row = in_a_row + 1 if holds else 0
            if in_a_row >= 2:
                times.append(frame.end / LISTEN_RATE)
    return times


@pytest.mark.real
def test_near_end_speech_triggers_and_echo_does_not(vad: SileroVad) -> None:
    said = recording("two_cities").pcm[: 14 * LISTEN_RATE]
    played = to_float(said) / np.abs(to_float(said)).max()
    played = np.float32(0.7) * played[: len(played) // BLOCK * BLOCK]
    echo = through(np.tanh(2 * played) / 2, room(50, 1)) + hum(len(played), 1, 3e-4)
    alone = fired_s(vad, cleaned(EchoCanceller(), pcm(echo), pcm(played)))
    assert [at for at in alone if at > 3] == []
    begin = 8 * LISTEN_RATE
    near = _loudest_part(recording("goforward").pcm)
    both = echo.copy()
    level = np.sqrt(np.mean(echo**2) / np.mean(near**2))
    both[begin : begin + len(near)] += level * near
    times = fired_s(vad, cleaned(EchoCanceller(), pcm(both), pcm(played)))
    late = [at for at in times if at > 3]
    assert late
    assert 8 < late[0] < 8.6


def _loudest_part(said: Pcm) -> np.ndarray:
    """Two seconds from the first 10 ms within 32 dB of the loudest."""
    sound = to_float(said)
    powers = np.array([np.mean(np.square(block)) for block in blocks(sound)])
    first = int(np.flatnonzero(powers > powers.max() * 10**-3.2)[0])
    return sound[first * BLOCK :][: 2 * LISTEN_RATE]
