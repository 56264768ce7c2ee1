"""Synthetic speakers that report the end of each word: Piper and flite.

Both report the length of every phoneme (``benchmarks.harness.aligned_piper``).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import soundfile
import soxr

from benchmarks.harness.acoustics import Signal
from benchmarks.harness.aligned_piper import AlignedPiper
from benchmarks.harness.energy import quietest, silences
from benchmarks.turns.clips import Clip, WordBoundary
from benchmarks.turns.wording import WrittenTurn
from pipeline.audio import LISTEN_RATE

_NEAR_SAMPLES = LISTEN_RATE * 25 // 1000
"""Closures inside words, such as that of the k in "the sky", are further away."""
_FLITE_FORMAT = re.compile(r"(?P<phone>\S+):(?P<end_s>[\d.]+)")


class Voice(Protocol):
    """``say`` returns a dry clip; ``pace`` 1.2 is a fifth slower than the voice's default."""

    source: str
    speaker: str

    def say(self, turn: WrittenTurn, pace: float) -> Clip: ...


class Flite:
    """A voice of Debian's flite. Raises ``FileNotFoundError`` if the program is absent."""

    def __init__(self, voice: str) -> None:
        if shutil.which("flite") is None:
            raise FileNotFoundError("The program flite is absent. Run: apt-get install flite")
        self.source = f"synthetic:flite-{voice}"
        self.speaker = f"flite-{voice}"
        self._voice = voice

    def say(self, turn: WrittenTurn, pace: float) -> Clip:
        with tempfile.TemporaryDirectory() as folder:
            wav = Path(folder) / "said.wav"
            output = self._run(turn.text, "-psdur", wav, pace)
            samples, rate = soundfile.read(wav, dtype="float32")
        signal: Signal = soxr.resample(samples, rate, LISTEN_RATE, quality="HQ")
        at = [int(end_s * LISTEN_RATE) for end_s in _flite_ends(output)]

        def phones(text: str) -> int:
            return len(_flite_phones(self._run(text, "-ps", None, pace)))

        return _clip(self, turn, signal, at, phones)

    def _run(self, text: str, show: str, wav: Path | None, pace: float) -> str:
        target = str(wav) if wav else "none"
        stretch = f"duration_stretch={pace:.3f}"
        how = ("-voice", self._voice, "--setf", stretch, show)
        command = ["flite", *how, "-t", text, "-o", target]
        process = subprocess.run(command, check=True, capture_output=True, text=True)
        return process.stdout


def _flite_phones(output: str) -> list[str]:
    return [phone for phone in output.split() if phone != "pau"]


def _flite_ends(output: str) -> list[float]:
    """The end of each phone in seconds. In flite's output each sentence restarts at 0, with a
    pause."""
    ends: list[float] = []
    before_s = latest_s = 0.0
    for match in _FLITE_FORMAT.finditer(output):
        end_s = float(match["end_s"])
        if before_s + end_s < latest_s:
            before_s = latest_s
        latest_s = before_s + end_s
        if match["phone"] != "pau":
            ends.append(latest_s)
    return ends


class PiperSpeaker:
    """The voice ``name`` of the project's Piper weights, with its network's randomness."""

    def __init__(self, weights: Path, name: str, seed: int) -> None:
        self.source = f"synthetic:piper-{name}"
        self.speaker = f"piper-{name}"
        self._voice = AlignedPiper(weights, name, seed)

    def say(self, turn: WrittenTurn, pace: float) -> Clip:
        samples, ends = self._voice.say(turn.text, pace)
        rate = self._voice.rate
        signal: Signal = soxr.resample(samples, rate, LISTEN_RATE, quality="HQ").astype(np.float32)
        at = [end * LISTEN_RATE // rate for end in ends]
        return _clip(self, turn, signal, at, self._voice.phones)


def _place(signal: Signal, at: int) -> int:
    """The middle of the silence at ``at``, or the softest place within 25 ms."""
    for silence in silences(signal, shortest_s=0.05):
        if silence.start - _NEAR_SAMPLES <= at <= silence.end + _NEAR_SAMPLES:
            return (silence.start + silence.end) // 2
    return quietest(signal, at - _NEAR_SAMPLES, at + _NEAR_SAMPLES)


def _clip(
    voice: Voice,
    turn: WrittenTurn,
    signal: Signal,
    ends: Sequence[int],
    phones: Callable[[str], int],
) -> Clip:
    """``ends`` has the sample at which each phoneme ends; ``phones`` counts those of a text."""
    borders = []
    for mark in turn.marks:
        count = phones(mark.before)
        if count < len(ends):
            at = _place(signal, ends[count - 1])
            borders.append(WordBoundary(at, mark.kind, mark.words, mark.kind == "sentence"))
    name = re.sub(r"[^a-z0-9]+", "-", turn.text.lower()).strip("-")[:40].rstrip("-")
    return Clip(
        name=f"{voice.speaker}-{name}",
        source=voice.source,
        speaker=voice.speaker,
        kind=turn.kind,
        text=turn.text,
        signal=signal,
        borders=tuple(borders),
        asked=turn.asked,
    )
