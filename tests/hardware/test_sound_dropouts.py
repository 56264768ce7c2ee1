"""A loudspeaker that runs dry again and again gets more latency, while it is silent."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from hardware.sound.dropouts import LATENCIES_S, Dropouts
from hardware.sound.errors import SoundError
from hardware.sound.notices import Lost, MoreLatency, Opened
from tests.support.scripted_driver import ARRAY, Scene, ScriptedDriver
from tests.support.virtual_time import in_virtual_time


async def answer(scene: Scene, seconds: float, dry_at_s: tuple[float, ...]) -> None:
    """Play something, in which the driver runs dry at these moments."""
    began_s = asyncio.get_running_loop().time()
    scene.card.play(np.full(round(seconds * 16_000), 700, np.int16), 16_000, f"{began_s}")
    for at_s in (*dry_at_s, seconds):
        await asyncio.sleep(began_s + at_s - asyncio.get_running_loop().time())
        scene.driver.runs_dry = at_s < seconds


@in_virtual_time
async def test_it_waits_for_the_end_of_the_answer_and_says_so() -> None:
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
    played = np.concatenate([block.played for block in scene.blocks])
    assert np.count_nonzero(played) == 10 * 16_000
    assert [b.reference_moved for b in scene.blocks if b.reference_moved is not None] == [0]


@in_virtual_time
async def test_a_loudspeaker_that_cannot_be_opened_anew_is_lost_and_found_again() -> None:
    scene = Scene(ScriptedDriver(ARRAY))
    scene.driver.no_speaker = SoundError("It is busy", why="by another")

    async with scene.running():
        await answer(scene, 6, (1, 3, 5))
        await asyncio.sleep(3)
    assert scene.notices[1] == Lost(ARRAY.name, "It is busy: by another")
    assert isinstance(scene.notices[-1], Opened)
    assert scene.driver.latencies_s == list(LATENCIES_S[:2])


def test_inaudible_and_rare_underruns_change_nothing() -> None:
    dropouts = Dropouts()
    for now_s in range(20):
        dropouts.note(now_s, False, now_s)
    for burst in range(50):
        dropouts.note(20 + burst, True, 30 + burst * 0.01)
    for seldom in range(10):
        dropouts.note(100 + seldom, True, 40 + 11.0 * seldom)
    assert not dropouts.due
    dropouts.note(200, True, 140.0)
    dropouts.note(201, True, 141.1)
    assert dropouts.due
