"""The driver's thread, a missing PortAudio, its output, and parts that need no device."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.sound import portaudio
from hardware.sound.clock import StreamClock
from hardware.sound.devices import Device
from hardware.sound.driver import Plan
from hardware.sound.driver_thread import DriverThread
from hardware.sound.errors import SoundError
from hardware.sound.loopback import chirp, find_echo, lost_start_s
from hardware.sound.microphone import LifeSigns, Zeros
from hardware.sound.notices import AllZero, Lifeless
from hardware.sound.ring import Ring, SampleBlock
from hardware.sound.stderr import quiet_stderr
from pipeline.audio import LISTEN_RATE, Pcm

pytestmark = pytest.mark.quick


async def test_a_hanging_call_is_abandoned_and_the_next_waits_for_it() -> None:
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


class Refusal(Exception):
    pass


def refuse() -> None:
    raise Refusal("Error initializing PortAudio: Unanticipated host error")


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (None, "sudo apt install libportaudio2"),
        (
            SimpleNamespace(
                PortAudioError=Refusal,
                _exit_handler=None,
                _terminate=lambda: None,
                _initialize=refuse,
            ),
            "Unanticipated host error",
        ),
    ],
)
async def test_a_sound_system_that_does_not_start_is_an_error_with_advice(
    monkeypatch: pytest.MonkeyPatch, module: object, says: str
) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    driver = portaudio.PortAudio()
    with pytest.raises(SoundError) as caught:
        await driver.devices()
    driver.end()
    assert says in caught.value.why + caught.value.fix


class FewChannels:
    """A ``sounddevice`` whose microphone and loudspeaker accept only these channel counts."""

    PortAudioError, _exit_handler = Refusal, None

    def __init__(self, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        self.check_input_settings = partial(self._check, inputs)
        self.check_output_settings = partial(self._check, outputs)
        self.RawInputStream = partial(self._stream, inputs)
        self.RawOutputStream = partial(self._stream, outputs)
        self.opened: list[tuple[int, Callable[..., None]]] = []

    def _check(self, takes: tuple[int, ...], device: int, channels: int, **_: object) -> None:
        if channels not in takes:
            raise Refusal("Invalid number of channels", -9998)

    def _stream(
        self, takes: tuple[int, ...], channels: int, callback: Callable[..., None], **_: object
    ) -> SimpleNamespace:
        self._check(takes, 0, channels)
        self.opened.append((channels, callback))
        calls = dict.fromkeys(("start", "abort", "close"), lambda **_: None)
        return SimpleNamespace(time=0.0, latency=0.01, **calls)


@pytest.mark.parametrize(
    ("inputs", "outputs", "channel", "opened"),
    [
        ((1, 2), (1, 2), 1, (1, 1)),
        ((2,), (2,), 1, (2, 2)),
        ((2,), (8,), 2, (2, 8)),
        ((2, 6), (2, 8), 1, (2, 2)),
        ((2, 6), (1,), 3, (6, 1)),
        ((2,), (3,), 1, "loudspeaker Laptop cannot be opened: Invalid number of channels"),
    ],
)
async def test_a_device_is_opened_with_as_many_channels_as_it_takes(
    monkeypatch: pytest.MonkeyPatch,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    channel: int,
    opened: tuple[int, int] | str,
) -> None:
    module, heard = FewChannels(inputs, outputs), list[Pcm]()
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    both = Device(0, "Laptop", max(inputs), 8, 48_000)
    plan = Plan(
        *(both, channel, 48_000, both, 48_000, 0.01),
        on_heard=lambda pcm, *_: heard.append(pcm),
        on_asked=lambda frames, *_: np.arange(frames, dtype=np.int16),
        on_ended=lambda role: None,
    )
    driver = portaudio.PortAudio()
    if isinstance(opened, str):
        with pytest.raises(SoundError, match=opened):
            await driver.open(plan)
        assert await driver.rates(both) == ()
    else:
        await driver.open(plan)
        assert 48_000 in await driver.rates(both)
        (hears, on_input), (plays, on_output) = module.opened
        assert (hears, plays) == opened
        times = SimpleNamespace(inputBufferAdcTime=0.0, outputBufferDacTime=0.0)
        flags = SimpleNamespace(input_overflow=False, output_underflow=False)
        on_input(np.tile(np.arange(1, hears + 1, dtype=np.int16), 3).tobytes(), 3, times, flags)
        assert [pcm.tolist() for pcm in heard] == [[channel] * 3]
        out = bytearray(2 * plays * 3)
        on_output(out, 3, times, flags)
        assert np.frombuffer(out, np.int16).tolist() == [n for n in range(3) for _ in range(plays)]
    driver.end()


def _heard(delay: int, gain: float, noise: float) -> Pcm:
    rng = np.random.default_rng(4)
    heard = rng.normal(0, noise, 8000 + 9600)
    heard[delay : delay + 8000] += chirp() * gain
    return heard.astype(np.int16)


@pytest.mark.parametrize("offset", [0, 2000])
@pytest.mark.parametrize("loss_db", [6, 20, 30])
def test_an_echo_in_noise_is_found_and_measured(loss_db: int, offset: int) -> None:
    """Some sound cards add a constant."""
    heard = _heard(700, 10 ** (-loss_db / 20), 50) + np.int16(offset)
    echo = find_echo(chirp(), heard, noise_power=2500)
    assert echo is not None
    assert echo.delay_samples == 700
    assert echo.return_loss_db == pytest.approx(loss_db, abs=0.5)


@pytest.mark.parametrize("noise", [0.0, 300.0])
def test_silence_is_no_echo(noise: float) -> None:
    assert find_echo(chirp(), _heard(0, 0.0, noise), noise_power=noise**2) is None


@pytest.mark.parametrize("offset", [0, 2000])
@pytest.mark.parametrize("lost", [0.0, 0.1, 0.3, 0.5])
def test_the_beginning_that_a_sleeping_loudspeaker_loses_is_measured(
    lost: float, offset: int
) -> None:
    rng = np.random.default_rng(1)

    def heard(missing_s: float) -> np.ndarray:
        echo = chirp() * 0.1
        echo[: round(missing_s * LISTEN_RATE)] = 0
        return np.rint(echo + offset + rng.normal(0, 20, len(echo))).astype(np.int16)

    assert lost_start_s(heard(lost), heard(0.0)) == pytest.approx(lost, abs=0.021)


# --- stderr, while PortAudio writes there ------------------------------------------------------


def test_stderr_opens_after_its_last_holder(capfd: pytest.CaptureFixture[str]) -> None:
    first, second = quiet_stderr(), quiet_stderr()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    os.write(2, b"still shut")
    second.__exit__(None, None, None)
    os.write(2, b"open")
    assert capfd.readouterr().err == "open"


async def test_stderr_opens_after_a_driver_hung_while_opening(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Opening still holds stderr shut when closing is given up; both return later, in order."""
    monkeypatch.setattr(portaudio, "_CLOSE_S", 0.01)
    release = threading.Event()
    driver = portaudio.PortAudio()

    def open_streams() -> None:
        with quiet_stderr():
            release.wait()

    with pytest.raises(TimeoutError):
        await driver._thread.call(open_streams, 0.01)
    assert not await driver.close()
    release.set()
    monkeypatch.setattr(portaudio, "_CLOSE_S", 5)
    assert await driver.close()
    driver.end()
    os.write(2, b"heard again")
    assert capfd.readouterr().err == "heard again"


