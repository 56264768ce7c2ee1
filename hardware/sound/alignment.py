"""Pairs captured audio with what was played at the same time, sample for sample on one counter.

Pure. The counter is the microphone's, at 16 kHz; lost samples count too, so gaps stay. The
loudspeaker's samples have their own counter. Its offset to the microphone's is a whole number,
found from both clocks; it moves when one of the streams jumps or when the clocks have drifted
apart by a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hardware.sound.clock import StreamClock
from hardware.sound.ring import SampleBlock
from pipeline.audio import EMPTY, LISTEN_RATE, AudioHistory, Pcm, Resampler

BLOCK_SAMPLES = 160
"""10 ms, the echo canceller's block."""
LEAD_S = 0.020
"""The reference leaves the loudspeaker this much later than ``pcm`` reached the microphone: the
canceller wants the echo 6 to 300 ms after the reference, and timestamps are off by a few
milliseconds either way. A driver that does not report all of its delay adds to it."""
_SETTLED_S = 0.3
_PATIENCE_SAMPLES = 3 * BLOCK_SAMPLES
"""How long a block may wait for its reference if the loudspeaker's driver is late."""
_MOST_OFF_SAMPLES = 1.2 * BLOCK_SAMPLES
"""Misalignment tolerated while something plays: the reference moves rarely, by whole blocks."""
_OFF_IN_SILENCE_SAMPLES = BLOCK_SAMPLES // 2
_SILENCE_SAMPLES = 5_600
"""350 ms: the silence that the canceller needs before the reference may move."""
_KEPT_S = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class SoundBlock:
    """10 ms of captured audio and what was played at the time."""

    pcm: Pcm
    """Captured, int16, 16 kHz mono, shape ``(160,)``."""
    reference: Pcm
    """What the loudspeaker got then, after volume, ducking and silence, in the same shape. The echo
    follows it by about 20 ms plus any delay that the devices do not report."""
    captured_at: float
    """When the last sample was captured, in seconds on the loop's clock."""
    lost_samples: int = 0
    """How many samples (16 kHz) before this block the driver lost, or nobody read in time."""
    reference_moved: int | None = None
    """For ``EchoCanceller.realign``: from this block on the echo follows ``reference`` by this many
    more samples. 0: a gap in a stream has been repaired."""


class _Stream:
    """One device's samples at 16 kHz, with their numbers and times; gaps are counted."""

    def __init__(self, rate_hz: int) -> None:
        self.clock = StreamClock(rate_hz)
        self._resampler = Resampler(rate_hz, LISTEN_RATE)
        self._next = 0

    def take(self, piece: SampleBlock) -> tuple[Pcm, int, int]:
        """Returns, all at 16 kHz, the samples, how many were lost before them, and by how many the
        device's clock jumped (negative: backwards)."""
        gap = piece.first - self._next
        self._next = piece.first + len(piece.pcm)
        jump = self.clock.look(piece.first, piece.at_s, piece.xrun)
        return self._resampler.feed(piece.pcm), self._rescale(gap), self._rescale(jump)

    def time_of(self, number: float) -> float:
        """When sample ``number``, counted at 16 kHz, is at the device's membrane."""
        return self.clock.time_of(number * self._resampler.step)

    def _rescale(self, samples: int) -> int:
        return round(samples / self._resampler.step)


