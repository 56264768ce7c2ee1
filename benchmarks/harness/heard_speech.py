"""Synthetic voices (Piper, and ``flite`` and ``espeak-ng`` where installed), and detection of where
a clip's speech begins and ends."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import soxr
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE, Pcm, pcm_from_bytes
from pipeline.engines.tts import piper
from pipeline.messages import SpeechRequest
from pipeline.work import NEVER

FIRST_AND_REST = (
    ("No", "that is not what I meant."),
    ("Stop", "right there."),
    ("Please", "turn your head to the left."),
    ("Hey", "can you hear me?"),
    ("Reachy", "what time is it?"),
    ("Yes", "I would like that."),
    ("So", "what do you think of it?"),
    ("I", "think it is going to rain."),
    ("It", "is very cold in here."),
    ("For", "how long can you dance?"),
    ("Sixty", "minutes is too long."),
    ("Hello", "how are you today?"),
    ("What", "do you see in front of you?"),
    ("Who", "is standing at the door?"),
    ("How", "far away is the moon?"),
    ("Thanks", "that was very kind."),
    ("If", "it rains, go inside."),
    ("Play", "some music for us."),
    ("Turn", "around and look at me."),
    ("Fine", "then we do it tomorrow."),
    ("Put", "your antennas up."),
    ("Two", "plus two makes four."),
    ("She", "wants to talk to you."),
    ("Think", "about it for a moment."),
)
"""First words that people say to a robot: short words, soft consonants (s, f, h, p, th), vowels."""

_ESPEAK_VOICES = ("en-us", "en-gb-x-rp+f3", "en-gb-scotland+m5")
_FLITE_VOICES = ("awb", "rms", "slt", "kal16")
_PIPER_PACES = (0.9, 1.0, 1.2)


@dataclass(frozen=True, slots=True, eq=False)
class Speech:
    source: str
    """Begins with ``real`` or ``synthetic``."""
    text: str
    """What is said; empty if unknown."""
    pcm: Pcm
    """16 kHz int16 mono, with speech from ``onset`` to ``end``."""
    onset: int
    end: int

    @property
    def speech(self) -> Pcm:
        """``pcm`` from its first to its last speech sample."""
        return self.pcm[self.onset : self.end]


def trim(source: str, text: str, pcm: Pcm) -> Speech:
    """A clip trimmed to 20 ms around its speech."""
    onset, end = bounds(pcm)
    around = LISTEN_RATE // 50
    first = max(0, onset - around)
    return Speech(source, text, pcm[first : end + around], onset - first, end - first)


HOP = LISTEN_RATE // 400
_WINDOW_HOPS = 4


def levels_db(pcm: Pcm) -> NDArray[np.float64]:
    """Level of each 10 ms window, 2.5 ms apart, in dBFS; at least -90."""
    samples = pcm.astype(np.float64) / 32768
    samples -= samples.mean() if len(samples) else 0.0
    hops = len(samples) // HOP
    power = (samples[: hops * HOP] ** 2).reshape(hops, HOP).mean(axis=1)
    smooth = np.convolve(power, np.ones(_WINDOW_HOPS) / _WINDOW_HOPS, mode="valid")
    return np.asarray(10 * np.log10(np.maximum(smooth, 1e-9)))


def bounds(pcm: Pcm) -> tuple[int, int]:
    """The first speech sample and the one after the last, relative to the clip's own level.

    Goes back from the first loud 20 ms while the level is less than 40 dB under the loud parts and
    6 dB over the 75th percentile of the room before, across gaps of up to 120 ms, as before the "t"
    of "stop". At most 10 ms early. Raises ``ValueError`` for silence.
    """
    levels = levels_db(pcm)
    first, last = _first(levels), _first(levels[::-1])
    return first * HOP, min(len(pcm), (len(levels) - last + _WINDOW_HOPS - 1) * HOP)


def _first(levels: NDArray[np.float64]) -> int:
    """The hop in which speech begins."""
    loud = float(np.percentile(levels, 95))
    loud_runs = _runs(levels > loud - 15, 8)
    if not len(loud_runs):
        raise ValueError("the clip is silent")
    threshold = loud - 40
    if len(lead := levels[: max(0, loud_runs[0] - 2 * _LEAD_HOPS)]) >= _LEAD_HOPS:
        threshold = min(max(threshold, float(np.percentile(lead, 75)) + 6), loud - 22)
    begin = int(loud_runs[0])
    for run in _runs(levels[:begin] > threshold, _WINDOW_HOPS)[::-1]:
        if begin - run > _GAP_HOPS + _WINDOW_HOPS:
            break
        begin = int(run)
    return begin


_LEAD_HOPS = 20
_GAP_HOPS = 48


def _runs(true: NDArray[np.bool_], count: int) -> NDArray[np.intp]:
    """The places at which ``count`` true values in a row begin."""
    if len(true) < count:
        return np.zeros(0, dtype=np.intp)
    return np.flatnonzero(np.convolve(true, np.ones(count), mode="valid") == count)


def g722(path: Path) -> Pcm:
    """A recording as int16, 16 kHz. Needs the program ffmpeg."""
    command = ["ffmpeg", "-v", "error", "-f", "g722", "-i", str(path), "-f", "s16le", "-"]
    return pcm_from_bytes(subprocess.run(command, check=True, capture_output=True).stdout)


# --- voices ------------------------------------------------------------------------------------


class Voices:
    """Every installed synthetic voice."""

    def __init__(self, piper_weights: Path) -> None:
        # Piper's network draws from one generator per session, which continues from text to text.
        # Every text is said once, in a fixed order, so every run has the same audio.
        onnxruntime.set_seed(1)
        self._piper = piper.build(piper.PiperOptions(), piper_weights)
        self.names = [f"piper-joe {pace}" for pace in _PIPER_PACES]
        if shutil.which("flite"):
            self.names += [f"flite {voice}" for voice in _FLITE_VOICES]
        if shutil.which("espeak-ng"):
            self.names += [f"espeak-ng {voice}" for voice in _ESPEAK_VOICES]
        self._cache: dict[tuple[str, str], Speech] = {}
        self.say(self.names[1], "Hello.")
        for pace, text in itertools.product(_PIPER_PACES, _texts()):
            self.say(f"piper-joe {pace}", text)

    def say(self, name: str, text: str) -> Speech:
        """``text`` by the voice ``name``."""
        key = name, text
        if key not in self._cache:
            program, voice = name.split(" ")
            pcm = (
                self._by_piper(text, float(voice))
                if "piper" in program
                else run_program(name, text)
            )
            self._cache[key] = trim(f"synthetic: {name}", text, pcm)
        return self._cache[key]

    def _by_piper(self, text: str, pace: float) -> Pcm:
        chunks = [
            pcm
            for pcm in self._piper.synthesize(SpeechRequest(text, "", pace), NEVER)
            if pcm is not None
        ]
        return _at_listen_rate(np.concatenate(chunks), self._piper.rate)


def _texts() -> Iterator[str]:
    for first, rest in FIRST_AND_REST:
        yield from (f"{first}.", rest, f"{first} {rest}")


def run_program(name: str, text: str) -> Pcm:
    """``text`` by a program and its voice, such as "flite slt"; at ``LISTEN_RATE``."""
    program, voice = name.split(" ")
    options = ["-v", voice, "--stdout", text]
    if program == "flite":
        options = ["-voice", voice, "-t", text, "-o", "/dev/stdout"]
    wav = subprocess.run([program, *options], check=True, capture_output=True).stdout
    # Both write the header before they know the length, so ignore the length in it.
    header, rate = 44, int.from_bytes(wav[24:28], "little")
    return _at_listen_rate(pcm_from_bytes(wav[header : len(wav) - len(wav) % 2]), rate)


def _at_listen_rate(pcm: Pcm, rate: int) -> Pcm:
    if rate == LISTEN_RATE:
        return pcm
    result: Pcm = soxr.resample(pcm, rate, LISTEN_RATE, quality="HQ")
    return result
