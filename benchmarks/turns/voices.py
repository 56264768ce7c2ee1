"""Synthetic speakers that tell where each of their words ends: Piper and flite.

Both give the length of every phoneme they say. The phonemes of "I need eggs" are the first ones of
"I need eggs, milk, and bread", so their number finds the border after "eggs" in the whole.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import soundfile
import soxr

from benchmarks.harness.acoustics import Signal
from benchmarks.harness.energy import quietest, silences
from benchmarks.turns.clips import Border, Clip
from benchmarks.turns.wording import Written
from pipeline.audio import LISTEN_RATE
from pipeline.engines.onnx import model_file
from pipeline.engines.tts.piper import find_models

_NEAR_SAMPLES = LISTEN_RATE * 25 // 1000
"""Further away lie the closures inside the words: in "the sky" the one of the k."""
_DURATIONS = "/Ceil_output_0"
"""Tensor of VITS with each phoneme's length (Piper's own ``patch_voice_with_alignment``)."""

_FLITE_FORMAT = re.compile(r"(?P<phone>\S+):(?P<end_s>[\d.]+)")
_NO_PHONES = frozenset(" ˈˌ.,?!;:'\"-^$_ː")
"""What Piper's phoneme lists hold beside phonemes; length marks change with the place."""


class Voice(Protocol):
    """``say`` gives a dry clip; ``pace`` 1.2 is a fifth slower than the voice's own."""

    source: str
    speaker: str

    def say(self, written: Written, pace: float) -> Clip: ...


class Flite:
    """A voice of Debian's flite. Raises ``FileNotFoundError`` if the program is absent."""

    def __init__(self, voice: str) -> None:
        if shutil.which("flite") is None:
            raise FileNotFoundError("The program flite is absent. Run: apt-get install flite")
        self.source = f"synthetic:flite-{voice}"
        self.speaker = f"flite-{voice}"
        self._voice = voice

    def say(self, written: Written, pace: float) -> Clip:
        with tempfile.TemporaryDirectory() as folder:
            wav = Path(folder) / "said.wav"
            printed = self._run(written.text, "-psdur", wav, pace)
            samples, rate = soundfile.read(wav, dtype="float32")
        signal: Signal = soxr.resample(samples, rate, LISTEN_RATE, quality="HQ")
        ends = _flite_ends(printed)
        borders = []
        for mark in written.marks:
            said = _flite_phones(self._run(mark.before, "-ps", None, pace))
            if len(said) < len(ends):
                at = int(ends[len(said) - 1] * LISTEN_RATE)
                borders.append(
                    Border(_placed(signal, at), mark.kind, mark.words, mark.kind == "sentence")
                )
        return _clip(self, written, signal, borders)

    def _run(self, text: str, show: str, wav: Path | None, pace: float) -> str:
        target = str(wav) if wav else "none"
        stretch = f"duration_stretch={pace:.3f}"
        command = [
            "flite",
            "-voice",
            self._voice,
            "--setf",
            stretch,
            show,
            "-t",
            text,
            "-o",
            target,
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout


def _flite_phones(printed: str) -> list[str]:
    return [phone for phone in printed.split() if phone != "pau"]


def _flite_ends(printed: str) -> list[float]:
    """End of each phone in seconds. Each sentence begins at 0 again, and with a pause."""
    ends: list[float] = []
    before_s = latest_s = 0.0
    for found in _FLITE_FORMAT.finditer(printed):
        end_s = float(found["end_s"])
        if before_s + end_s < latest_s:
            before_s = latest_s
        latest_s = before_s + end_s
        if found["phone"] != "pau":
            ends.append(latest_s)
    return ends


class Piper:
    """The voice ``name`` of the project's Piper weights, with its network's own randomness.

    The draws follow each other, so the same texts in the same order give the same samples.
    """

    def __init__(self, weights: Path, name: str, seed: int) -> None:
        import json

        from piper import PiperVoice
        from piper.config import PiperConfig

        model = find_models(weights)[name]
        described = json.loads(model_file(weights, f"{model.name}.json").read_text("utf-8"))
        self.source = f"synthetic:piper-{name}"
        self.speaker = f"piper-{name}"
        self._voice: Any = PiperVoice(
            session=_with_durations(model, seed), config=PiperConfig.from_dict(described)
        )

    def say(self, written: Written, pace: float) -> Clip:
        from piper.config import SynthesisConfig

        settings = SynthesisConfig(length_scale=self._voice.config.length_scale * pace)
        parts: list[Any] = []
        ends: list[int] = []
        position = 0
        rate = int(self._voice.config.sample_rate)
        for chunk in self._voice.synthesize(written.text, settings, include_alignments=True):
            for aligned in chunk.phoneme_alignments or ():
                position += int(aligned.num_samples)
                if aligned.phoneme not in _NO_PHONES:
                    ends.append(position)
            parts.append(chunk.audio_float_array)
            position = sum(len(part) for part in parts)
        said = np.concatenate(parts)
        signal: Signal = soxr.resample(said, rate, LISTEN_RATE, quality="HQ").astype(np.float32)
        borders = []
        for mark in written.marks:
            count = self._phones(mark.before)
            if count < len(ends):
                at = ends[count - 1] * LISTEN_RATE // rate
                borders.append(
                    Border(_placed(signal, at), mark.kind, mark.words, mark.kind == "sentence")
                )
        return _clip(self, written, signal, borders)

    def _phones(self, text: str) -> int:
        sentences: Sequence[Sequence[str]] = self._voice.phonemize(text)
        return sum(phone not in _NO_PHONES for sentence in sentences for phone in sentence)


def _with_durations(model: Path, seed: int) -> Any:
    """The network with one output more: the length of each phoneme.

    Protocol buffers merge: bytes of a graph with one output, put behind the file's own, add that
    output to its graph. That spares the onnx package.
    """
    import onnxruntime

    name = _DURATIONS.encode()
    value = b"\x0a" + bytes([len(name)]) + name  # ValueInfoProto.name = 1
    graph = b"\x62" + bytes([len(value)]) + value  # GraphProto.output = 12
    more = b"\x3a" + bytes([len(graph)]) + graph  # ModelProto.graph = 7
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    onnxruntime.set_seed(seed)
    return onnxruntime.InferenceSession(
        model.read_bytes() + more, settings, ["CPUExecutionProvider"]
    )


def _placed(signal: Signal, at: int) -> int:
    """The middle of the silence at ``at``, or the softest place within 25 ms."""
    for silence in silences(signal, shortest_s=0.05):
        if silence.start - _NEAR_SAMPLES <= at <= silence.end + _NEAR_SAMPLES:
            return (silence.start + silence.end) // 2
    return quietest(signal, at - _NEAR_SAMPLES, at + _NEAR_SAMPLES)


def _clip(voice: Voice, written: Written, signal: Signal, borders: list[Border]) -> Clip:
    name = re.sub(r"[^a-z0-9]+", "-", written.text.lower()).strip("-")[:40].rstrip("-")
    return Clip(
        name=f"{voice.speaker}-{name}",
        source=voice.source,
        speaker=voice.speaker,
        kind=written.kind,
        text=written.text,
        signal=signal,
        borders=tuple(borders),
        asked=written.asked,
    )
