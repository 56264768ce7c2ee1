"""Learns a person's voice from a recording of 20 s of speech."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import numpy as np

from app.models.engine_set import engines_alone
from app.models.weights import WeightsCache
from app.settings.model import Settings
from pipeline.audio import LISTEN_RATE, Framer, Pcm
from pipeline.engines.contract import Embedding
from pipeline.engines.registry import Kind
from pipeline.engines.stages import SpeakerStage, VadStage, VadStreamStage
from pipeline.engines.voices import ENROLMENT_S, PIECE_S, EnrolmentError, learned
from pipeline.work import Priority, Work
from pipeline.workers.stages import speaker_stage, vad_stage

SPEECH_SCORE = 0.5
"""VAD score from which a window counts as speech."""


class Enrolment:
    """Takes sound at 16 kHz, piece by piece, and keeps the speech in it."""

    def __init__(self, vad: VadStage) -> None:
        self._vad = vad
        self._work = Work(Priority.BACKGROUND)
        self._stream: VadStreamStage | None = None
        self._framer = Framer(vad.window_samples)
        self._speech: list[Pcm] = []
        self._samples = 0

    @property
    def speech_s(self) -> float:
        return self._samples / LISTEN_RATE

    @property
    def complete(self) -> bool:
        return self.speech_s >= ENROLMENT_S

    async def hear(self, pcm: Pcm) -> None:
        """Take sound at 16 kHz. Raises what the VAD raises."""
        if self._stream is None:
            self._stream = await self._vad.open(self._work)
        for window in self._framer.feed(pcm):
            if await self._stream.score(window.pcm) >= SPEECH_SCORE and not self.complete:
                self._speech.append(window.pcm)
                self._samples += len(window.pcm)

    async def voice(self, speaker: SpeakerStage) -> Embedding:
        """The learned voice. Raises ``EnrolmentError`` for too little speech, or speech of two
        people, and what the engine raises."""
        if self._stream:
            self._stream.close()
        if not self.complete:
            raise EnrolmentError(
                f"There are {self.speech_s:.0f} s of speech in this recording, not {ENROLMENT_S:g}",
                why="pauses, noise and very soft speech do not count",
                fix="Read something aloud for half a minute, near the microphone",
            )
        speech = np.concatenate(self._speech)
        size = int(PIECE_S * LISTEN_RATE)
        starts = range(0, len(speech) - size + 1, size)
        return learned([await speaker.embed(speech[at : at + size], self._work) for at in starts])


async def voice_alone(
    settings: Settings,
    cache: WeightsCache,
    sound: AsyncIterator[Pcm],
    tell: Callable[[float], None] = lambda speech_s: None,
) -> Embedding:
    """Learn a voice with engines started for it. ``sound``: pieces at 16 kHz; taken until there is
    enough speech. ``tell`` gets the seconds of speech so far. Raises
    ``ReachyVoiceError``."""
    async with engines_alone(settings, cache, Kind.VAD, Kind.SPEAKER) as (vad, speaker):
        enrolment = Enrolment(vad_stage(vad))
        async for pcm in sound:
            await enrolment.hear(pcm)
            tell(enrolment.speech_s)
            if enrolment.complete:
                break
        return await enrolment.voice(speaker_stage(speaker))
