"""The robot's voices in echo scenes: Piper and flite, said once and kept in a file."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime
import soundfile
import soxr

from benchmarks.echo.scenes import FRESH_TEXTS, ROBOT_VOICES, TUNING_TEXTS
from benchmarks.harness.heard_speech import cut
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.tts import piper
from pipeline.messages import SpeechRequest
from tests.support.recordings import Uncancelled


class Said(NamedTuple):
    spoken: Pcm


class RobotVoices:
    """Every text by every voice, 16 kHz int16."""

    def __init__(self, said: Mapping[str, Pcm]) -> None:
        self._said = said

    def say(self, voice: str, text: str) -> Said:
        return Said(self._said[_key(voice, text)])

    @classmethod
    def load(cls, file: Path) -> RobotVoices:
        with np.load(file) as held:
            return cls({name: held[name] for name in held.files})


def say_all(piper_weights: Path, file: Path) -> None:
    """Write ``file`` (NPZ). Piper's network draws from one seeded generator, in one order."""
    if file.exists():
        return
    onnxruntime.set_seed(1)
    engine = piper.build(piper.PiperOptions(), piper_weights)
    never = Uncancelled()
    found: dict[str, Pcm] = {}
    for voice in sorted(set(ROBOT_VOICES)):
        program, kind = voice.split(" ")
        for text in (*TUNING_TEXTS, *FRESH_TEXTS):
            if program == "flite":
                pcm = _flite(kind, text)
            else:
                chunks = engine.synthesize(SpeechRequest(text, "", float(kind)), never)
                pcm = _at_listen_rate(
                    np.concatenate([chunk for chunk in chunks if chunk is not None]), engine.rate
                )
            found[_key(voice, text)] = cut(voice, text, pcm).spoken
    unfinished = file.with_suffix(".part.npz")
    np.savez(unfinished, **found)  # type: ignore[arg-type]
    unfinished.replace(file)


def _key(voice: str, text: str) -> str:
    number = (*TUNING_TEXTS, *FRESH_TEXTS).index(text)
    return f"{voice} {number}"


def _flite(voice: str, text: str) -> Pcm:
    with tempfile.TemporaryDirectory() as folder:
        wav = Path(folder) / "said.wav"
        subprocess.run(["flite", "-voice", voice, "-t", text, "-o", str(wav)], check=True)
        samples, rate = soundfile.read(wav, dtype="int16")
    return _at_listen_rate(samples, rate)


def _at_listen_rate(pcm: Pcm, rate: int) -> Pcm:
    if rate == LISTEN_RATE:
        return pcm
    converted: Pcm = soxr.resample(pcm, rate, LISTEN_RATE, quality="HQ")
    return converted
