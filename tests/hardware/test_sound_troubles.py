"""Sound that fails: underruns, a blocked program, clocks that differ."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest

from hardware.settings import Sound
from hardware.sound.alignment import Alignment
from hardware.sound.card import SoundCard
from hardware.sound.devices import Device
from hardware.sound.driver import Latency, Plan
from hardware.sound.dropouts import LATENCIES_S, Dropouts
from hardware.sound.errors import SoundError
from hardware.sound.notices import DeviceLoss, DevicesReady, MoreLatency, SoundNotice
from hardware.sound.ring import SampleBlock
from pipeline.audio import LISTEN_RATE, Resampler, to_float
from pipeline.echo.canceller import EchoCanceller
from reachy_voice.testing import in_virtual_time
from tests.support.beside import beside
from tests.support.echo_sound import at_pace, hum, pcm, power_db, room, speechlike, through
from tests.support.scripted_driver import ARRAY, Scene, ScriptedDriver

pytestmark = pytest.mark.quick


async def answer(scene: Scene, seconds: float, dry_at_s: tuple[float, ...]) -> None:
    """Play a sound in which the driver runs dry at these moments."""
    began_s = asyncio.get_running_loop().time()
    scene.card.play(np.full(round(seconds * 16_000), 700, np.int16), 16_000, f"{began_s}")
    for at_s in (*dry_at_s, seconds):
        await asyncio.sleep(began_s + at_s - asyncio.get_running_loop().time())
        scene.driver.runs_dry = at_s < seconds


@in_virtual_time
async def test_more_latency_is_set_and_reported_after_the_answer() -> None:
    scene = Scene(ScriptedDriver(ARRAY))

    async with scene.running():
        await answer(scene, 8, (1, 3, 5))
        assert scene.driver.latencies_s == [LATENCIES_S[0]]
        await asyncio.sleep(2)
        assert scene.driver.latencies_s == list(LATENCIES_S[:2])
        blocks = len(scene.blocks)
        await answer(scene, 2, ())
        assert len(scene.blocks) - blocks == pytest.approx(200, abs=2)
        await asyncio.sleep(1)
    assert scene.notices[1:] == [MoreLatency(ARRAY.name, LATENCIES_S[1])]
    assert sum(block.lost_samples for block in scene.blocks) == 0
    steps = np.diff([block.captured_at for block in scene.blocks])
    assert np.allclose(steps, 0.010, atol=1e-3)
    played = np.concatenate([block.reference for block in scene.blocks])
    assert np.count_nonzero(played) == 10 * 16_000
    assert [b.reference_moved for b in scene.blocks if b.reference_moved is not None] == [0]


@in_virtual_time
async def test_a_loudspeaker_that_cannot_be_reopened_is_lost_and_found_again() -> None:
    scene = Scene(ScriptedDriver(ARRAY))
    scene.driver.no_speaker = SoundError("It is busy", why="by another")

    async with scene.running():
        await answer(scene, 6, (1, 3, 5))
        await asyncio.sleep(3)
    assert scene.notices[1] == DeviceLoss(ARRAY.name, "It is busy: by another")
    assert isinstance(scene.notices[-1], DevicesReady)
    assert scene.driver.latencies_s == list(LATENCIES_S[:2])


def test_inaudible_and_rare_underruns_change_nothing() -> None:
    dropouts = Dropouts()
    for now_s in range(20):
        dropouts.note(now_s, False, now_s)
    for burst in range(50):
        dropouts.note(20 + burst, True, 30 + burst * 0.01)
    for seldom in range(10):
        dropouts.note(100 + seldom, True, 40 + 11.0 * seldom)
    assert not dropouts.needs_more
    dropouts.note(200, True, 140.0)
    dropouts.note(201, True, 141.1)
    assert dropouts.needs_more


# --- A program that is held up, while its drivers bring sound all the same; on a real clock ----


LAPTOP = Device(0, "Laptop", 1, 1, 16_000, default_input=True, default_output=True)


class ThreadedDriver:
    """Two streams that tick every 5 ms in a thread, except while ``held`` is set."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    async def devices(self) -> Sequence[Device]:
        return [LAPTOP]

    async def open(self, plan: Plan) -> Latency:
        self._ended.clear()
        self._thread = threading.Thread(target=self._tick, args=(plan,))
        self._thread.start()
        return Latency(0.01, 0.01)

    async def close(self) -> bool:
        self._ended.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        return True

    def end(self) -> None:
        pass

    def _tick(self, plan: Plan) -> None:
        while not self._ended.wait(0.005):
            if not self.held.is_set():
                now_s = time.monotonic()
                plan.on_asked(80, now_s + 0.015, now_s, False)
                plan.on_heard(np.ones(80, np.int16), now_s - 0.015, now_s, False)