_FLOOD = """
import asyncio, os, sys, threading
from types import SimpleNamespace
from hardware.sound import portaudio

def spin(**_):
    while True:
        os.write(2, b"Expression 'poll' failed in 'pa_linux_alsa.c'\\n")

async def main():
    portaudio._CLOSE_S = 0.1
    driver = portaudio.PortAudio()
    driver._streams = [SimpleNamespace(abort=spin, close=lambda: None)]
    assert not await driver.close()
    driver.end()

asyncio.run(main())
print("The driver does not answer", file=sys.stderr)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def test_endless_output_does_not_hide_the_error() -> None:
    done = run(_FLOOD)
    assert done.returncode == 0
    # Output from before stderr is shut is there; later only a line that waited for the pipe.
    assert "The driver does not answer" in done.stderr.splitlines()[-2:]
    assert done.stdout == ""


def test_a_program_without_stderr_runs_too() -> None:
    code = "import os; os.close(2)\nfrom hardware.sound.stderr import quiet_stderr\n"
    code += "with quiet_stderr(): pass\nprint('fine')"
    assert run(code).stdout == "fine\n"


# --- the ring, the clock, the microphone's side ------------------------------------------------


@given(st.lists(st.one_of(st.integers(1, 50), st.just(0)), max_size=60), st.integers(50, 200))
def test_a_ring_keeps_the_newest_and_counts_the_rest(steps: list[int], capacity: int) -> None:
    """0: take one."""
    ring = Ring(capacity)
    put = taken = 0
    due = 0
    for step in steps:
        if step:
            ring.put(SampleBlock(np.arange(put, put + step).astype(np.int16), put, 0.0))
            put += step
        elif (piece := ring.take()) is not None:
            assert piece.first >= due
            due = piece.first + len(piece.pcm)
            taken += len(piece.pcm)
    rest = 0
    while (piece := ring.take()) is not None:
        rest += len(piece.pcm)
    assert rest <= capacity
    assert put == taken + rest + ring.dropped_samples


def _stamps(clock: StreamClock, ppm: float, noise_s: float, seconds: float) -> None:
    rng = np.random.default_rng(5)
    rate = 16_000 * (1 + ppm * 1e-6)
    for first in range(0, round(seconds * 16_000), 80):
        jump = clock.look(first, 100 + first / rate + float(rng.normal(0, noise_s)))
        assert jump == 0


@pytest.mark.parametrize("ppm", [-150.0, 0.0, 80.0])
def test_a_clock_follows_noisy_stamps(ppm: float) -> None:
    clock = StreamClock(16_000)
    _stamps(clock, ppm, 0.0005, 60)
    true_s = 100 + 960_000 / (16_000 * (1 + ppm * 1e-6))
    assert clock.time_of(960_000) == pytest.approx(true_s, abs=0.0005)
    assert clock.number_at(true_s) == pytest.approx(960_000, abs=8)


def test_a_small_step_without_an_xrun_is_followed_slowly() -> None:
    clock = StreamClock(16_000)
    _stamps(clock, 0, 0, 2)
    for first in range(32_000, 160_000, 80):
        assert clock.look(first, 100 + first / 16_000 + 0.005) == 0
    assert clock.time_of(160_000) == pytest.approx(110.005, abs=0.001)


RATE_HZ = 48_000
_RNG = np.random.default_rng(1)


def noise(rms: float) -> np.ndarray:
    return np.rint(_RNG.normal(0, rms, 10 * RATE_HZ))


def bursts(between: float | np.ndarray) -> np.ndarray:
    """Bursts of 3 ms of noise every 0.4 s."""
    at = np.arange(10 * RATE_HZ) % (RATE_HZ * 2 // 5) < RATE_HZ * 3 // 1000
    return np.where(at, noise(800), between)


DITHER = _RNG.integers(0, 2, 10 * RATE_HZ)
LIFELESS = {
    "bursts among zeros": bursts(0),
    "bursts among dither": bursts(DITHER),
    "a constant": np.full(10 * RATE_HZ, -37),
    "a constant with a click": np.where(np.arange(10 * RATE_HZ) % 12_000 == 5, 90, 12),
    "one bit of dither": DITHER,
    "dither on a constant": DITHER + 411,
    "two bits": DITHER - _RNG.integers(0, 2, 10 * RATE_HZ),
    "one block of noise": np.resize(noise(30)[: RATE_HZ // 100], 10 * RATE_HZ),
    "a stuck ring": np.resize(noise(30)[:9_601], 10 * RATE_HZ),
}


@pytest.mark.parametrize("name", LIFELESS)
def test_a_nearly_silent_microphone_and_its_recovery_are_noticed(
    name: str,
) -> None:
    signs, block = LifeSigns(RATE_HZ), RATE_HZ // 100
    sound = np.concatenate((LIFELESS[name], noise(3))).astype(np.int16)
    notices = [
        (at / RATE_HZ, notice)
        for at in range(0, len(sound), block)
        if (notice := signs.feed(sound[at : at + block])) is not None
    ]
    assert [notice for _, notice in notices] == [Lifeless(), Lifeless(over=True)]
    assert notices[0][0] < 10 < notices[1][0] < 11


@pytest.mark.parametrize("sound", [noise(0.6), noise(3), noise(0.6) + 500, bursts(noise(1))])
def test_a_quiet_room_is_alive(sound: np.ndarray) -> None:
    signs, zeros = LifeSigns(RATE_HZ), Zeros()
    assert signs.feed(sound.astype(np.int16)) is None
    assert zeros.feed(sound.astype(np.int16)) is None


def test_a_noise_gate_is_reported_ever_more_rarely() -> None:
    signs, zeros = LifeSigns(LISTEN_RATE), Zeros()
    second = noise(30).astype(np.int16)[:LISTEN_RATE]
    notices: list[object] = []
    for _ in range(20):
        for piece in (second, *[np.zeros(LISTEN_RATE, np.int16)] * 12):
            notices += [notice for notice in (signs.feed(piece), zeros.feed(piece)) if notice]
    counts = [sum(isinstance(each, kind) for each in notices) for kind in (AllZero, Lifeless)]
    assert counts == [6, 4], "after 2, 4 and 8 s; after 5 and 10 s"
