"""A client in a simulated room: its microphone hears the audio that it plays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.harness.acoustics import Signal, to_pcm, to_signal
from benchmarks.harness.rooms import Loudspeaker, distort
from pipeline.audio import LISTEN_RATE, Pcm

PIECE = LISTEN_RATE // 50
"""Samples of its microphone in one message: 20 ms."""


@dataclass
class RoomClient:
    """Plays received audio and hears its echo. Samples count from the start of the session."""

    response: Signal
    loudspeaker: Loudspeaker
    floor: Signal
    down_s: float
    gain: float = 1.0
    output: Signal = field(default_factory=lambda: np.zeros(0, np.float32))
    speech: Signal = field(default_factory=lambda: np.zeros(0, np.float32))

    def play(self, pcm: Pcm, at_s: float) -> None:
        start = max(round((at_s + self.down_s) * LISTEN_RATE), len(self.output))
        silence = np.zeros(start - len(self.output), np.float32)
        loud = distort(to_signal(pcm), self.loudspeaker)
        self.output = np.concatenate((self.output, silence, loud))

    def flush(self, at_s: float) -> None:
        self.output = self.output[: round((at_s + self.down_s) * LISTEN_RATE)]

    def say(self, signal: Signal, at: int) -> None:
        if len(self.speech) < at + len(signal):
            longer = np.zeros(at + len(signal), np.float32)
            longer[: len(self.speech)] = self.speech
            self.speech = longer
        self.speech[at : at + len(signal)] += signal

    def hear(self, start: int) -> Pcm:
        """What the microphone hears in the piece that begins at sample ``start``."""
        end = start + PIECE
        first = max(0, start - len(self.response) + 1)
        source = self.output[first:end]
        sound = self.floor[start % len(self.floor) :][:PIECE].copy()
        sound = np.pad(sound, (0, PIECE - len(sound)))
        if len(source) and np.any(source):
            size = 1 << (end - first + len(self.response)).bit_length()
            spectrum = np.fft.rfft(source, size) * self._spectrum(size)
            echo = np.fft.irfft(spectrum, size)[start - first : end - first]
            sound += self.gain * echo.astype(np.float32)
        speech = self.speech[start:end]
        sound[: len(speech)] += speech
        return to_pcm(sound)

    def _spectrum(self, size: int) -> Any:
        spectra = self.__dict__.setdefault("_spectra", {})
        if size not in spectra:
            spectra[size] = np.fft.rfft(self.response, size)
        return spectra[size]
