"""The driver's thread, PortAudio's absence, and what a chirp says."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from hardware.sound import portaudio
from hardware.sound.driver_thread import DriverThread
from hardware.sound.errors import SoundError
from hardware.sound.loopback import chirp, find_echo, lost_start_s
from pipeline.audio import LISTEN_RATE, Pcm


async def test_a_call_that_hangs_is_left_behind_and_the_next_waits_for_it() -> None:
    thread, release = DriverThread("test"), threading.Event()
    with pytest.raises(TimeoutError):
        await thread.call(release.wait, 0.01)
    with pytest.raises(TimeoutError):
        await thread.call(lambda: 1, 0.01)
    release.set()
    assert await thread.call(lambda: 2, 5) == 2
    thread.end()


async def test_a_cancelled_call_still_runs_to_its_end() -> None:
    thread, release = DriverThread("test"), threading.Event()
    done: list[int] = []

    def work() -> None:
        release.wait()
        done.append(1)

    call = asyncio.ensure_future(thread.call(work, 5))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    release.set()
    assert await thread.call(lambda: list(done), 5) == [1]
    thread.end()


async def test_a_hanging_close_is_reported_and_delays_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(portaudio, "_CLOSE_S", 0.01)
    release = threading.Event()
    driver = portaudio.PortAudio()
    driver._streams = [SimpleNamespace(abort=lambda **_: release.wait(), close=lambda: None)]
    assert not await driver.close()
    assert not await driver.close()
    os.write(2, b"a line without end")
    release.set()
    monkeypatch.setattr(portaudio, "_CLOSE_S", 5)
    assert await driver.close()
    os.write(2, b"heard again")
    assert capfd.readouterr().err == "heard again"
    driver.end()


async def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    driver = portaudio.PortAudio()
    with pytest.raises(SoundError) as caught:
        await driver.devices()
    driver.end()
    assert "sudo apt install libportaudio2" in caught.value.fix


def _heard(delay: int, gain: float, noise: float) -> Pcm:
    rng = np.random.default_rng(4)
    heard = rng.normal(0, noise, 8000 + 9600)
    heard[delay : delay + 8000] += chirp() * gain
    return heard.astype(np.int16)


@pytest.mark.parametrize("loss_db", [6, 20, 30])
def test_an_echo_in_noise_is_found_and_measured(loss_db: int) -> None:
    echo = find_echo(chirp(), _heard(700, 10 ** (-loss_db / 20), 50), noise_power=2500)
    assert echo is not None
    assert echo.delay_samples == 700
    assert echo.return_loss_db == pytest.approx(loss_db, abs=0.5)


@pytest.mark.parametrize("noise", [0.0, 300.0])
def test_where_nothing_comes_back_there_is_no_echo(noise: float) -> None:
    assert find_echo(chirp(), _heard(0, 0.0, noise), noise_power=noise**2) is None


@pytest.mark.parametrize("lost", [0.0, 0.1, 0.3, 0.5])
def test_the_beginning_that_a_sleeping_loudspeaker_loses_is_measured(lost: float) -> None:
    rng = np.random.default_rng(1)

    def heard(missing_s: float) -> np.ndarray:
        echo = chirp() * 0.1
        echo[: round(missing_s * LISTEN_RATE)] = 0
        return np.rint(echo + rng.normal(0, 20, len(echo))).astype(np.int16)

    assert lost_start_s(heard(lost), heard(0.0)) == pytest.approx(lost, abs=0.021)
