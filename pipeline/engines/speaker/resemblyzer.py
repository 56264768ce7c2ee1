"""Resemblyzer's voice encoder: three LSTMs that were trained to tell speakers apart (GE2E, Wan et
al. 2018, https://arxiv.org/abs/1710.10467), on onnxruntime.

It encodes windows of 1.6 s, every 0.77 s, and averages them. Windows, level and features are those
of the package ``resemblyzer``. The weights are a PyTorch checkpoint, which is read without PyTorch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.engines.contract import Embedding
from pipeline.engines.onnx import model_file, open_session, unreadable
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.engines.speaker.checkpoint import tensors
from pipeline.engines.speaker.lstm_graph import lstm_graph
from pipeline.engines.turn.log_mel import WINDOW_SAMPLES, mel_power
from pipeline.engines.voices import unit
from pipeline.work import NEVER, Cancelled, CancelToken

LAYERS, BANDS = 3, 40
WINDOW_FRAMES, STEP_FRAMES = 160, 77
"""Length of a window, and distance to the next one, in frames of 10 ms."""
LEAST_FRAMES = 120
"""A last window with fewer new frames is left out."""
LEAST_RMS = 10 ** (-30 / 20)
"""Softer speech is amplified to this level; 1 is full scale."""


class ResemblyzerOptions(EngineOptions):
    engine: Literal["resemblyzer"] = "resemblyzer"
    weights: str = "resemblyzer"
    """Catalogue entry with ``pretrained.pt``."""


class Resemblyzer:
    """The network behind ``SpeakerEncoder``."""

    rate = LISTEN_RATE

    def __init__(self, session: Any) -> None:
        self._session = session

    def embed(self, pcm: Pcm, cancel: CancelToken) -> Embedding:
        """The embedding of the voice: float32, shape ``(256,)``, unit length."""
        if cancel.cancelled:
            raise Cancelled
        batch = np.stack(windows(features(pcm)), axis=1)
        (voices,) = self._session.run(None, {"frames": batch})
        return unit(unit(voices).mean(axis=0))


def features(pcm: Pcm) -> NDArray[np.float32]:
    """Power in 40 bands every 10 ms, shape ``(frames, 40)``."""
    samples = np.pad(to_float(pcm), (0, max(0, WINDOW_SAMPLES - len(pcm))))
    rms = float(np.sqrt(np.mean(samples**2)))
    return mel_power(samples * max(1.0, LEAST_RMS / max(rms, 1e-5)), BANDS)


def windows(frames: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """The windows of an utterance: at least one, each of shape ``(160, bands)``."""
    last = max(0, len(frames) - LEAST_FRAMES)
    padded = np.pad(frames, ((0, WINDOW_FRAMES), (0, 0)))
    return [padded[at : at + WINDOW_FRAMES] for at in range(0, last + 1, STEP_FRAMES)]


def build(options: ResemblyzerOptions, weights: Path | None) -> Resemblyzer:
    """Load the network and run it once. Raises ``WeightsError``."""
    path = model_file(weights, "pretrained.pt")
    try:
        graph = lstm_graph(tensors(path, "model_state"), LAYERS)
    except (LookupError, ValueError) as error:
        raise unreadable(path, error) from error
    encoder = Resemblyzer(open_session(graph, path))
    encoder.embed(np.zeros(LISTEN_RATE, dtype=np.int16), NEVER)
    return encoder


SPEC = EngineSpec(
    name="resemblyzer",
    kind=Kind.SPEAKER,
    options=ResemblyzerOptions,
    build=build,
    summary="Resemblyzer's voice encoder on onnxruntime, 30 ms for 4 s of speech",
    extra="embedded",
    modules=("onnxruntime",),
    run_in="thread",
)
