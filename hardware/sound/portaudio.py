"""PortAudio, through sounddevice: the only file that uses it.

Two streams, even if microphone and loudspeaker are one device: PortAudio's full-duplex stream on
ALSA waits for both sides at once, and over the PulseAudio plug-in it often never starts
(``docs/sound.md``). ``hardware/sound/alignment.py`` aligns the two.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np

from hardware.sound.devices import RATES_HZ, Device, whole_names
from hardware.sound.driver import Latency, Plan
from hardware.sound.driver_thread import DriverThread
from hardware.sound.errors import (
    RateRefused,
    driver_hangs,
    no_portaudio,
    no_sound_system,
    not_opened,
)
from hardware.sound.stderr import quiet_stderr, stderr_is_flooded

T = TypeVar("T")

BLOCK_MS = 5
HEARD_LATENCY_S = 0.010
_PATIENCE_S = 5.0
"""An idle PulseAudio sink takes 1.7 s to start; USB devices enumerate within one."""
_CLOSE_S = 2.0
_BAD_RATE, _BAD_CHANNELS = -9997, -9998
"""PortAudio's paInvalidSampleRate and paInvalidChannelCount."""


class PortAudio:
    """The machine's sound devices. One instance at a time: the library is global to the process."""

    def __init__(self) -> None:
        self._thread = DriverThread("portaudio")
        self._streams: list[Any] = []
        self._quiet = contextlib.ExitStack()
        """Keeps stderr closed while the driver hangs."""
        self._hangs = False

    async def devices(self) -> Sequence[Device]:
        return await self._call(self._look, "the sound system")

    async def open(self, plan: Plan) -> Latency:
        return await self._call(partial(self._open, plan), plan.microphone.name)

    async def reopen_speaker(self, plan: Plan) -> Latency:
        return await self._call(partial(self._reopen_speaker, plan), plan.speaker.name)

    async def rates(self, device: Device) -> tuple[int, ...]:
        """The usual rates, in Hz, that the device can be opened with now, as input or output."""
        return await self._call(partial(_rates, device), device.name)

    async def _call(self, work: Callable[[], T], name: str) -> T:
        try:
            return await self._thread.call(work, _PATIENCE_S)
        except TimeoutError:
            raise driver_hangs(name) from None

    async def close(self) -> bool:
        try:
            await self._thread.call(self._close, _CLOSE_S)
        except TimeoutError:
            # A PortAudio thread that spins writes 80 MB a second to stderr.
            if not self._hangs:
                self._hangs = True
                self._quiet.enter_context(quiet_stderr())
            return False
        self._hangs = False
        self._quiet.close()
        return True

    def end(self) -> None:
        """Shut down; no call may follow."""
        if self._hangs:
            stderr_is_flooded()
        self._quiet.close()
        self._thread.end()

    # --- on the thread ----------------------------------------------------------------------------

    def _look(self) -> list[Device]:
        sounddevice = load()
        self._close()
        # PortAudio lists the devices present when it was initialised.
        with contextlib.suppress(sounddevice.PortAudioError):
            sounddevice._terminate()
        try:
            with quiet_stderr():
                sounddevice._initialize()
            return listed(sounddevice)
        except sounddevice.PortAudioError as error:
            raise no_sound_system(_text_of(error)) from error

    def _open(self, plan: Plan) -> Latency:
        self._close()
        try:
            device = plan.microphone
            refusal = RateRefused("microphone", device.name, plan.microphone_hz)
            self._start(partial(_input, plan), plan.channel, device.inputs, refusal)
            return self._start_speaker(plan)
        except BaseException:
            self._close()
            raise

    def _reopen_speaker(self, plan: Plan) -> Latency:
        _end(self._streams.pop())
        return self._start_speaker(plan)

    def _start_speaker(self, plan: Plan) -> Latency:
        refusal = RateRefused("loudspeaker", plan.speaker.name, plan.speaker_hz)
        speaker = self._start(partial(_output, plan), 1, plan.speaker.outputs, refusal)
        return Latency(self._streams[0].latency, speaker.latency)

    def _start(
        self, make: Callable[[int], Any], channels: int, most: int, refusal: RateRefused
    ) -> Any:
        try:
            with quiet_stderr():
                stream = _with_channels(make, channels, most)
                self._streams.append(stream)
                stream.start()
        except load().PortAudioError as error:
            if _code_of(error) == _BAD_RATE:
                raise refusal from error
            raise not_opened(refusal.role, refusal.name, _text_of(error)) from error
        return stream

    def _close(self) -> None:
        streams, self._streams = self._streams, []
        for stream in streams:
            _end(stream)


def load() -> Any:
    """The ``sounddevice`` module. Raises ``SoundError`` if the PortAudio library is missing."""
    try:
        with quiet_stderr():
            import sounddevice
    except (ImportError, OSError) as error:
        raise no_portaudio(str(error)) from error
    except Exception as error:
        # A PortAudioError, which cannot be named here: the import that defines it has failed.
        raise no_sound_system(_text_of(error)) from error
    # Its exit handler would close every stream, and wait for a driver that hangs.
    atexit.unregister(sounddevice._exit_handler)
    _quiet_alsa()
    return sounddevice


