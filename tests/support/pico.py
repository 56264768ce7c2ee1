"""Voices for German, English, Spanish, French and Italian that recognisers understand: SVOX Pico
(Apache-2.0), from the package ``py-nanotts``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import numpy as np

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.messages import SpeechRequest
from pipeline.work import Work

VOICES = {"de": "de-DE", "en": "en-GB", "es": "es-ES", "fr": "fr-FR", "it": "it-IT"}
_CHUNK_SAMPLES = LISTEN_RATE // 5


def spoken_by_pico(text: str, language: str, *, pitch: float = 1.0) -> Pcm:
    """``text`` as speech at 16 kHz, without silence around it."""
    from py_nanotts import NanoTTS

    data = NanoTTS().speak(text, voice=VOICES[language], pitch=pitch)
    pcm = np.frombuffer(data, np.int16)
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > 600)
    return pcm[loud[0] : loud[-1] + 1] if len(loud) else pcm


@dataclass
class PicoTts:
    """A ``TtsStage`` that takes 20 ms for a clause."""

    rate: int = LISTEN_RATE
    voices: tuple[str, ...] = ("pico",)

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        pcm = await asyncio.to_thread(spoken_by_pico, request.text, request.language or "en")
        for start in range(0, len(pcm), _CHUNK_SAMPLES):
            yield pcm[start : start + _CHUNK_SAMPLES]
