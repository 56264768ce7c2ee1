"""Removes a loudspeaker's echo from a microphone's sound, as it comes in.

Speech recognition hears the residual of one linear filter. ``gate.near_end`` decides on the same
residual, the post-filtered residual and the likelihood ratio. Sans-I/O; the caller supplies both
streams block by block, on the microphone's sample clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.audio import Pcm, to_float
from pipeline.echo import tuning
from pipeline.echo.drift import LEAST_LAG, MOST_LAG, Drift, PlayedSound
from pipeline.echo.gate import BANDS, EchoGate
from pipeline.echo.kalman import (
    BINS,
    BLOCK,
    BRANCHES,
    PARTITIONS,
    KalmanFilter,
    Reals,
    Samples,
    Spectra,
)
from pipeline.echo.slip import SlipFinder

_REALIGNED_BLOCKS = tuning.CANCELLER_REALIGNED_MS // 10
_IDLE_BLOCKS = PARTITIONS + 3
"""The filter's length, the resampler's buffer, and one block of overlap."""
_LEAST_POWER = 1e-8
REREAD_SAMPLES = (PARTITIONS + 4) * BLOCK
"""The filter's length, the resampler's lag, and one block of overlap."""


class EchoFree(NamedTuple):
    """One block of 10 ms, 16 kHz."""

    residual: Pcm
    """int16, shape ``(160,)``: the microphone's sound without the echo, for speech recognition and
    the first VAD."""
    post_filtered: Pcm
    """The same length, 10 ms later, with most of the residual echo removed; for the second VAD."""
    llr: float
    """How much louder the sound is than echo and noise explain, 0 to 15."""
    idle: bool
    """Nothing was played lately; the sound is untouched."""


@dataclass(frozen=True, slots=True, eq=False)
class EchoState:
    """What the canceller learned about a room: ``weights`` complex64 ``(2, 32, 161)``,
    ``leakage_db`` float32 ``(20,)``, the clocks' difference, how far behind it reads the reference.
    """

    weights: Spectra
    leakage_db: Reals
    ppm: float
    lag_samples: float


class EchoCanceller:
    """One loudspeaker and one microphone, both 16 kHz mono."""

    def __init__(self, plays_on: bool = True) -> None:
        """``plays_on``: the loudspeaker's stream continues through silence, as a sound card's does;
        otherwise each sound is aligned anew, as for a client that plays audio when it arrives."""
        self._plays_on = plays_on
        self._played = PlayedSound()
        self._filter = KalmanFilter()
        self._gate = EchoGate()
        self._drift = Drift()
        self._slips = SlipFinder()
        self._silent_blocks = _IDLE_BLOCKS
        self._blocks = 0
        self._residual_power = self._power = 0.0
        self._weights_before: deque[Spectra] = deque(maxlen=2)
        self.slips = 0
        """How often the echo's delay was found to have jumped."""
        self.slipped_samples = 0
        """Accumulated delay correction, in samples."""

    @property
    def ppm(self) -> float:
        """How much faster the loudspeaker's clock runs than the microphone's."""
        return self._played.ppm

    @property
    def works(self) -> bool:
        """Whether it has removed most of the microphone's power in the last second or so."""
        return self._slips.explained > tuning.CANCELLER_MOST

    @property
    def echo_at_samples(self) -> float | None:
        """The echo's delay behind its reference, as learned; ``None``: nothing learned yet."""
        response = np.fft.irfft(self._filter.weights[0])[:, :BLOCK].ravel()
        strongest = int(np.abs(response).argmax())
        return self._played.lag + strongest if response[strongest] else None

    def process(self, microphone: Pcm, reference: Pcm) -> EchoFree:
        """Clean the next 10 ms: the sound heard, and the sound played meanwhile, both int16, shape
        ``(160,)``.

        The echo of ``reference`` may come 6 to 300 ms after it. Raises ``ValueError`` on any other
        length.
        """
        if microphone.shape != (BLOCK,) or reference.shape != (BLOCK,):
            raise ValueError(f"blocks of {BLOCK} samples, not {microphone.shape} {reference.shape}")
        if _silent(reference):
            self._silent_blocks += 1
        else:
            self._silent_blocks = 0
        if self._silent_blocks >= _IDLE_BLOCKS:
            return self._idle(microphone)
        sound = to_float(microphone)
        self._played.push(to_float(reference))
        if _silent(microphone):
            return self._switched_off(microphone, sound)
        learns = not self._slips.doubts
        residual, echo = self._filter.process(self._played.read(), sound, learns)
        self._keep_in_reach()
        slip = self._slips.look(sound, echo, residual)
        if slip is not None:
            self._follow_slip(slip)
        elif self._slips.suspects:
            self._gate.close(1)
        elif self._slips.lost:
            self._begin_anew()
        self._follow_drift(sound, residual)
        if float(residual @ residual) > tuning.CANCELLER_LOUDER * float(sound @ sound):
            # The expected echo is absent, for example because a client has stopped playing.
            # Subtracting it would add it.
            residual = sound
        post_filtered, llr = self._gate.process(residual, echo)
        return EchoFree(_to_pcm(residual), _to_pcm(post_filtered), llr, False)

    def realign(self, played_more: int = 0) -> None:
        """Call after a gap in playback, with the reference corrected: for 300 ms all sound counts
        as echo.

        ``played_more``: samples by which the echo comes later from now on, if the reference is not
        corrected; negative if it comes earlier.
        """
        if played_more:
            self._move(played_more)
        self._slips.start_again()
        self._gate.close(_REALIGNED_BLOCKS)

    def reread(self, reference: Pcm) -> None:
        """Read the reference from another position on. ``reference``: its newest ``REREAD_SAMPLES``
        there, which replace what was read. For 300 ms all sound counts as echo."""
        for start in range(0, len(reference), BLOCK):
            self._played.push(to_float(reference[start : start + BLOCK]))
        if len(self._weights_before) == 2:
            # What the filter has learned since the gap is wrong.
            self._filter.replace(self._weights_before[0])
        self._reread()
        self.realign()

    def state(self) -> EchoState:
        """A copy of the learned state, for ``restore`` in a later session."""
        return EchoState(
            self._filter.weights,
            self._gate.leakage_db,
            self._played.ppm,
            self._played.lag,
        )

    def restore(self, state: EchoState) -> None:
        """Start from an earlier session's state. Raises ``ValueError`` for an invalid state."""
        if state.weights.shape != (BRANCHES, PARTITIONS, BINS) or len(state.leakage_db) != BANDS:
            raise ValueError("the state does not fit this version's filters")
        if not LEAST_LAG <= state.lag_samples <= MOST_LAG or abs(state.ppm) > tuning.DRIFT_MOST_PPM:
            raise ValueError("the state's clocks are out of range")
        if not (np.isfinite(state.weights).all() and np.isfinite(state.leakage_db).all()):
            raise ValueError("the state is not finite")
        self._filter.warm(state.weights)
        self._gate.warm(state.leakage_db)
        self._played.ppm = state.ppm
        self._played.lag = state.lag_samples
        self._drift.forget()

    # --- while nothing is played ---------------------------------------------------------------

    def _idle(self, microphone: Pcm) -> EchoFree:
        if self._silent_blocks == _IDLE_BLOCKS:
            self._filter.forget_sound()
            self._played.clear()
            self._slips.start_again()
            self._drift.forget()
            if not self._plays_on:
                self._played.begin_again()
        self._silent_blocks = _IDLE_BLOCKS + 1
        if self._plays_on:
            self._played.skip()
        self._keep_in_reach()
        post_filtered = self._gate.pass_through(to_float(microphone))
        return EchoFree(microphone, _to_pcm(post_filtered), tuning.CANCELLER_NO_DOUBT, True)

    def _switched_off(self, microphone: Pcm, sound: Samples) -> EchoFree:
        """Learn nothing: a muted microphone does not hear the room."""
        self._filter.process(self._played.read(), sound, False)
        self._keep_in_reach()
        post_filtered = self._gate.pass_through(sound, learns=False)
        return EchoFree(microphone, _to_pcm(post_filtered), 0.0, False)

    # --- the two clocks, and gaps --------------------------------------------------------------

    def _follow_drift(self, sound: Samples, residual: Samples) -> None:
        self._residual_power += float(residual @ residual)
        self._power += float(sound @ sound)
        self._blocks += 1
        if self._blocks % tuning.DRIFT_MEASURED_BLOCKS:
            return
        weights = self._filter.weights
        sure = (
            self._power > _LEAST_POWER * tuning.DRIFT_MEASURED_BLOCKS * BLOCK
            and self._residual_power < tuning.CANCELLER_SURE * self._power
        )
        more = self._drift.look(weights, sure)
        self._played.ppm = float(
            np.clip(self._played.ppm + more, -tuning.DRIFT_MOST_PPM, tuning.DRIFT_MOST_PPM)
        )
        self._residual_power = self._power = 0.0
        self._weights_before.append(weights)

    def _keep_in_reach(self) -> None:
        """Shift the reference by whole blocks and the filter the other way: the echo stays the
        same, and the resampler's buffer is long enough."""
        while self._played.lag < LEAST_LAG:
            self._played.lag += BLOCK
            self._filter.later()
            self._reread()
        while self._played.lag > MOST_LAG:
            self._played.lag -= BLOCK
            self._filter.earlier()
            self._reread()

    def _follow_slip(self, by: int) -> None:
        self.slips += 1
        self.slipped_samples += by
        if len(self._weights_before) == 2:
            # What the filter has learned since the gap is wrong.
            self._filter.replace(self._weights_before[0])
        self._move(by)
        self.realign()

    def _begin_anew(self) -> None:
        """Learn from scratch: a gap was missed, or the room has changed."""
        self._slips = SlipFinder()
        self._filter.doubt()
        self._drift.forget()
        self._weights_before.clear()
        self._gate.learn_again()
        self._gate.close(tuning.CANCELLER_ANEW_BLOCKS)

    def _move(self, by: int) -> None:
        """The echo comes ``by`` samples later."""
        self._played.lag += by
        self._reread()
        self._keep_in_reach()

    def _reread(self) -> None:
        self._drift.forget()
        self._weights_before.clear()
        if self._played.lag >= LEAST_LAG:
            self._filter.refill(self._played.before(PARTITIONS + 1))


def _silent(pcm: Pcm) -> bool:
    return bool(pcm.max() <= tuning.SILENT_PEAK and pcm.min() >= -tuning.SILENT_PEAK)


def _to_pcm(samples: Samples) -> Pcm:
    """int16, clipped; the exact inverse of ``to_float``."""
    values = np.rint(samples * np.float32(32768))
    np.minimum(np.maximum(values, -32768, out=values), 32767, out=values)
    pcm: Pcm = values.astype(np.int16)
    return pcm
