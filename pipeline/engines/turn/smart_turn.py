"""Smart Turn v3.2: how likely it is, from the sound alone, that the speaker is done.

It hears intonation, not words, and ignores the text. Its answer is most useful right after the
speech ends: the longer the silence at the end, the more it tends to say that the turn is over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.engines.onnx import model_file, open_session
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.engines.turn.log_mel import log_mel

HISTORY_SECONDS = 8.0
"""The network's fixed input length."""
_HISTORY_SAMPLES = int(HISTORY_SECONDS * LISTEN_RATE)
_VARIANCE_FLOOR = 1e-7
"""Avoids division by zero when silence is normalised (Whisper's feature extractor)."""


class SmartTurnOptions(EngineOptions):
    engine: Literal["smart-turn"] = "smart-turn"
    weights: str = "smart-turn-v3.2"
    """Catalogue entry with ``smart-turn-v3.2-cpu.onnx``."""


class SmartTurn:
    """The network behind ``TurnDetector``."""

    rate = LISTEN_RATE
    history_seconds = HISTORY_SECONDS

    def __init__(self, session: Any) -> None:
        self._session = session

    def score(self, pcm: Pcm, text: str) -> float:
        """Probability that the turn is over. ``pcm``: 16 kHz, any length; only the last 8 s are
        used."""
        (probability,) = self._session.run(None, {"input_features": features(pcm)[np.newaxis]})
        return float(probability[0, 0])


def features(pcm: Pcm) -> NDArray[np.float32]:
    """The network's input for the last 8 s, shape ``(80, 800)``; shorter audio is padded at the
    front."""
    samples = np.zeros(_HISTORY_SAMPLES, dtype=np.float32)
    speech = to_float(pcm[-_HISTORY_SAMPLES:])
    samples[_HISTORY_SAMPLES - len(speech) :] = speech
    return log_mel((samples - samples.mean()) / np.sqrt(samples.var() + _VARIANCE_FLOOR))


def build(options: SmartTurnOptions, weights: Path | None) -> SmartTurn:
    """Load the network and run it once. Raises ``WeightsError``."""
    detector = SmartTurn(open_session(model_file(weights, "smart-turn-v3.2-cpu.onnx")))
    detector.score(np.zeros(LISTEN_RATE, dtype=np.int16), "")
    return detector


SPEC = EngineSpec(
    name="smart-turn",
    kind=Kind.TURN,
    options=SmartTurnOptions,
    build=build,
    summary="Smart Turn v3.2 on onnxruntime, listens to the last 8 s",
    extra="embedded",
    modules=("onnxruntime",),
    run_in="thread",
)
