"""Microphone and loudspeaker on one counter, with clocks that differ, stall and lose samples."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.sound.alignment import BLOCK_SAMPLES, LEAD_S, Alignment, SoundBlock
from hardware.sound.ring import SampleBlock
from pipeline.audio import Pcm

pytestmark = pytest.mark.quick

RATE = 16_000
SOUND: Pcm = np.random.default_rng(3).normal(0, 3000, RATE * 40).astype(np.int16)
ECHO_S = 0.002
IN_S, OUT_S = 0.012, 0.015


class World:
    """A loudspeaker that plays ``SOUND`` by its own clock, and a microphone that hears it 2 ms
    later. Both in pieces of 5 ms; microphone and air run at 16 kHz of true time."""

    def __init__(self, spk_ppm: float = 0.0) -> None:
        self.alignment = Alignment(RATE, RATE)
        self.blocks: list[SoundBlock] = []
        self.spk_rate = RATE * (1 + spk_ppm * 1e-6)
        self.air = np.zeros(RATE * 45, np.float32)
        self.mic_first = self.spk_first = 0
        self.mic_start_s, self.spk_start_s = 1.0, 1.0
        self.spk_sample = 0
        self.now_s = 1.0
        self.xrun = False
        self.quiet = False

    def run(self, seconds: float) -> None:
        end = self.now_s + seconds
        while self.now_s < end:
            self.now_s += 0.001
            while self._spk_at(self.spk_first) <= self.now_s + OUT_S:
                self._play()
            while self._mic_at(self.mic_first + 80) <= self.now_s - IN_S + 0.005:
                self._hear()

    def _spk_at(self, first: int) -> float:
        return self.spk_start_s + first / self.spk_rate

    def _mic_at(self, first: int) -> float:
        return self.mic_start_s + first / RATE

    def _play(self) -> None:
        pcm = SOUND[self.spk_sample : self.spk_sample + 80]
        if self.quiet:
            pcm = np.zeros(80, np.int16)
        at_s = self._spk_at(self.spk_first)
        start = round((at_s + ECHO_S) * RATE)
        self.air[start : start + 80] = pcm
        self.alignment.played(SampleBlock(pcm, self.spk_first, at_s, self.xrun))
        self.xrun = False
        self.spk_first += 80
        self.spk_sample += 80

    def _hear(self) -> None:
        at_s = self._mic_at(self.mic_first)
        places = np.round((at_s + np.arange(80) / RATE) * RATE).astype(int)
        piece = SampleBlock(self.air[places].astype(np.int16), self.mic_first, at_s, False)
        self.blocks.extend(self.alignment.heard(piece))
        self.mic_first += 80

    # the results

    def lag_ms(self, at: int) -> float:
        """The echo's delay after ``played``, around block number ``at``."""
        played = np.concatenate([b.reference for b in self.blocks[at : at + 20]]).astype(float)
        heard = np.concatenate([b.pcm for b in self.blocks[at - 5 : at + 30]])
        cross = np.correlate(heard.astype(float), played, "valid")
        return (int(np.argmax(cross)) - 5 * BLOCK_SAMPLES) / RATE * 1000

    def moves(self) -> list[int]:
        return [b.reference_moved for b in self.blocks if b.reference_moved is not None]


LEAD_MS = (LEAD_S + ECHO_S) * 1000


def test_the_echo_follows_by_the_lead() -> None:
    world = World()
    world.run(3)
    assert world.lag_ms(60) == pytest.approx(LEAD_MS, abs=0.5)
    assert world.lag_ms(250) == pytest.approx(LEAD_MS, abs=0.5)
    assert world.moves() == []
    assert all(block.lost_samples == 0 for block in world.blocks)
    assert all(len(block.pcm) == len(block.reference) == BLOCK_SAMPLES for block in world.blocks)


@pytest.mark.parametrize("ppm", [-200.0, 200.0])
def test_drifting_clocks_stay_within_a_block_and_each_move_is_reported(ppm: float) -> None:
    world = World(spk_ppm=ppm)
    world.run(36)
    ends = world.lag_ms(100), world.lag_ms(len(world.blocks) - 60)
    assert all(abs(lag - LEAD_MS) < 11 for lag in ends)
    drift_ms = 36 * ppm * 1e-3
    assert abs(drift_ms) < 11 or world.moves()
    told_ms = sum(world.moves()) / RATE * 1000
    # The reported move explains the change of the echo's delay; the rest is clock drift.
    assert ends[1] - ends[0] == pytest.approx(told_ms - drift_ms, abs=1.5)