@pytest.mark.machine  # 2 s of real time
@pytest.mark.parametrize("driver_too", [False, True])
async def test_a_blocked_program_loses_no_device(driver_too: bool) -> None:
    notices: list[SoundNotice] = []
    driver = ThreadedDriver()
    card = SoundCard(Sound(), notices.append, driver)
    async with beside(card.run()):
        await asyncio.sleep(0.3)
        if driver_too:
            driver.held.set()
            threading.Timer(1.4, driver.held.clear).start()
        time.sleep(1.3)  # noqa: ASYNC251 - the loop is what is held up
        await asyncio.sleep(0.5)
    assert not [notice for notice in notices if isinstance(notice, DeviceLoss)]


# --- the echo canceller on what the alignment delivers, with two clocks ------------------------


STEP = 160


@pytest.mark.machine  # 50 s of sound in steps of 10 ms
@pytest.mark.parametrize(
    ("ppm", "microphone_hz", "speaker_hz"),
    [(100.0, 16_000, 16_000), (-100.0, 44_100, 44_100), (-100.0, 44_100, 48_000)],
)
def test_clocks_that_differ_are_followed(ppm: float, microphone_hz: int, speaker_hz: int) -> None:
    """Answers of 8 s, pauses of 2 s; timestamps are wrong by up to 1 ms."""
    rng = np.random.default_rng(17)
    pause = np.zeros(2 * LISTEN_RATE, np.float32)
    sound = np.concatenate([part for seed in range(5) for part in (speechlike(8, seed), pause)])
    played = pcm(0.5 * sound)
    heard = pcm(at_pace(through(to_float(played), room(20, 3)), ppm) + hum(len(played), 4))
    alignment, canceller = Alignment(microphone_hz, speaker_hz), EchoCanceller()
    blocks, left = [], []
    out = Resampler(LISTEN_RATE, speaker_hz).feed(played)
    in_ = Resampler(LISTEN_RATE, microphone_hz).feed(heard)
    for step in range(len(played) // STEP - 1):
        begin, end = step * speaker_hz // 100, (step + 1) * speaker_hz // 100
        early, late = rng.uniform(-0.001, 0.001, 2)
        alignment.played(SampleBlock(out[begin:end], begin, begin / speaker_hz + early))
        begin, end = step * microphone_hz // 100, (step + 1) * microphone_hz // 100
        mic_s = begin * (1 + ppm * 1e-6) / microphone_hz
        for block in alignment.heard(SampleBlock(in_[begin:end], begin, mic_s + late)):
            if block.reference_moved is not None:
                canceller.realign(block.reference_moved)
            blocks.append(block)
            left.append(canceller.process(block.pcm, block.reference).residual)
    assert sum(block.lost_samples for block in blocks) == 0
    assert canceller.ppm == pytest.approx(ppm, abs=4)
    last = slice(-900, -300)
    echo = to_float(np.concatenate([block.pcm for block in blocks[last]]))
    assert power_db(to_float(np.concatenate(left[last]))) < power_db(echo) - 18
