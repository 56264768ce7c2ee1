"""The loudspeaker's samples, without a device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.sound.speaker import QUEUE_S, Speaker
from pipeline.audio import EMPTY, Pcm

pytestmark = pytest.mark.quick

RATE = 16_000
LATENCY_S = 0.015


class Driver:
    """Asks for 5 ms every 5 ms, played 15 ms later."""

    def __init__(self, volume: float = 1.0, rate: int = RATE) -> None:
        self.speaker = Speaker(volume)
        self.speaker.opened(rate)
        self.rate = rate
        self.now_s = 100.0

    def ask(self, ms: int) -> Pcm:
        """Returns the samples of the next milliseconds."""
        return np.concatenate([EMPTY, *self._each(ms)])

    def heard_s(self, sound: str) -> float:
        return self.speaker.heard_s(sound, self.now_s)

    def _each(self, ms: int) -> Iterator[Pcm]:
        for _ in range(ms // 5):
            frames = self.rate // 200
            yield self.speaker.fill(frames, self.now_s + LATENCY_S, self.now_s, False)
            self.now_s += 0.005


def _tone(ms: int, level: int = 10_000) -> Pcm:
    return np.full(ms * RATE // 1000, level, np.int16)


def test_sounds_play_one_after_the_other() -> None:
    driver = Driver()
    driver.speaker.play(_tone(7, 100), RATE, "a")
    driver.speaker.play(_tone(8, 200), RATE, "b")
    given = driver.ask(20)
    assert given.tolist() == [100] * 112 + [200] * 128 + [0] * 80


def test_the_tap_gets_the_output() -> None:
    driver = Driver(volume=0.5)
    driver.speaker.play(_tone(12), RATE, "a")
    given = driver.ask(20)
    tapped = []
    while (piece := driver.speaker.tap.take()) is not None:
        tapped.append(piece)
    assert np.array_equal(np.concatenate([piece.pcm for piece in tapped]), given)
    assert [piece.first for piece in tapped] == [0, 80, 160, 240]
    assert tapped[1].at_s == pytest.approx(100.005 + LATENCY_S)
    assert set(given.tolist()) == {5000, 0}


def test_ducking_is_a_ramp_of_ten_milliseconds() -> None:
    driver = Driver()
    driver.speaker.play(_tone(100), RATE, "a")
    driver.ask(10)
    driver.speaker.duck(20)
    ramp = driver.ask(20).astype(int)
    assert (np.diff(ramp[:160]) <= 0).all()
    assert np.abs(np.diff(ramp)).max() <= 58
    assert np.abs(ramp[159:] - 1000).max() <= 1
    driver.speaker.duck(0)
    back = driver.ask(20).astype(int)
    assert back[150] < back[159] == pytest.approx(10_000, abs=1)
    assert back[-1] == 10_000


def test_a_flush_fades_within_three_milliseconds() -> None:
    driver = Driver()
    driver.speaker.play(_tone(500), RATE, "a")
    driver.ask(100)
    driver.speaker.flush()
    rest = driver.ask(50).astype(int)
    assert not rest[48:].any()
    assert np.abs(np.diff(rest, prepend=10_000)).max() <= 10_000 // 47 + 1
    assert driver.speaker.queued_s() == 0


def test_heard_counts_what_has_left_the_device() -> None:
    driver = Driver()
    driver.ask(50)
    driver.speaker.play(_tone(100), RATE, "a")
    assert driver.heard_s("a") == 0
    driver.ask(15)
    assert driver.heard_s("a") == pytest.approx(0, abs=1e-6)
    driver.ask(30)
    assert driver.heard_s("a") == pytest.approx(0.030, abs=1e-4)
    driver.ask(100)
    assert driver.heard_s("a") == pytest.approx(0.100)
    assert driver.heard_s("unknown") == 0


def test_heard_stops_when_a_sound_is_cut_off() -> None:
    driver = Driver()
    driver.speaker.play(_tone(1000), RATE, "a")
    driver.ask(200)
    driver.speaker.flush()
    driver.ask(200)
    assert driver.heard_s("a") == pytest.approx(0.203, abs=1e-3)


def test_heard_excludes_gaps_between_late_pieces() -> None:
    driver = Driver()
    for _ in range(10):
        driver.speaker.play(_tone(10), RATE, "a")
        driver.ask(30)
    driver.ask(30)
    assert driver.heard_s("a") == pytest.approx(0.100)


def test_heard_is_in_the_sounds_own_seconds() -> None:
    driver = Driver(rate=48_000)
    driver.speaker.play(np.full(24_000, 500, np.int16), 24_000, "a")
    given = driver.ask(2000)
    assert driver.heard_s("a") == pytest.approx(1.0)
    assert np.count_nonzero(given > 400) == pytest.approx(48_000, abs=200)


def test_a_lost_device_drops_what_is_queued_and_the_positions_stay() -> None:
    driver = Driver()
    driver.speaker.play(_tone(1000), RATE, "a")
    driver.ask(100)
    driver.speaker.closed(driver.now_s)
    assert driver.heard_s("a") == pytest.approx(0.085, abs=1e-3)
    driver.speaker.play(_tone(500), RATE, "b")
    driver.speaker.opened(48_000)
    driver.rate = 48_000
    driver.now_s += 3
    assert not driver.ask(50).any()
    driver.speaker.play(_tone(20), RATE, "c")
    driver.ask(100)
    assert driver.heard_s("a") == pytest.approx(0.085, abs=1e-3)
    assert driver.heard_s("b") == 0
    assert driver.heard_s("c") == pytest.approx(0.020)


def test_the_queue_is_bounded_and_counts() -> None:
    driver = Driver()
    for _ in range(200):
        driver.speaker.play(_tone(1000), RATE, "a")
    assert driver.speaker.queued_s() == pytest.approx(QUEUE_S)


_STEP = st.tuples(st.sampled_from(["play a", "play b", "ask", "flush", "lose"]), st.integers(0, 12))


@given(st.lists(_STEP, max_size=40))
def test_positions_add_up_whatever_happens(steps: list[tuple[str, int]]) -> None:
    """A heard position never exceeds the sound's length or the output, and never decreases."""
    driver = Driver()
    played_s = {"a": 0.0, "b": 0.0}
    before = {"a": 0.0, "b": 0.0}
    sounding = 0
    for what, size in steps:
        if what.startswith("play"):
            driver.speaker.play(_tone(size), RATE, what[-1])
            played_s[what[-1]] += size / 1000
        elif what == "ask":
            sounding += int(np.count_nonzero(driver.ask(size * 5)))
        elif what == "flush":
            driver.speaker.flush()
        else:
            driver.speaker.closed(driver.now_s)
            driver.speaker.opened(RATE)
        for sound, played in played_s.items():
            heard = driver.heard_s(sound)
            assert before[sound] <= heard <= played + 1e-9
            before[sound] = heard
        # A fade ends at zero, and its last steps may round to zero.
        assert sum(before.values()) <= (sounding + 8 * len(steps)) / RATE + 1e-6


def test_a_tone_keeps_the_device_awake_and_is_not_in_the_reference() -> None:
    speaker = Speaker(1.0, keep_awake_dbfs=-50)
    speaker.opened(16_000)
    silence = np.concatenate([speaker.fill(1600, n / 10, n / 10, False) for n in range(10)])
    assert 20 * np.log10(np.abs(silence).max() / 32767) == pytest.approx(-50, abs=0.2)
    assert np.argmax(np.abs(np.fft.rfft(silence))) == 30, "Hz, without a break between the calls"
    tapped = [piece.pcm for _ in range(10) if (piece := speaker.tap.take())]
    assert not np.concatenate(tapped).any()
    speaker.play(np.full(160, 32767, np.int16), 16_000, "loud")
    assert speaker.fill(160, 1.0, 1.0, False).max() == 32767, "no overflow"
    speaker.closed(1.1)
    assert not speaker.fill(160, 1.1, 1.1, False).any(), "a driver may ask until it has ended"
