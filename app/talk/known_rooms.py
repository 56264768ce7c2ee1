"""Stores learnt echo paths from this machine's loudspeaker to its microphone on disk.

One small file per pair of devices, so that even the first word after a start has no echo.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import zipfile
from pathlib import Path

import numpy as np

from pipeline.echo.canceller import EchoCanceller, EchoState
from pipeline.echo.path import EchoMemory

log = logging.getLogger("reachy_voice.talk")


class KnownRooms:
    """One directory, some 90 kB per file. Both methods block."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def of(self, microphone: str, speaker: str) -> EchoMemory | None:
        """The echo path of these two; ``None``: unknown or unreadable."""
        path = self._path(microphone, speaker)
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
                state = EchoState(
                    arrays["weights"],
                    arrays["leakage_db"],
                    float(arrays["ppm"]),
                    float(arrays["lag_samples"]),
                )
                EchoCanceller().restore(state)
                return EchoMemory(state, int(arrays["delay_samples"]), int(arrays["later_samples"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, LookupError, EOFError, zipfile.BadZipFile) as error:
            log.warning("the stored echo path in %s cannot be used: %s", path, error)
            return None

    def keep(self, microphone: str, speaker: str, room: EchoMemory | None) -> None:
        """Store ``room``; ``None`` deletes it: there is no echo any more."""
        path = self._path(microphone, speaker)
        try:
            if room is None:
                path.unlink(missing_ok=True)
                return
            self._directory.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(f".{os.getpid()}.new")
            with new.open("wb") as file:
                np.savez(
                    file,
                    weights=room.state.weights,
                    leakage_db=room.state.leakage_db,
                    ppm=room.state.ppm,
                    lag_samples=room.state.lag_samples,
                    delay_samples=room.delay_samples,
                    later_samples=room.later_samples,
                )
            new.replace(path)
        except OSError as error:
            log.warning("the learnt echo path cannot be stored in %s: %s", path, error)

    def _path(self, microphone: str, speaker: str) -> Path:
        pair = hashlib.sha256(f"{microphone}\n{speaker}".encode()).hexdigest()[:16]
        return self._directory / f"echo-{pair}.npz"
