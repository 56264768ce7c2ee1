"""Scores how likely the sound is speech, with a separate VAD memory for each stream.

A network like Silero has a memory that nothing clears. Its memory of the room is worth keeping,
because it tells music and motors from speech. But a canceller's residual of a voice is not speech
either, and after some answers the network takes clear words for residual, too (``docs/echo.md``).
So each stretch of echo gets its own memories.
"""

from __future__ import annotations

import asyncio
import logging

from pipeline.audio import Pcm
from pipeline.echo.path import EchoWindow
from pipeline.engines.stages import Stages, VadStage, VadStreamStage
from pipeline.errors import ReachyVoiceError
from pipeline.hearing import tuning
from pipeline.hearing.direction import Directions
from pipeline.hearing.nearness import WindowEvidence
from pipeline.work import Cancelled, Work

log = logging.getLogger("reachy_voice.session")


class VadMemory:
    """One VAD stream, opened at its first window, and whether there is speech in it."""

    def __init__(self, stage: VadStage) -> None:
        self._stage = stage
        self._stream: VadStreamStage | None = None
        self._silent_samples = 0

    @property
    def silent(self) -> bool:
        """Whether there has been no speech for 256 ms."""
        return self._silent_samples >= tuning.SILENT_SAMPLES

    async def score(self, pcm: Pcm) -> float:
        """0 to 1. Raises what the engine raises."""
        if self._stream is None:
            self._stream = await self._stage.open(Work())
        score = await self._stream.score(pcm)
        silent = score < tuning.SILENT_SCORE
        self._silent_samples = self._silent_samples + len(pcm) if silent else 0
        return score

    def close(self) -> None:
        if self._stream:
            self._stream.close()


class SpeechScores:
    """Finds how likely each window is speech, and whether an echo or a direction explains it.

    If the engine fails, everything counts as silence, so that an open turn ends and is answered."""

    def __init__(self, stages: Stages, directions: Directions | None = None) -> None:
        """``directions``: of a microphone array."""
        self._stages = stages
        self._stage = stages.vad
        self._vad = VadMemory(stages.vad)
        self._echo_vads: tuple[VadMemory, VadMemory] | None = None
        """In a stretch of echo: the memories for the residual and the post-filtered residual."""
        self._since_echo_samples = 0
        self._directions = directions
        self._deaf = False

    async def evidence(self, window: EchoWindow) -> WindowEvidence:
        """What is known about the next window, but for its level."""
        if self._stage is not self._stages.vad:
            self._use_new_vad()
        try:
            return await self._evidence(window)
        except Cancelled:
            if self._stage is self._stages.vad:
                raise
            self._use_new_vad()  # the old one was closed while it scored this window
            return await self._evidence(window)

    async def _evidence(self, window: EchoWindow) -> WindowEvidence:
        scores = await self._with_echo(window)
        now, directions = asyncio.get_running_loop().time(), self._directions
        elsewhere = directions is not None and directions.elsewhere(now)
        others = directions is not None and directions.others(now)
        return WindowEvidence(*scores, window.llr, elsewhere, others)

    async def _with_echo(self, window: EchoWindow) -> tuple[float, float | None]:
        if window.post_filtered is None:
            return await self._after_echo(window.frame.pcm), None
        if self._echo_vads is None:
            self._echo_vads = self._echo_begins()
        self._since_echo_samples = 0
        first, more = self._echo_vads
        score = await self._score(first, window.frame.pcm)
        return score, await self._score(more, window.post_filtered)

    def _echo_begins(self) -> tuple[VadMemory, VadMemory]:
        """Memories for a stretch of echo. If someone is speaking, the VAD that heard the beginning
        stays in charge."""
        first, more = VadMemory(self._stage), VadMemory(self._stage)
        if not self._vad.silent:
            first, self._vad = self._vad, first
        return first, more

    async def _after_echo(self, pcm: Pcm) -> float:
        """If someone is still speaking when an echo ends, the VAD of the echo stays in charge.
        After 3 s it has heard enough of the room to be kept."""
        if self._echo_vads and self._echo_vads[0].silent:
            self._forget_echo()
        if self._echo_vads and self._since_echo_samples >= tuning.HEARD_OUT_SAMPLES:
            self._vad.close()
            self._vad, more = self._echo_vads
            self._echo_vads = None
            more.close()
        if self._echo_vads is None:
            return await self._score(self._vad, pcm)
        self._since_echo_samples += len(pcm)
        first, more = self._echo_vads
        # Its score counts again if the echo continues.
        await self._score(more, pcm)
        return await self._score(first, pcm)

    def _forget_echo(self) -> None:
        for vad in self._echo_vads or ():
            vad.close()
        self._echo_vads = None

    def _use_new_vad(self) -> None:
        """Start with the VAD that has replaced this one."""
        self.close()
        self._stage = self._stages.vad
        self._vad = VadMemory(self._stage)

    async def _score(self, vad: VadMemory, pcm: Pcm) -> float:
        try:
            score = await vad.score(pcm)
        except ReachyVoiceError as error:
            if not self._deaf:
                log.error("a session hears nothing for now: %s", error)
            score, self._deaf = 0.0, True
        else:
            self._deaf = False
        return score

    def close(self) -> None:
        self._vad.close()
        self._forget_echo()
