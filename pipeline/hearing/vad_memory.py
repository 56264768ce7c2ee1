"""A VAD's memory of one stream, apart from those of others.

A network like Silero has a memory that nothing clears. What it has heard of a room is worth
keeping: it tells music and motors from speech. But what a canceller leaves of a voice is no speech
either, and after some answers the network takes clear words for the same (``docs/echo.md``). So
each stretch of echo has memories of its own (``pipeline.hearing.listening``).
"""

from __future__ import annotations

from pipeline.audio import Pcm
from pipeline.engines.stages import VadStage, VadStreamStage
from pipeline.hearing import tuning


class VadMemory:
    """One stream of windows, and whether there is speech in it."""

    def __init__(self, vad: VadStreamStage) -> None:
        self._vad = vad
        self._silent_samples = 0

    @classmethod
    async def open(cls, stage: VadStage) -> VadMemory:
        return cls(await stage.open())

    @property
    def silent(self) -> bool:
        """Whether there was no speech for 256 ms."""
        return self._silent_samples >= tuning.SILENT_SAMPLES

    async def score(self, pcm: Pcm) -> float:
        """0 to 1. Raises what the engine does."""
        score = await self._vad.score(pcm)
        silent = score < tuning.SILENT_SCORE
        self._silent_samples = self._silent_samples + len(pcm) if silent else 0
        return score

    def close(self) -> None:
        self._vad.close()
