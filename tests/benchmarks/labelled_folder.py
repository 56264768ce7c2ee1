"""Fabricated labels and recordings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile


def label(
    kind: str, end_s: float, gap_ms: float, turn_ms: float, start_s: float, **more: Any
) -> dict[str, Any]:
    """A pause of recording ``a``, unless ``more`` says another."""
    times = {"turn_start_s": start_s, "turn_ms": turn_ms, "speech_end_s": end_s, "gap_ms": gap_ms}
    return {"recording": "a", "label": kind, **times, **more}


def labels(source: Path, *pauses: dict[str, Any]) -> None:
    source.mkdir(exist_ok=True)
    (source / "labels.json").write_text(json.dumps(pauses))


def recording(
    file: Path, *spoken_s: Sequence[tuple[float, float]], seconds: float, rate: int = 16_000
) -> None:
    """One channel for each of ``spoken_s``; speech is loud, the rest nearly silent."""
    sound = np.full((round(seconds * rate), len(spoken_s)), 3, np.int16)
    for channel, spans in enumerate(spoken_s):
        for start, end in spans:
            sound[round(start * rate) : round(end * rate), channel] = 2000
    soundfile.write(file, sound, rate)
