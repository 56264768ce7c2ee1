"""Silero VAD: how likely each 32 ms of audio is speech.

In loud noise the network scores each window twice: as it is, and with the noise removed
(``noise``), to detect speech no louder than the noise. The higher score counts. About 0.2 ms of CPU
per window, 0.4 in loud noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.engines.onnx import model_file, open_session
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.engines.vad.noise import LOUD_DBFS, NoiseReducer, SecondOpinion

WINDOW_SAMPLES = 512
"""New samples per score (32 ms); the network accepts no other number at 16 kHz."""
_CONTEXT_SAMPLES = 64
"""Samples of the previous window that the network sees again (silero-vad 6, ``OnnxWrapper``)."""
_STATE_SHAPE = (2, 128)
LEAST_MOVEMENT_DB = 1.4
"""Silero may take the buzz of a motor for speech. Synthetic motors near the microphone move by at
most 1.2 dB in 0.6 s or more (n 420), people by at least 2.5 (n 1,341)."""


class SileroOptions(EngineOptions):
    engine: Literal["silero"] = "silero"
    weights: str = "silero-vad"
    """Catalogue entry with ``silero_vad.onnx``."""
    batch: bool = False
    """Score the windows of many clients in one run, once twelve are connected: for a process of a
    fleet, which takes 28 % less processor time and answers 6 ms later. Only inline."""

    @property
    def batched(self) -> bool:
        return self.batch


class SileroVad:
    """The network. Streams share it; each has its own state."""

    rate = LISTEN_RATE
    window_samples = WINDOW_SAMPLES
    least_movement_db = LEAST_MOVEMENT_DB

    def __init__(self, session: Any) -> None:
        self._session = session
        self._rate = np.array(LISTEN_RATE, dtype=np.int64)

    def open(self) -> SileroStream:
        return SileroStream(self)

    def score_all(self, windows: Sequence[tuple[SileroStream, Pcm]]) -> list[float]:
        """Probability of speech in the next 512 samples of each stream. Eight at once take half the
        time of eight one by one. Raises ``ValueError`` on other lengths."""
        for _, pcm in windows:
            if len(pcm) != WINDOW_SAMPLES:
                raise ValueError(f"Silero takes {WINDOW_SAMPLES} samples at a time, not {len(pcm)}")
        scores = self._run([(stream.plain, pcm) for stream, pcm in windows])
        loud = [n for n, (stream, pcm) in enumerate(windows) if stream.hear(pcm, scores[n])]
        seconds = [windows[n][0].second() for n in loud]
        for n, reduced in zip(loud, self._run(seconds), strict=True):
            scores[n] = windows[n][0].combined(scores[n], reduced)
        return scores

    def _run(self, windows: Sequence[tuple[_State, Pcm]]) -> list[float]:
        if not windows:
            return []
        samples = np.stack([state.with_next(pcm) for state, pcm in windows])
        memory = np.stack([state.memory for state, _ in windows], axis=1)
        inputs = {"input": samples, "state": memory, "sr": self._rate}
        probabilities, memory = self._session.run(None, inputs)
        for n, (state, _) in enumerate(windows):
            state.memory = memory[:, n]
        scores: list[float] = probabilities[:, 0].tolist()
        return scores


class _State:
    """The network's state for one stream."""

    def __init__(self) -> None:
        self.memory = np.zeros(_STATE_SHAPE, dtype=np.float32)
        self._samples = np.zeros(_CONTEXT_SAMPLES + WINDOW_SAMPLES, dtype=np.float32)

    def with_next(self, pcm: Pcm) -> NDArray[np.float32]:
        """The next window, preceded by the end of the previous one."""
        self._samples[:_CONTEXT_SAMPLES] = self._samples[-_CONTEXT_SAMPLES:]
        self._samples[_CONTEXT_SAMPLES:] = to_float(pcm)
        return self._samples


class SileroStream:
    """Speech scores for one stream of 16 kHz audio."""

    def __init__(self, vad: SileroVad) -> None:
        self._vad = vad
        self.plain = _State()
        self._noise = NoiseReducer(WINDOW_SAMPLES)
        self._second: tuple[_State, SecondOpinion] | None = None
        """For the sound without noise; starts afresh each time the noise gets loud."""

    def score(self, pcm: Pcm) -> float:
        """Probability of speech in the next 512 samples. Raises ``ValueError`` on other lengths."""
        return self._vad.score_all([(self, pcm)])[0]

    def hear(self, pcm: Pcm, plain: float) -> bool:
        """Take a window and its score. Returns whether it must also be scored without noise."""
        self._noise.hear(pcm)
        if self._noise.noise_dbfs >= LOUD_DBFS:
            return True
        self._noise.learn(plain)
        self._second = None
        return False

    def second(self) -> tuple[_State, Pcm]:
        """The newest window without noise."""
        if self._second is None:
            self._second = _State(), SecondOpinion(WINDOW_SAMPLES)
        return self._second[0], self._noise.reduced()

    def combined(self, plain: float, reduced: float) -> float:
        """The two scores of the newest window, combined into one."""
        assert self._second
        self._noise.learn(max(plain, reduced))
        return self._second[1].together(plain, reduced)


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
