"""What a VAD remembers of a stream, and when that is dropped.

A network like Silero has a memory that nothing clears. What it has heard of a room is worth
keeping: it tells music and motors from speech. But what a canceller leaves of a voice is no speech
either, and after some answers the network takes clear words for the same (``docs/echo.md``). So
each answer's echo has a memory of its own (``pipeline.listening``).
"""

from __future__ import annotations

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.stages import VadStage, VadStreamStage

_SILENT_SAMPLES = 256 * LISTEN_RATE // 1000
"""Longer than a closure within a word."""
_SILENT_SCORE = 0.2


class VadMemory:
    """One stream of windows, which can begin anew."""

    def __init__(self, stage: VadStage, vad: VadStreamStage) -> None:
        self._stage = stage
        self._vad = vad
        self._silent_samples = 0
        self._forgets = False

    @classmethod
    async def open(cls, stage: VadStage) -> VadMemory:
        return cls(stage, await stage.open())

    @property
    def silent(self) -> bool:
        """Whether nobody has spoken for 256 ms."""
        return self._silent_samples >= _SILENT_SAMPLES

    def forget(self) -> None:
        """With the next window it begins anew."""
        self._forgets = True

    async def score(self, pcm: Pcm) -> float:
        """0 to 1. Raises what the engine does."""
        if self._forgets:
            vad = await self._stage.open()
            self._vad.close()
            self._vad, self._silent_samples, self._forgets = vad, 0, False
        score = await self._vad.score(pcm)
        silent = score < _SILENT_SCORE
        self._silent_samples = self._silent_samples + len(pcm) if silent else 0
        return score

    def close(self) -> None:
        self._vad.close()