@cache
def _quiet_alsa() -> object:
    """Keep ALSA's library from printing every xrun and absent card into a terminal view; those that
    matter arrive as flags and errors."""
    import ctypes

    kind = ctypes.CFUNCTYPE(
        None, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p
    )
    say_nothing = kind(lambda *_: None)
    try:
        ctypes.CDLL("libasound.so.2").snd_lib_error_set_handler(say_nothing)
    except (OSError, AttributeError):
        return None  # No ALSA here.
    return say_nothing  # For the lifetime of the program.


def listed(sounddevice: Any) -> list[Device]:
    """PortAudio's list, with the system's defaults marked."""
    default_input, default_output = sounddevice.default.device
    entries = sounddevice.query_devices()
    names = whole_names([str(entry["name"]) for entry in entries])
    return [
        Device(
            index=entry["index"],
            name=name,
            inputs=int(entry["max_input_channels"]),
            outputs=int(entry["max_output_channels"]),
            rate_hz=round(entry["default_samplerate"]),
            default_input=entry["index"] == default_input,
            default_output=entry["index"] == default_output,
        )
        for entry, name in zip(entries, names, strict=True)
    ]


def _end(stream: Any) -> None:
    for step in (partial(stream.abort, ignore_errors=True), stream.close):
        # Both fail on an unplugged device.
        with contextlib.suppress(Exception):
            step()


def _with_channels(work: Callable[[int], T], channels: int, most: int) -> T:
    """Call ``work`` with ``channels`` or, if the device takes only a pair or all it has, with more:
    only on some systems does PortAudio open the extra channels itself."""
    counts = [channels, *sorted(count for count in {2, most} if channels < count <= most)]
    while True:
        try:
            return work(counts.pop(0))
        except load().PortAudioError as error:
            if not counts or _code_of(error) != _BAD_CHANNELS:
                raise


def _rates(device: Device) -> tuple[int, ...]:
    sounddevice = load()
    checks = []
    if device.serves("microphone"):
        checks.append((sounddevice.check_input_settings, device.inputs))
    if device.serves("loudspeaker"):
        checks.append((sounddevice.check_output_settings, device.outputs))
    rates = []
    for rate_hz in sorted({*RATES_HZ, device.rate_hz}):
        with contextlib.suppress(sounddevice.PortAudioError), quiet_stderr():
            for check, most in checks:
                asked = partial(check, device.index, dtype="int16", samplerate=rate_hz)
                _with_channels(asked, 1, most)
            rates.append(rate_hz)
    return tuple(rates)


def _input(plan: Plan, channels: int) -> Any:
    on_heard, of_channel = plan.on_heard, slice(plan.channel - 1, None, channels)

    def callback(data: Any, frames: int, times: Any, flags: Any) -> None:
        now_s = time.monotonic()
        at_s = _at(now_s, stream.time, times.inputBufferAdcTime, -stream.latency)
        pcm = np.frombuffer(data, np.int16)[of_channel].copy()
        on_heard(pcm, at_s, now_s, bool(flags.input_overflow))

    stream = load().RawInputStream(
        samplerate=plan.microphone_hz,
        blocksize=plan.microphone_hz * BLOCK_MS // 1000,
        device=plan.microphone.index,
        channels=channels,
        dtype="int16",
        latency=HEARD_LATENCY_S,
        callback=callback,
        finished_callback=partial(plan.on_ended, "microphone"),
    )
    return stream


def _output(plan: Plan, channels: int) -> Any:
    on_asked = plan.on_asked

    def callback(out: Any, frames: int, times: Any, flags: Any) -> None:
        now_s = time.monotonic()
        at_s = _at(now_s, stream.time, times.outputBufferDacTime, stream.latency)
        pcm = on_asked(frames, at_s, now_s, bool(flags.output_underflow))
        out[:] = np.repeat(pcm, channels).tobytes()

    stream = load().RawOutputStream(
        samplerate=plan.speaker_hz,
        blocksize=plan.speaker_hz * BLOCK_MS // 1000,
        device=plan.speaker.index,
        channels=channels,
        dtype="int16",
        latency=plan.speaker_latency_s,
        callback=callback,
        finished_callback=partial(plan.on_ended, "loudspeaker"),
    )
    return stream


def _at(now_s: float, driver_now_s: float, driver_at_s: float, otherwise_s: float) -> float:
    """The driver's time on our clock. PortAudio's differs, and some back ends leave it 0: then
    ``otherwise_s`` from now."""
    if not driver_at_s:
        return now_s + otherwise_s
    return now_s + driver_at_s - driver_now_s


def _code_of(error: Exception) -> object:
    return error.args[1] if len(error.args) > 1 else None


def _text_of(error: Exception) -> str:
    message = str(error.args[0] if error.args else error)
    host = error.args[2] if len(error.args) > 2 else None
    text = host[2] if isinstance(host, tuple) and len(host) == 3 else ""
    return f"{message} {text}".strip()
