"""Silero VAD: how likely each 32 ms of audio is speech.

Where it is loud the network hears each window twice: as it is, and with the noise taken out
(``noise``), for speech that is no louder than the noise. The higher score counts. About 0.2 ms of
CPU per window, 0.4 where it is loud.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.engines.onnx import model_file, open_session
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.engines.vad.noise import LOUD_DBFS, NoiseReducer, SecondOpinion

WINDOW_SAMPLES = 512
"""New samples per score (32 ms); the network accepts no other number at 16 kHz."""
_CONTEXT_SAMPLES = 64
"""Samples of the window before that the network sees again (silero-vad 6, ``OnnxWrapper``)."""
_STATE_SHAPE = (2, 1, 128)


class SileroOptions(EngineOptions):
    engine: Literal["silero"] = "silero"
    weights: str = "silero-vad"
    """Catalogue entry with ``silero_vad.onnx``."""


class SileroVad:
    """The network. Streams share it; each has its own state."""

    rate = LISTEN_RATE
    window_samples = WINDOW_SAMPLES

    def __init__(self, session: Any) -> None:
        self._session = session

    def open(self) -> SileroStream:
        return SileroStream(self._session)


class SileroStream:
    """Speech scores for one stream of 16 kHz audio."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._plain = _Network(session)
        self._noise = NoiseReducer(WINDOW_SAMPLES)
        self._second: tuple[_Network, SecondOpinion] | None = None
        """For the sound without noise; begins anew each time it gets loud."""

    def score(self, pcm: Pcm) -> float:
        """Probability of speech in the next 512 samples. Raises ``ValueError`` on other lengths."""
        if len(pcm) != WINDOW_SAMPLES:
            raise ValueError(f"Silero takes {WINDOW_SAMPLES} samples at a time, not {len(pcm)}")
        plain = self._plain.score(pcm)
        self._noise.hear(pcm)
        if self._noise.noise_dbfs < LOUD_DBFS:
            self._noise.learn(plain)
            self._second = None
            return plain
        if self._second is None:
            self._second = _Network(self._session), SecondOpinion(WINDOW_SAMPLES)
        network, opinion = self._second
        reduced = network.score(self._noise.reduced())
        self._noise.learn(max(plain, reduced))
        return opinion.together(plain, reduced)


class _Network:
    """The network's state on one stream."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._rate = np.array(LISTEN_RATE, dtype=np.int64)
        self._samples = np.zeros((1, _CONTEXT_SAMPLES + WINDOW_SAMPLES), dtype=np.float32)
        self._state = np.zeros(_STATE_SHAPE, dtype=np.float32)

    def score(self, pcm: Pcm) -> float:
        self._samples[0, :_CONTEXT_SAMPLES] = self._samples[0, -_CONTEXT_SAMPLES:]
        self._samples[0, _CONTEXT_SAMPLES:] = to_float(pcm)
        probability, self._state = self._session.run(
            None, {"input": self._samples, "state": self._state, "sr": self._rate}
        )
        return float(probability[0, 0])


def build(options: SileroOptions, weights: Path | None) -> SileroVad:
    """Load the network and run it once. Raises ``WeightsError``."""
    vad = SileroVad(open_session(model_file(weights, "silero_vad.onnx")))
    vad.open().score(np.zeros(WINDOW_SAMPLES, dtype=np.int16))
    return vad


SPEC = EngineSpec(
    name="silero",
    kind=Kind.VAD,
    options=SileroOptions,
    build=build,
    summary="Silero VAD 6 on onnxruntime, 32 ms windows",
    extra="embedded",
    modules=("onnxruntime",),
    run_in="inline",
)
