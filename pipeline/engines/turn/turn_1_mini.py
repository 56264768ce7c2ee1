"""turn-1-mini: how likely it is, from the sound alone, that the speaker is done.

The network takes 160 ms per step and keeps its state between steps, so that a later pause of the
same turn costs only what was said since. Its published interface:
https://huggingface.co/p99lab/turn-1-mini/blob/main/onnx/README.md
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import EMPTY, LISTEN_RATE, Pcm, to_float
from pipeline.engines.onnx import open_session, unreadable
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.errors import WeightsError

STEP_SAMPLES = 2560
"""Input of one run: 160 ms."""
FRAME_SAMPLES = 320
"""Audio per probability in the output: 20 ms."""
HISTORY_SECONDS = 16.0
"""Only this much of a longer turn is used. Reading all of it afresh takes 0.1 to 0.2 s on one
core."""
_STATES = ("audio", "conv1", "conv2", "k", "v", "k_valid", "h6")

State = dict[str, NDArray[np.float32]]


class Turn1MiniOptions(EngineOptions):
    engine: Literal["turn-1-mini"] = "turn-1-mini"
    model_file: str
    """Path of the graph of one step: ``onnx/turn-1-mini.step.onnx`` of the published repository
    (22 MB), or ``onnx/turn-1-mini.step.int8dyn.onnx``, the same in 8 bits (7 MB)."""


class Turn1Mini:
    """The network behind ``TurnDetector``. Not thread-safe."""

    rate = LISTEN_RATE
    history_seconds = HISTORY_SECONDS

    def __init__(self, session: Any) -> None:
        self._session = session
        self._silent: State = {
            each.name: np.zeros(each.shape, dtype=np.float32)
            for each in session.get_inputs()
            if each.name != "audio"
        }
        self._scored, self._state, self._probability = EMPTY, self._silent, 0.0
        """The whole steps of the audio scored last, and the state and probability after them."""

    def score(self, pcm: Pcm, text: str) -> float:
        """Probability that the turn is over. ``pcm``: 16 kHz, any length; only the last 16 s are
        used."""
        pcm = pcm[-int(HISTORY_SECONDS * LISTEN_RATE) :]
        known, state, probability = len(self._scored), self._state, self._probability
        if not np.array_equal(self._scored, pcm[:known]):
            known, state, probability = 0, self._silent, 0.0
        whole = len(pcm) - len(pcm) % STEP_SAMPLES
        for start in range(known, whole, STEP_SAMPLES):
            probabilities, state = self._step(pcm[start : start + STEP_SAMPLES], state)
            probability = float(probabilities[-1])
        self._scored, self._state, self._probability = pcm[:whole].copy(), state, probability
        rest = pcm[whole:]
        frames = len(rest) // FRAME_SAMPLES
        if not frames:
            return probability
        probabilities, _ = self._step(np.pad(rest, (0, STEP_SAMPLES - len(rest))), state)
        return float(probabilities[frames - 1])

    def _step(self, pcm: Pcm, state: State) -> tuple[NDArray[np.float32], State]:
        outputs = ["probs", *(f"new_state_{name}" for name in _STATES)]
        probabilities, *states = self._session.run(
            outputs, {"audio": to_float(pcm)[np.newaxis], **state}
        )
        new = {f"state_{name}": each for name, each in zip(_STATES, states, strict=True)}
        return probabilities.reshape(-1), new


def build(options: Turn1MiniOptions, weights: Path | None) -> Turn1Mini:
    """Load the network and run it once. Raises ``WeightsError``."""
    path = Path(options.model_file).expanduser()
    if not path.is_file():
        raise WeightsError(
            f"The model file {path} is missing",
            fix="Fetch it from https://huggingface.co/p99lab/turn-1-mini, and set turn.model_file",
        )
    detector = Turn1Mini(open_session(path))
    try:
        detector.score(np.zeros(STEP_SAMPLES, dtype=np.int16), "")
    except Exception as error:  # another graph; the runtime's exception types are not public
        raise unreadable(path, error) from error
    return detector


SPEC = EngineSpec(
    name="turn-1-mini",
    kind=Kind.TURN,
    options=Turn1MiniOptions,
    build=build,
    summary="turn-1-mini on onnxruntime, English, 1.3 ms for each 160 ms of speech",
    extra="embedded",
    modules=("onnxruntime",),
    run_in="thread",
)
