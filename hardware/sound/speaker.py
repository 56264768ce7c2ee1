"""The loudspeaker's samples, and how much of each sound it has played.

Pure: a driver's thread calls ``fill`` and nothing here waits, except the microseconds in which
the event loop's thread appends to the queue.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from hardware.sound.clock import StreamClock
from hardware.sound.ring import Ring, SampleBlock
from hardware.sound.sounds import SoundProgress
from pipeline.audio import Pcm

RAMP_MS = 10
"""Ducking: slow enough not to click, fast enough to seem immediate."""
FADE_MS = 3
"""At a flush: no click, yet immediate silence."""
QUEUE_S = 180.0
"""The longest answer that is synthesised ahead of playback."""
KEEP_AWAKE_HZ = 30.0
"""Small loudspeakers hardly play it and people hardly hear it, but it keeps a device awake that
would sleep in silence."""
_SOUNDS = 64
"""How many sounds' positions are remembered."""
_KEPT_S = 2.0


class Speaker:
    """One loudspeaker while the program runs, reopened if need be.

    ``tap`` has the samples as played, including volume, ducking, fades and silence, at ``rate_hz``,
    but without the tone that keeps the device awake: its echo is not speech, and it would leave no
    silence in which to correct the clocks.
    """

    def __init__(self, volume: float, keep_awake_dbfs: float | None = None) -> None:
        self.volume = volume
        self._tone_peak = 0.0 if keep_awake_dbfs is None else 32767 * 10 ** (keep_awake_dbfs / 20)
        self.rate_hz = 0
        """0 while it is not open."""
        self.tap = Ring(0)
        self.xruns = 0
        self.last_s: float | None = None
        """When the driver last asked; seconds of the loop's clock."""
        self.sounded_s = 0.0
        """When it last received samples of a sound."""
        self._lock = Lock()
        self._clock = StreamClock(1)
        self._next = 0
        self._queue: deque[tuple[SoundProgress, Pcm]] = deque()
        self._queued_samples = 0
        self._newest: SoundProgress | None = None
        self._sounds: OrderedDict[str, SoundProgress] = OrderedDict()
        self._gain = self._target = 1.0
        self._ramp_left = 0

    # --- the event loop's thread ------------------------------------------------------------------

    def opened(self, rate_hz: int) -> None:
        """A stream begins, with silence; ``heard_s`` of earlier sounds stays as it is."""
        with self._lock:
            self._drop_queue()
            self.rate_hz = rate_hz
            self.tap = Ring(round(_KEPT_S * rate_hz))
            self._clock = StreamClock(rate_hz)
            self._next = 0
            self.last_s = None
            self._newest = None

    def closed(self, now_s: float) -> None:
        """The stream is gone: drop the queue; unplayed samples will never be heard."""
        with self._lock:
            out = self._out(now_s)
            for sound in self._sounds.values():
                sound.settle(out)
            self._drop_queue()
            self.rate_hz = 0

    def play(self, pcm: Pcm, rate: int, sound_id: str) -> None:
        """Queue audio: int16 mono, any ``rate`` in Hz, resampled at once at 14 ms of CPU per
        second. A new ``sound_id`` ends the previous sound. Audio that does not fit in the queue, or
        arrives while the device is away, is dropped."""
        with self._lock:
            sound = self._sound(sound_id)
        room_s = QUEUE_S - self.queued_s() if self.rate_hz else 0.0
        part = pcm[: max(0, round(room_s * rate))]
        if len(part) < len(pcm):
            sound.cut = True
        if not len(part):
            return
        if self._newest is not None and self._newest is not sound:
            self._append(self._newest, self._newest.end())
        self._newest = sound
        for start in range(0, len(part), rate):  # larger pieces take longer in all
            self._append(sound, sound.convert(part[start : start + rate], rate, self.rate_hz))

    def flush(self) -> None:
        """Drop the queue after a short fade; the driver still plays what it has buffered."""
        with self._lock:
            fade = self._take_queued(round(FADE_MS * self.rate_hz / 1000)) if self.rate_hz else []
            self._drop_queue()
            total = sum(len(pcm) for _, pcm in fade)
            ramp = np.linspace(1.0, 0.0, total, dtype=np.float32)
            at = 0
            for sound, pcm in fade:
                tail = (pcm * ramp[at : at + len(pcm)]).astype(np.int16)
                self._queue.append((sound, tail))
                self._queued_samples += len(pcm)
                at += len(pcm)
            self._newest = None

    def duck(self, by_db: float) -> None:
        """Lower the volume by this much; 0 restores it."""
        with self._lock:
            self._target = 10 ** (-abs(by_db) / 20)
            self._ramp_left = max(1, round(RAMP_MS * (self.rate_hz or 1000) / 1000))

    def heard_s(self, sound_id: str, now_s: float) -> float:
        """Seconds of this sound played by then; 0 for an unknown sound."""
        with self._lock:
            sound = self._sounds.get(sound_id)
            return 0.0 if sound is None else sound.heard_s(self._out(now_s))

    def queued_s(self) -> float:
        """Seconds not yet passed to the driver."""
        return self._queued_samples / self.rate_hz if self.rate_hz else 0.0

    # --- the driver's thread ----------------------------------------------------------------------

    def fill(self, frames: int, at_s: float, now_s: float, xrun: bool) -> Pcm:
        """What to play next: int16, shape ``(frames,)``. ``at_s``: when its first sample will be at
        the membrane."""
        with self._lock:
            first = self._next
            has_queue = self._queued_samples
            pcm = self._mix(frames, first)
            output = self._with_tone(pcm, first) if self._tone_peak and self.rate_hz else pcm
            self._next += frames
            self._clock.look(first, at_s, xrun)
        self.xruns += xrun
        if has_queue:
            self.sounded_s = now_s
        self.last_s = now_s
        self.tap.put(SampleBlock(pcm, first, at_s, xrun))
        return output

    def _with_tone(self, pcm: Pcm, first: int) -> Pcm:
        phase = 2 * np.pi * KEEP_AWAKE_HZ / self.rate_hz * np.arange(first, first + len(pcm))
        both = pcm + np.rint(self._tone_peak * np.sin(phase))
        output: Pcm = both.clip(-32768, 32767).astype(np.int16)
        return output

    def _mix(self, frames: int, first: int) -> Pcm:
        output = np.zeros(frames, np.int16)
        at = 0
        for sound, pcm in self._take_queued(frames):
            output[at : at + len(pcm)] = pcm
            sound.given(first + at, len(pcm))
            at += len(pcm)
        gain = self._gains(frames)
        if at and (isinstance(gain, np.ndarray) or gain != 1.0):
            output = (output * gain).astype(np.int16)
        return output

    def _gains(self, frames: int) -> NDArray[np.float32] | np.float32:
        if not self._ramp_left:
            return np.float32(self._gain * self.volume)
        steps = min(frames, self._ramp_left)
        slope = (self._target - self._gain) / self._ramp_left
        gains = np.full(frames, self._gain + slope * steps, np.float32)
        gains[:steps] = self._gain + slope * np.arange(1, steps + 1, dtype=np.float32)
        self._gain += slope * steps
        self._ramp_left -= steps
        if not self._ramp_left:
            self._gain = self._target
        return gains * np.float32(self.volume)

    # --- under the lock ---------------------------------------------------------------------------

    def _out(self, now_s: float) -> float:
        """The number of the sample that is at the membrane now."""
        return self._clock.number_at(now_s) if self._next else 0.0

    def _sound(self, sound_id: str) -> SoundProgress:
        sound = self._sounds.get(sound_id)
        if sound is None:
            sound = self._sounds[sound_id] = SoundProgress()
            while len(self._sounds) > _SOUNDS:
                self._sounds.popitem(last=False)
        return sound

    def _append(self, sound: SoundProgress, pcm: Pcm) -> None:
        if len(pcm):
            with self._lock:
                sound.queued(len(pcm))
                self._queue.append((sound, pcm))
                self._queued_samples += len(pcm)

    def _take_queued(self, frames: int) -> list[tuple[SoundProgress, Pcm]]:
        pieces: list[tuple[SoundProgress, Pcm]] = []
        while frames and self._queue:
            sound, pcm = self._queue.popleft()
            if len(pcm) > frames:
                self._queue.appendleft((sound, pcm[frames:]))
                pcm = pcm[:frames]
            pieces.append((sound, pcm))
            frames -= len(pcm)
            self._queued_samples -= len(pcm)
        return pieces

    def _drop_queue(self) -> None:
        for sound, pcm in self._queue:
            sound.dropped(len(pcm))
        self._queue.clear()
        self._queued_samples = 0
