"""Packaged voices that call the robot."""

from __future__ import annotations

import numpy as np

from benchmarks.harness.acoustics import (
    Signal,
    gained,
    rms_dbfs,
    to_signal,
)
from benchmarks.harness.heard_speech import run_program, trim
from benchmarks.harness.program import weights
from pipeline.audio import LISTEN_RATE, Resampler
from pipeline.engines.tts import piper
from pipeline.messages import SpeechRequest
from pipeline.work import NEVER
from tests.support.pico import spoken_by_pico

NEAR_DBFS = -26.0
"""Active level of a nearby voice."""
VOICES = (
    *("piper-joe", "flite awb", "flite rms", "flite slt", "flite kal16"),
    *("pico 1.0", "pico 0.8"),
    *(f"espeak-ng en-us+{each}" for each in ("m1", "m3", "m7", "f1", "f2", "f4")),
    *("espeak-ng en-gb-x-rp+f3", "espeak-ng en-gb-scotland+m5"),
)


class Speakers:
    """Packaged voices by name."""

    def __init__(self) -> None:
        self._piper = piper.build(piper.PiperOptions(), weights("piper-joe"))

    def say(self, voice: str, text: str, dbfs: float = NEAR_DBFS) -> Signal:
        """``text`` at the level ``dbfs``, without surrounding silence."""
        if voice.startswith("pico"):
            pcm = spoken_by_pico(text, "en", pitch=float(voice.split()[1]))
        elif voice == "piper-joe":
            chunks = self._piper.synthesize(SpeechRequest(text), NEVER)
            pcm = np.concatenate([chunk for chunk in chunks if chunk is not None])
            pcm = Resampler(self._piper.rate, LISTEN_RATE).feed(pcm)
        else:
            pcm = run_program(voice, text)
        return at_level(to_signal(trim(voice, text, pcm).speech), dbfs)


def at_level(signal: Signal, dbfs: float) -> Signal:
    loud = signal[np.abs(signal) > 0.05 * np.abs(signal).max()]
    return gained(signal, dbfs - rms_dbfs(loud))
