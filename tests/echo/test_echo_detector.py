"""The detector, also with the real network on real speech."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import LISTEN_RATE, Framer, Pcm, to_float
from pipeline.echo.canceller import EchoCanceller, EchoFree
from pipeline.echo.detector import near_end
from pipeline.echo.kalman import BLOCK
from pipeline.engines.vad.silero import WINDOW_SAMPLES, SileroOptions, SileroVad, build
from tests.support.echo_sound import blocks, cleaned, hum, pcm, room, through
from tests.support.recordings import recording

SCORES = st.floats(0, 1)
RATIOS = st.floats(0, 15)


@pytest.mark.parametrize("wrong", [(0.0, 0.1, 8.0), (0.1, 0.0, 8.0), (0.9, 0.9, 1.9)])
def test_no_trigger_without_speech_above_the_echo(wrong: tuple[float, float, float]) -> None:
    assert not near_end(*wrong)


def test_a_sure_score_makes_up_for_an_unsure_one() -> None:
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


@pytest.fixture(scope="module")
def vad(weights: Callable[[str], Path]) -> SileroVad:
    return build(SileroOptions(), weights("silero-vad"))


def fired_s(vad: SileroVad, found: list[EchoFree]) -> list[float]:
    """Ends of the windows that trigger, in seconds."""
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
    """From the first 10 ms that are within 32 dB of the loudest."""
    sound = to_float(said)
    powers = np.array([np.mean(np.square(block)) for block in blocks(sound)])
    first = int(np.flatnonzero(powers > powers.max() * 10**-3.2)[0])
    return sound[first * BLOCK :][: 2 * LISTEN_RATE]
