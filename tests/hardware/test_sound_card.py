"""The sound card over a scripted driver, in virtual time."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from hardware.sound.devices import Device
from hardware.sound.driver import Latency
from hardware.sound.errors import RateRefused, SoundError, not_opened
from hardware.sound.notices import AllZero, DeviceLoss, DevicesReady, SampleLoss
from reachy_voice.testing import in_virtual_time, run_virtual
from tests.support.scripted_driver import ARRAY, LAPTOP, Scene, ScriptedDriver

pytestmark = pytest.mark.quick


@in_virtual_time
async def test_it_delivers_microphone_and_playback_together() -> None:
    scene = Scene(ScriptedDriver(ARRAY))

    async with scene.running():
        scene.card.play(np.full(16_000, 700, np.int16), 16_000, "a")
        await asyncio.sleep(0.5)
        assert scene.card.heard_s("a") == pytest.approx(0.485, abs=0.006)
        state = scene.card.state()
        assert (state.microphone_hz, state.latency) == (16_000, Latency(0.01, 0.01))
        await asyncio.sleep(1)
    assert scene.card.heard_s("a") == pytest.approx(1.0)
    assert scene.notices == [DevicesReady(ARRAY.name, ARRAY.name, 16_000)]
    heard, noise = np.concatenate([each.pcm for each in scene.blocks]), np.random.default_rng(1)
    sent = [noise.integers(1, 5, 80) for _ in range(len(heard) // 80)]
    assert np.array_equal(heard, 100 * np.concatenate(sent))
    played = np.concatenate([block.reference for block in scene.blocks])
    assert np.count_nonzero(played == 700) == 16_000
    assert sum(block.lost_samples for block in scene.blocks) == 0
    assert len(scene.blocks) == pytest.approx(250, abs=4)
    assert scene.driver.ended


@in_virtual_time
async def test_rates_are_tried_until_one_is_taken() -> None:
    scene = Scene(ScriptedDriver(LAPTOP))
    scene.driver.refused = [
        RateRefused("microphone", "Laptop", 48_000),
        RateRefused("loudspeaker", "Laptop", 48_000),
    ]

    async with scene.running():
        pass
    assert scene.driver.opened == [("Laptop", "Laptop", 44_100, 44_100)]


@pytest.mark.parametrize(
    ("microphone_hz", "speaker_hz", "rate_hz"),
    [
        (44_100, 48_000, None),
        (48_000, 44_100, None),
        (8_000, 96_000, None),
        (44_100, 48_000, 44_100),
        (44_100, 48_000, 48_000),
        (44_100, 48_000, 24_000),
    ],
)
@in_virtual_time
async def test_each_device_is_opened_at_the_rate_it_takes(
    microphone_hz: int, speaker_hz: int, rate_hz: int | None
) -> None:
    microphone = Device(0, "Webcam", 1, 0, microphone_hz, default_input=True)
    speaker = Device(1, "HDMI", 0, 2, speaker_hz, default_output=True)
    scene = Scene(ScriptedDriver(microphone, speaker), rate_hz=rate_hz)
    scene.driver.rates_hz = {"microphone": microphone_hz, "loudspeaker": speaker_hz}

    async with scene.running():
        scene.card.play(np.full(16_000, 700, np.int16), 16_000, "a")
        await asyncio.sleep(2)
        assert scene.card.heard_s("a") == pytest.approx(1.0)
    assert scene.driver.opened == [("Webcam", "HDMI", microphone_hz, speaker_hz)]
    played = np.concatenate([block.reference for block in scene.blocks])
    assert np.count_nonzero(played > 350) == pytest.approx(16_000, abs=40)
    assert len(scene.blocks) == pytest.approx(300, abs=8)


@pytest.mark.parametrize(
    ("sound", "refused", "rates_hz", "says"),
    [
        ({"microphone": "Yeti"}, [], {}, "no microphone called 'Yeti'"),
        ({}, [not_opened("microphone", "Laptop", "busy")], {}, "cannot be opened: busy"),
        ({}, [], {"microphone": 5_000}, "Laptop takes no usual number of samples per second"),
        ({"rate_hz": 24_000}, [], {"loudspeaker": 5_000}, "loudspeaker Laptop takes no usual"),
    ],
)
def test_a_device_that_cannot_be_opened_at_the_start_is_an_error(
    sound: dict[str, object], refused: list[SoundError], rates_hz: dict[str, int], says: str
) -> None:
    scene = Scene(ScriptedDriver(LAPTOP), **sound)
    scene.driver.refused, scene.driver.rates_hz = list(refused), rates_hz
    with pytest.raises(SoundError, match=says):
        run_virtual(scene.card.run())


@in_virtual_time
async def test_unplug_and_replug() -> None:
    """Only the same device, even under another number, is found again, with back-off."""
    scene = Scene(ScriptedDriver(ARRAY, LAPTOP))
    again = Device(4, "Reachy Mini Audio: USB Audio (hw:2,0)", 2, 2, 16_000)

    async with scene.running():
        scene.card.play(np.full(160_000, 700, np.int16), 16_000, "a")
        await asyncio.sleep(1)
        scene.driver.unplug("microphone", LAPTOP)
        await asyncio.sleep(2)
        assert scene.card.heard_s("a") == pytest.approx(0.985, abs=0.01)
        assert scene.card.state().latency is None
        scene.card.play(np.full(1600, 700, np.int16), 16_000, "b")
        scene.driver.there = [LAPTOP, again]
        await asyncio.sleep(5)
        scene.card.play(np.full(1600, 700, np.int16), 16_000, "c")
        await asyncio.sleep(1)
        assert scene.card.heard_s("a") == pytest.approx(0.985, abs=0.01)
        assert scene.card.heard_s("c") == pytest.approx(0.1)
    assert scene.notices == [
        DevicesReady(ARRAY.name, ARRAY.name, 16_000),
        DeviceLoss(ARRAY.name, "its stream has ended"),
        DevicesReady(again.name, again.name, 16_000),
    ]
    assert {name for name, *_ in scene.driver.opened} == {ARRAY.name, again.name}
    lost = [block for block in scene.blocks if block.lost_samples]
    assert len(lost) == 1
    assert lost[0].lost_samples == pytest.approx(3.5 * 16_000, abs=400)
    assert lost[0].reference_moved == 0


@in_virtual_time
async def test_back_off_ends_at_five_seconds_and_survives_failures() -> None:
    scene = Scene(ScriptedDriver(ARRAY))

    async with scene.running():
        scene.driver.unplug("loudspeaker", ARRAY)
        scene.driver.looked_s = [asyncio.get_running_loop().time()]
        scene.driver.hangs = 2
        scene.driver.refused = [
            not_opened("microphone", ARRAY.name, "it is busy") for _ in range(4)
        ]
        await asyncio.sleep(40)
    waits = np.diff(scene.driver.looked_s)
    assert waits == pytest.approx([0.5, 1, 2, 4, 5, 5, 5], abs=0.1)
    assert isinstance(scene.notices[-1], DevicesReady)


@pytest.mark.parametrize("which", ["microphone", "loudspeaker"])
@in_virtual_time
async def test_a_driver_that_falls_silent_is_lost_within_a_second_and_a_bit(which: str) -> None:
    scene = Scene(ScriptedDriver(ARRAY))

    async with scene.running():
        if which == "microphone":
            scene.driver.mic_stalls = True
        else:
            scene.driver.speaker_stalls = True
        await asyncio.sleep(1.1)
        assert isinstance(scene.notices[1], DeviceLoss)
        scene.driver.mic_stalls = scene.driver.speaker_stalls = False
        await asyncio.sleep(1)
    assert [type(notice) for notice in scene.notices] == [DevicesReady, DeviceLoss, DevicesReady]


@in_virtual_time
async def test_a_driver_that_never_begins_is_given_five_seconds() -> None:
    scene = Scene(ScriptedDriver(ARRAY))
    scene.driver.mic_stalls = True

    async with scene.running():
        await asyncio.sleep(3.9)
        assert len(scene.notices) == 1
        await asyncio.sleep(0.2)
        assert isinstance(scene.notices[1], DeviceLoss)


@in_virtual_time
async def test_a_driver_that_never_comes_back_ends_the_card_with_a_reason() -> None:
    scene = Scene(ScriptedDriver(ARRAY))

    running = asyncio.create_task(scene.card.run())
    await asyncio.sleep(1)
    scene.driver.close_hangs = True
    scene.driver.hangs = 100
    scene.driver.unplug("microphone", ARRAY)
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(SoundError, match="does not answer"):
        await running
    assert 30 < asyncio.get_running_loop().time() - began_s < 45


@in_virtual_time
async def test_a_silent_microphone_and_its_recovery_are_each_reported_once() -> None:
    scene = Scene(ScriptedDriver(ARRAY))

    async with scene.running():
        scene.driver.level = 0
        for more_s in (2.1, 6):
            await asyncio.sleep(more_s)
            assert scene.notices[1:] == [AllZero()]
        scene.driver.level = 5
        for more_s in (0.1, 2):
            await asyncio.sleep(more_s)
            assert scene.notices[1:] == [AllZero(), AllZero(over=True)]


@in_virtual_time
async def test_a_microphone_that_comes_back_silent_is_reported_again() -> None:
    scene = Scene(ScriptedDriver(ARRAY))

    async with scene.running():
        scene.driver.level = 0
        await asyncio.sleep(3)
        scene.driver.unplug("microphone")
        await asyncio.sleep(1)
        scene.driver.there = [ARRAY]
        await asyncio.sleep(5)
    assert scene.notices[1:] == [
        AllZero(),
        DeviceLoss(ARRAY.name, "its stream has ended"),
        DevicesReady(ARRAY.name, ARRAY.name, 16_000),
        AllZero(),
    ]


@in_virtual_time
async def test_a_late_reader_loses_the_oldest_blocks_and_gets_a_notice() -> None:
    scene = Scene(ScriptedDriver(ARRAY))

    async with scene.running(reads=False):
        await asyncio.sleep(4)
        async for block in scene.card.blocks():
            scene.blocks.append(block)
            if len(scene.blocks) == 250:
                break
    dropped = [notice.samples for notice in scene.notices if isinstance(notice, SampleLoss)]
    assert len(dropped) == 1
    assert scene.blocks[0].lost_samples == dropped[0] == pytest.approx(3 * 16_000, abs=800)
    assert scene.blocks[0].reference_moved == 0
    assert all(block.lost_samples == 0 for block in scene.blocks[1:])


@in_virtual_time
async def test_audio_before_the_first_reader_is_not_counted_as_lost() -> None:
    scene = Scene(ScriptedDriver(ARRAY))

    async with scene.running(reads=False):
        await asyncio.sleep(4)
        scene.card.forget()
        async for block in scene.card.blocks():
            assert block.lost_samples == 0
            assert block.captured_at > asyncio.get_running_loop().time() - 0.1
            break
    assert not [notice for notice in scene.notices if isinstance(notice, SampleLoss)]


@in_virtual_time
async def test_flush_and_duck_reach_the_loudspeaker() -> None:
    scene = Scene(ScriptedDriver(ARRAY), volume=0.5)

    async with scene.running():
        scene.card.play(np.full(16_000, 8000, np.int16), 16_000, "a")
        await asyncio.sleep(0.1)
        scene.card.duck(6.02)
        await asyncio.sleep(0.1)
        scene.card.flush()
        await asyncio.sleep(0.1)
    given = np.concatenate(scene.driver.given)
    loud = np.flatnonzero(given)
    assert loud[-1] - loud[0] == pytest.approx(0.2 * 16_000, abs=260)
    assert given[loud[0]] == 4000
    assert given[loud[-1] - 400] == pytest.approx(2000, abs=2)
