"""Speech-to-text by URL: ``POST /v1/audio/transcriptions``, as offered by OpenAI, vLLM, speaches,
LocalAI, llama-server, Ollama and whisper.cpp's server.

One request is one pass over the whole utterance, as a WAV file. Partial transcripts are separate
passes, and off unless an interval is set.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np
from pydantic import Field

from pipeline.audio import EMPTY, LISTEN_RATE, Pcm, wav
from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.by_url.failures import complaint, garbled, refusal
from pipeline.engines.by_url.options import UrlOptions
from pipeline.engines.by_url.pool import Pool, form_body
from pipeline.engines.contract import Partial, Transcript
from pipeline.engines.registry import Kind, SttOptions, UrlEngineSpec
from pipeline.engines.stt.sound_notes import without_notes
from pipeline.errors import ReachyVoiceError
from pipeline.work import Priority, Work

MIN_SAMPLES = LISTEN_RATE // 5
"""Shorter audio is padded with silence to this; OpenAI's own API refuses less than 0.1 s."""


class TranscriptionsOptions(UrlOptions, SttOptions):
    engine: Literal["openai-transcriptions"] = "openai-transcriptions"
    language_hint: bool = True
    """Tell the server the language of the conversation; false lets it detect the language."""
    partial_interval_ms: int = Field(default=0, ge=0)
    """Audio between two partial transcripts, if a client reads them; 0 turns them off. Each one
    costs a whole request."""


class UrlStt(UrlEngine):
    """An ``SttStage``."""

    streams = False
    languages: Sequence[str] = ()
    """Unknown until a server refuses a language."""

    def __init__(self, options: TranscriptionsOptions, pool: Pool) -> None:
        super().__init__(Kind.STT, options, pool)
        self._options = options

    async def warm_up(self) -> None:
        await self.transcribe(np.zeros(LISTEN_RATE, np.int16), "", Work(Priority.WARM_UP))

    async def open(self, language: str, partials: bool, work: Work) -> UrlUtterance:
        self.pool.use()
        interval_ms = self._options.partial_interval_ms if partials else 0
        hint = language if self._options.language_hint else ""
        return UrlUtterance(self, hint, interval_ms * LISTEN_RATE // 1000)

    async def transcribe(self, pcm: Pcm, language: str, work: Work) -> str:
        """Text of 16 kHz audio, shape ``(n,)``. Raises ``EngineError``, ``Cancelled``."""
        fields = self._options.with_extra(
            {
                "model": self.server.model or None,
                "language": language or None,
                "response_format": "json",
            }
        )
        texts = {key: _field(value) for key, value in fields.items()}
        sound = np.pad(pcm, (0, max(0, MIN_SAMPLES - len(pcm))))
        body = form_body(texts, wav(sound, LISTEN_RATE), "speech.wav", "audio/wav")
        place = self.place
        async with self.endpoint.ask("audio/transcriptions", body, work) as exchange:
            content = await exchange.body()
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            raise garbled(place, "its transcript is not JSON") from None
        text = _text(answer)
        if not text and isinstance(answer, dict) and answer.get("error"):
            # whisper.cpp's server reports errors with a success status.
            raise refusal(place, complaint(200, answer))
        if text is None:
            raise garbled(place, "its transcript has no text")
        return without_notes(text)


class UrlUtterance:
    """One utterance. After ``finish`` it may be fed again, and finished again."""

    def __init__(self, stt: UrlStt, language: str, partial_interval_samples: int) -> None:
        self._stt = stt
        self._language = language
        self._partial_interval_samples = partial_interval_samples
        self._pieces: list[Pcm] = []
        self._samples = 0
        self._read_samples = 0
        self._tried_samples = 0
        self._text = ""

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        """Take more audio; all text before the end is tentative."""
        self._pieces.append(pcm.copy())
        self._samples += len(pcm)
        if 0 < self._partial_interval_samples <= self._samples - self._tried_samples:
            self._tried_samples = self._samples
            with suppress(ReachyVoiceError):  # the final pass will fail too, and report it
                await self._read(work)
        return Partial(tentative=self._text)

    async def finish(self, work: Work) -> Transcript:
        """One pass over all audio fed so far; free if nothing is new since the last one."""
        if self._read_samples != self._samples:
            await self._read(work)
        return Transcript(self._text, self._samples / LISTEN_RATE)

    def close(self) -> None:
        self._pieces.clear()

    async def _read(self, work: Work) -> None:
        whole = np.concatenate((EMPTY, *self._pieces))
        self._pieces = [whole]
        self._text = await self._stt.transcribe(whole, self._language, work)
        self._read_samples = len(whole)


def _text(answer: Any) -> str | None:
    """What was said, whole or in segments; empty where null stands for it."""
    if not isinstance(answer, dict):
        return None
    text, segments = answer.get("text"), answer.get("segments")
    if text is None and isinstance(segments, list):
        return " ".join(_text(segment) or "" for segment in segments)
    return "" if text is None and "text" in answer else text if isinstance(text, str) else None


def _field(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


SPEC = UrlEngineSpec(
    name="openai-transcriptions",
    kind=Kind.STT,
    options=TranscriptionsOptions,
    build=UrlStt,
    summary="a server with /v1/audio/transcriptions: vLLM, speaches, LocalAI, whisper.cpp, OpenAI",
)