class Alignment:
    """One microphone and one loudspeaker, from opening to closing."""

    def __init__(self, microphone_hz: int, speaker_hz: int) -> None:
        self._microphone = _Stream(microphone_hz)
        self._speaker = _Stream(speaker_hz)
        self._speaker_hz = speaker_hz
        self._reopened = False
        self._reference = AudioHistory(round(_KEPT_S * LISTEN_RATE))
        self._inserted_samples = 0
        """Samples of silence in the reference that the loudspeaker's counter does not include."""
        self._pcm = EMPTY
        self._number = 0
        """Number of the first held sample; lost ones count, as in the microphone's stream."""
        self._lost_samples = 0
        self._offset: int | None = None
        self._reference_moved: int | None = None
        self._silent_samples = 0

    def played(self, piece: SampleBlock) -> None:
        """The loudspeaker's driver has taken these samples."""
        pcm, gap, jump = self._speaker.take(piece)
        if gap > 0:
            self._reference.append(np.zeros(gap, np.int16))
        if jump and self._offset is not None:
            self._gap()
            if jump > 0:
                # The device inserted silence.
                self._insert(jump)
            else:
                self._offset -= jump
        self._reference.append(pcm)

    def speaker_reopened(self) -> None:
        """The loudspeaker has a new stream from now on; nothing was being played."""
        self._speaker = _Stream(self._speaker_hz)
        self._reference = AudioHistory(round(_KEPT_S * LISTEN_RATE))
        self._inserted_samples, self._offset, self._reopened = 0, None, True

    def heard(self, piece: SampleBlock) -> Iterator[SoundBlock]:
        """Take the microphone driver's samples. Yields the complete blocks."""
        pcm, gap, jump = self._microphone.take(piece)
        if gap > 0:
            self._lose(gap, is_counted=True)
        if jump > 0:
            self._lose(jump, is_counted=False)
        elif jump and self._offset is not None:
            self._gap()
            self._offset += jump
        self._pcm = np.concatenate((self._pcm, pcm))
        while len(self._pcm) >= BLOCK_SAMPLES and self._ready():
            yield self._block()

    # --- inside -----------------------------------------------------------------------------------

    def _lose(self, samples: int, is_counted: bool) -> None:
        """``is_counted``: the microphone's sample numbers already include them."""
        # The held samples precede the gap. A block must not span a gap, so drop them too.
        rest = len(self._pcm)
        self._pcm = EMPTY
        self._number += rest + (samples if is_counted else 0)
        self._lost_samples += rest + samples
        if self._offset is not None:
            self._gap()
            if not is_counted:
                self._offset += samples

    def _gap(self) -> None:
        self._reference_moved = self._reference_moved or 0

    def _insert(self, samples: int) -> None:
        self._reference.append(np.zeros(samples, np.int16))
        self._inserted_samples += samples

    def _ready(self) -> bool:
        if self._offset is None:
            self._offset = self._align()
        if self._offset is None:
            return True
        end = self._number + BLOCK_SAMPLES + self._offset
        return end <= self._reference.end or len(self._pcm) > _PATIENCE_SAMPLES

    def _align(self) -> int | None:
        if min(self._microphone.clock.known_s, self._speaker.clock.known_s) < _SETTLED_S:
            return None
        if self._reopened:
            self._reopened = False
            self._gap()
        return round(self._off(0))

    def _off(self, offset: int) -> float:
        """How many samples further ahead the reference should be."""
        at_s = self._microphone.time_of(self._number) + LEAD_S
        number = self._number + offset - self._inserted_samples
        return (at_s - self._speaker.time_of(number)) * LISTEN_RATE

    def _block(self) -> SoundBlock:
        pcm, self._pcm = self._pcm[:BLOCK_SAMPLES], self._pcm[BLOCK_SAMPLES:]
        reference = self._reference_block()
        move, self._reference_moved = self._reference_moved, None
        lost, self._lost_samples = self._lost_samples, 0
        self._number += BLOCK_SAMPLES
        captured_at = self._microphone.time_of(self._number - 1)
        return SoundBlock(pcm, reference, captured_at, lost, move)

    def _reference_block(self) -> Pcm:
        if self._offset is None:
            return np.zeros(BLOCK_SAMPLES, np.int16)
        self._offset += self._move(self._off(self._offset))
        start = self._number + self._offset
        there = self._reference.read(start, start + BLOCK_SAMPLES)
        if len(there) < BLOCK_SAMPLES:
            block = np.zeros(BLOCK_SAMPLES, np.int16)
            first = max(0, self._reference.start - start)
            block[first : first + len(there)] = there
            there = block
        self._silent_samples = 0 if there.any() else self._silent_samples + BLOCK_SAMPLES
        return there

    def _move(self, off: float) -> int:
        """How many samples to move the reference by if it is off by ``off`` samples."""
        silent = self._silent_samples >= _SILENCE_SAMPLES
        if abs(off) <= (_OFF_IN_SILENCE_SAMPLES if silent else _MOST_OFF_SAMPLES):
            return 0
        step = round(off) if silent else BLOCK_SAMPLES if off > 0 else -BLOCK_SAMPLES
        self._reference_moved = (self._reference_moved or 0) + step
        return step
