"""Cuts the sound of part of a session out of its recording, even an incomplete one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soxr

from pipeline.audio import WAV_HEADER_BYTES, Pcm, wav
from pipeline.recording.plain import RecordingError

EXCERPT_RATE = 24_000


def excerpt(folder: Path, start_s: float, end_s: float) -> bytes:
    """A WAV file of part of a session, in seconds since it began: input left, output right, 24 kHz.
    Raises ``RecordingError``."""
    if not any(folder.glob("*.wav")):
        raise RecordingError(f"Cannot read {folder}", why="it has no sound", fix="Restore it")
    stereo = np.zeros((round((end_s - start_s) * EXCERPT_RATE), 2), np.int16)
    for channel, name in enumerate(("heard", "sent")):
        for path in sorted(folder.glob(f"{name}-*.wav")):
            rate = int(path.stem.rpartition("-")[2])
            pcm = _samples(path, round(start_s * rate), round((end_s - start_s) * rate))
            if rate != EXCERPT_RATE:
                pcm = soxr.resample(pcm, rate, EXCERPT_RATE)
            # After a change of rate the session goes on in another file, and the first is silent.
            stereo[: len(pcm), channel] |= pcm[: len(stereo)]
    return wav(stereo.reshape(-1), EXCERPT_RATE, channels=2)


def _samples(path: Path, start: int, count: int) -> Pcm:
    try:
        offset = WAV_HEADER_BYTES + 2 * start
        return np.fromfile(path, "<i2", count, offset=offset).astype(np.int16)
    except OSError as error:
        raise RecordingError(
            f"Cannot read {path}", why=error.strerror or str(error), fix="Restore it"
        ) from error
