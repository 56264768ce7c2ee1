"""The echo benchmark's scenes have the stated properties."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.echo.canceller import Alone, Spoken, of_alone, of_interruptions, triggers
from benchmarks.echo.scenes import Clip, EchoSceneMaker, active_dbfs, onset
from benchmarks.harness.rooms import SPEED_OF_SOUND, draw_room
from pipeline.audio import LISTEN_RATE, Pcm
from tests.support.echo_sound import pcm, speechlike


class Voice:
    """Something like speech for every text."""

    def say(self, voice: str, text: str) -> Pcm:
        return pcm(speechlike(1.5, len(voice) * 1000 + len(text)))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sound_comes_when_it_must_and_fades_as_it_should(seed: int) -> None:
    room = draw_room(np.random.default_rng(seed))
    response = room.response(room.talker)
    distance = float(np.linalg.norm(room.talker - room.microphone))
    arrival = distance / SPEED_OF_SOUND * LISTEN_RATE
    assert abs(int(np.flatnonzero(response)[0]) - arrival) <= 1
    left = np.cumsum(np.square(response[::-1], dtype=np.float64))[::-1]
    left_db = 10 * np.log10(left / left[0] + 1e-12)
    # By how much it falls from -5 to -20 dB, as ISO 3382 measures it, but with 15 dB.
    first, last = (int(np.flatnonzero(left_db < level)[0]) for level in (-5, -20))
    rt60_s = (last - first) / LISTEN_RATE * 4
    assert rt60_s == pytest.approx(room.rt60_s, rel=0.45)


def test_an_interruption_has_the_requested_level() -> None:
    scene = EchoSceneMaker(Voice()).make(7, 6)
    said = speechlike(1, 8)
    clip = Clip("x", "", "source", said, onset(said))
    for ser_db in (6, -6):
        level = active_dbfs(scene.heard(clip, ser_db)) - active_dbfs(scene.echo)
        assert level == pytest.approx(ser_db, abs=0.1)


def test_triggers_are_two_seconds_apart() -> None:
    ends = [round(at * LISTEN_RATE) for at in (1.0, 1.5, 2.9, 3.1, 5.2)]
    assert triggers(ends) == [1.0, 3.1, 5.2]


def alone_at(*fired_s: float) -> Alone:
    return Alone(1, "v", 1800.0, list(fired_s), 0, {})


def test_false_triggers_are_counted_by_the_hour_that_the_robot_speaks() -> None:
    report = of_alone([alone_at(4.0), alone_at()])
    assert report["false_per_hour"] == 1.0
    # Of a Poisson count of 1 the upper end of 95 % is 4.74.
    assert report["false_per_hour_at_most"] == pytest.approx(4.74, abs=0.01)
    assert of_alone([alone_at()])["false_per_hour_at_most"] == pytest.approx(3.0 / 0.5, abs=0.02)


def test_a_miss_is_later_than_all_that_was_found() -> None:
    found = [
        Spoken(1, "a", 0, {"residual": late_s, "clean": 0.1}, False, {})
        for late_s in (0.2, None, 0.3, None, None)
    ]
    report = of_interruptions(found)["+0 dB"]
    assert report["residual"]["within_250_ms"] == 0.2
    assert report["residual"]["median_ms"] is None
    assert report["clean"]["median_ms"] == 100
