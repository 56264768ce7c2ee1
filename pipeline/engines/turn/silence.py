"""No turn detection: every pause looks equally final, so the wait alone decides.

With the default probability of 1, a turn ends after ``endpointing.clear_wait_ms`` of silence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind


class SilenceOptions(EngineOptions):
    engine: Literal["silence"] = "silence"
    probability: float = Field(default=1.0, ge=0, le=1)
    """The score of every pause; it selects one of the three waits under ``endpointing``."""


class Silence:
    """A turn detector that does not listen."""

    rate = LISTEN_RATE
    history_seconds = 0.0

    def __init__(self, probability: float) -> None:
        self._probability = probability

    def score(self, pcm: Pcm, text: str) -> float:
        return self._probability


def build(options: SilenceOptions, weights: Path | None) -> Silence:
    return Silence(options.probability)


SPEC = EngineSpec(
    name="silence",
    kind=Kind.TURN,
    options=SilenceOptions,
    build=build,
    summary="a plain timer: no model, the wait after speech decides",
    run_in="inline",
)