def test_the_reference_is_corrected_at_once_in_silence() -> None:
    world = World(spk_ppm=250)
    world.run(25)
    assert world.moves() == []
    world.quiet = True
    world.run(1)
    world.quiet = False
    world.run(2)
    assert len(world.moves()) == 1
    assert world.lag_ms(len(world.blocks) - 60) == pytest.approx(LEAD_MS, abs=1.5)


@pytest.mark.parametrize(
    ("place", "moves", "xrun", "lost"),
    [
        ("spk_start_s", 0.030, True, range(1)),  # silence inserted by the device
        ("spk_start_s", -0.012, False, range(1)),
        ("mic_start_s", 0.050, False, range(639, 962)),
        ("mic_first", 1600, False, range(1600, 1761)),  # dropped by our own ring
    ],
)
def test_sound_that_a_stream_stalls_or_loses(
    place: str, moves: float, xrun: bool, lost: range
) -> None:
    world = World()
    world.run(2)
    setattr(world, place, getattr(world, place) + moves)
    world.xrun = xrun
    world.run(2)
    assert sum(block.lost_samples for block in world.blocks) in lost
    assert world.moves() == [0]
    assert world.lag_ms(len(world.blocks) - 60) == pytest.approx(LEAD_MS, abs=0.5)


def test_a_missing_reference_delays_little() -> None:
    alignment = Alignment(RATE, RATE)
    blocks: list[SoundBlock] = []
    for first in range(0, RATE, 80):
        if first < RATE // 2:
            alignment.played(SampleBlock(SOUND[first : first + 80], first, 1 + first / RATE))
        piece = SampleBlock(SOUND[:80], first, 1 + first / RATE)
        blocks.extend(alignment.heard(piece))
    assert len(blocks) >= RATE // BLOCK_SAMPLES - 4
    assert not blocks[-1].reference.any()


@pytest.mark.parametrize(
    ("microphone_hz", "speaker_hz"),
    [
        (44_100, 44_100),
        (44_100, 48_000),
        (48_000, 44_100),
        (8_000, 96_000),
        (24_000, 16_000),
        (32_000, 22_050),
        (44_099, 16_000),
        (16_000, 44_099),
    ],
)
def test_any_two_rates_stay_aligned(microphone_hz: int, speaker_hz: int) -> None:
    """A click per second, in 5 ms pieces rounded down to whole samples."""
    rates = microphone_hz, speaker_hz
    alignment = Alignment(*rates)
    blocks: list[SoundBlock] = []
    heard = played = 0
    for now_ms in range(0, 12_000, 5):
        while played * 1000 < now_ms * speaker_hz:
            alignment.played(_clicks(played, speaker_hz))
            played += speaker_hz // 200
        while heard * 1000 < (now_ms - 25) * microphone_hz:
            blocks.extend(alignment.heard(_clicks(heard, microphone_hz)))
            heard += microphone_hz // 200
    pcm = np.concatenate([block.pcm for block in blocks])
    reference = np.concatenate([block.reference for block in blocks])
    assert sum(block.lost_samples for block in blocks) == 0
    for second in (2, 10):
        near = slice(second * RATE - 1000, second * RATE + 1000)
        at = near.start + int(np.argmax(pcm[near]))
        block = blocks[at // BLOCK_SAMPLES]
        at_s = block.captured_at - (BLOCK_SAMPLES - 1 - at % BLOCK_SAMPLES) / RATE
        assert at_s == pytest.approx(second, abs=2e-4)
        lag = at - near.start - int(np.argmax(reference[near]))
        # An odd rate is converted to within 5e-5; the alignment treats the rest as drift.
        assert lag == pytest.approx(LEAD_S * RATE, abs=16 if 44_099 in rates else 2)


def _clicks(first: int, rate: int) -> SampleBlock:
    numbers = first + np.arange(rate // 200)
    return SampleBlock(np.where(numbers % rate, 0, 30_000).astype(np.int16), first, first / rate)
