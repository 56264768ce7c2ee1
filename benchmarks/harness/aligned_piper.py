"""Piper with word boundaries, taken from the network rather than from the sound.

A VITS network first decides how many samples each phoneme lasts; here that is a second output.
"I need eggs, milk, and bread" begins with the phonemes of "I need eggs", so their number locates
the end of "eggs" in the whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from benchmarks.harness.acoustics import Signal
from pipeline.engines.onnx import model_file
from pipeline.engines.tts.piper import find_models

_DURATIONS = "/Ceil_output_0"
"""Tensor of VITS with each phoneme's length (Piper's own ``patch_voice_with_alignment``)."""
_NO_PHONES = frozenset(" ˈˌ.,?!;:'\"-^$_ː")
"""Symbols in Piper's phoneme lists that are not phonemes; length marks vary with position."""


class AlignedPiper:
    """The voice ``name`` of the project's Piper weights.

    The network draws from one generator, seeded with ``seed``, for all texts: only the same texts
    in the same order produce the same samples. ``rate`` in Hz.
    """

    def __init__(self, weights: Path, name: str, seed: int) -> None:
        from piper import PiperVoice
        from piper.config import PiperConfig

        model = find_models(weights)[name]
        config = json.loads(model_file(weights, f"{model.name}.json").read_text("utf-8"))
        self._voice: Any = PiperVoice(
            session=_with_durations(model, seed), config=PiperConfig.from_dict(config)
        )
        self.rate = int(self._voice.config.sample_rate)

    def say(self, text: str, pace: float) -> tuple[Signal, list[int]]:
        """The samples, and the index at which each phoneme ends. ``pace`` 1.2 is a fifth slower."""
        from piper.config import SynthesisConfig

        settings = SynthesisConfig(length_scale=self._voice.config.length_scale * pace)
        parts: list[Any] = []
        ends: list[int] = []
        position = 0
        for chunk in self._voice.synthesize(text, settings, include_alignments=True):
            for alignment in chunk.phoneme_alignments or ():
                position += int(alignment.num_samples)
                if alignment.phoneme not in _NO_PHONES:
                    ends.append(position)
            parts.append(chunk.audio_float_array)
            position = sum(len(part) for part in parts)
        return np.concatenate(parts), ends

    def phones(self, text: str) -> int:
        """The number of phonemes of ``text``."""
        sentences: Sequence[Sequence[str]] = self._voice.phonemize(text)
        return sum(phone not in _NO_PHONES for sentence in sentences for phone in sentence)


def _with_durations(model: Path, seed: int) -> Any:
    """The network with one more output: the length of each phoneme.

    Protocol buffers merge: the bytes of a graph with one output, appended to the file, add that
    output to its graph. So the onnx package is not needed.
    """
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
