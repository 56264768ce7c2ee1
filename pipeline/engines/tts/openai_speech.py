"""Text-to-speech by URL: ``POST /v1/audio/speech``, streamed as raw PCM or WAV, as offered by
OpenAI, vLLM-Omni (Qwen3-TTS), Kokoro-FastAPI, speaches and LocalAI."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal

import numpy as np
from pydantic import Field

from pipeline.audio import EMPTY, Pcm
from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.by_url.exchange import HttpExchange
from pipeline.engines.by_url.failures import (
    Misconfiguration,
    ServerFailure,
    complaint_of_bytes,
    refusal,
    without,
)
from pipeline.engines.by_url.options import UrlOptions
from pipeline.engines.by_url.pool import Pool, json_body
from pipeline.engines.registry import Kind, UrlEngineSpec
from pipeline.engines.stages import LanguageChoice
from pipeline.engines.tts.speech_reader import NotPlayable, SpeechReader
from pipeline.errors import EngineError, Rejection
from pipeline.messages import SpeechRequest, has_words
from pipeline.work import Priority, Work

log = logging.getLogger("reachy_voice.tts")

_OTHER_FORMAT = {"pcm": "wav", "wav": "pcm"}
_FORMAT_WORDS = re.compile(
    r"(?<![a-z])(?:formats?|pcm|wav|mp3|codec(?! can))(?![a-z])", re.IGNORECASE
)
"""Matches errors of servers that cannot make the format, but not "information" or "'utf-8' codec
can't decode"."""
_RAW_HEADERS = ("x-sample-rate", "x-channels")
"""Headers that some servers use for what the content type of raw PCM should say."""
LEAST_S = 0.02
"""Shortest piece of speech, except the last; shorter ones are not worth sending."""


class SpeechOptions(UrlOptions):
    engine: Literal["openai-speech"] = "openai-speech"
    voices: tuple[str, ...] = Field(default=("alloy",), min_length=1)
    """The voices that clients may choose, by their names at the server."""
    voice: str | None = None
    """The voice for requests that name no voice, or an unknown one; null: the first."""
    rate: int = Field(default=24_000, ge=8_000, le=48_000)
    """Hz; raw PCM does not contain it. OpenAI, Kokoro and Qwen3-TTS use 24,000."""
    speed: float = Field(default=1.0, ge=0.25, le=4.0)
    """1 is the voice's own pace."""
    languages: dict[str, str] = Field(default={})
    """Its languages, by ISO 639-1 code, and the server's names for them, sent as ``language``: {en:
    English, de: German} for Qwen3-TTS. Empty: send no language."""
    stream: bool = True
    """Ask the server to stream speech; servers that do not know the field ignore it."""


class UrlTts(UrlEngine):
    """A ``TtsStage``."""

    def __init__(self, options: SpeechOptions, pool: Pool) -> None:
        import soundfile  # noqa: F401, here so that the first WAV file does not block the loop

        super().__init__(Kind.TTS, options, pool)
        self._options = options
        self.rate, self.voices = options.rate, options.voices
        self._language = LanguageChoice()
        self._format = ""
        """The format that has worked; some servers refuse raw PCM, others WAV."""

    async def warm_up(self) -> None:
        speech = self.synthesize(SpeechRequest("Hello."), Work(Priority.WARM_UP))
        async with aclosing(speech) as pieces:
            async for _ in pieces:
                pass

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        """Speech as it arrives: int16 mono, shape ``(n,)``, at ``rate`` Hz. All takes make the same
        request; the server draws new random numbers by itself.

        Raises ``EngineError``, ``Cancelled``."""
        if not has_words(request.text):
            return
        likely = self._format or "pcm"
        refusal: EngineError | None = None
        for form in (likely, _OTHER_FORMAT[likely]):
            try:
                async with aclosing(self._answer(request, form, work)) as pieces:
                    async for pcm in pieces:
                        self._keep(form, refusal)
                        yield pcm
                return
            except (Rejection, ServerFailure) as problem:
                refusal = refusal or problem
                if not _FORMAT_WORDS.search(problem.says):
                    break
        assert refusal
        raise refusal

    def _keep(self, form: str, refusal: EngineError | None) -> None:
        """Ask for ``form``, which works, from now on. ``refusal``: how the other format failed; a
        mere server failure changes nothing if that format has worked before."""
        if form == self._format or (self._format and isinstance(refusal, ServerFailure)):
            return
        if refusal:
            log.warning("%s is asked for from now on: %s", form, refusal)
        self._format = form

    async def _answer(
        self, request: SpeechRequest, form: str, work: Work
    ) -> AsyncGenerator[Pcm, None]:
        options, text = self._options, request.text
        pace = max(0.25, min(4.0, request.speed * options.speed))
        body = options.with_extra(
            {
                "model": self.server.model or None,
                "input": text,
                "voice": self._voice(request.voice),
                "response_format": form,
                "speed": None if pace == 1.0 else pace,
                "language": self._language_name(request.language),
                "stream": True if options.stream else None,
            }
        )
        post = self.endpoint.ask("audio/speech", json_body(body), work, (text,))
        try:
            async with post as exchange, aclosing(self._samples(exchange)) as pieces:
                async for pcm in pieces:
                    yield pcm
        except NotPlayable as wrong:
            raise self._not_playable(wrong, text) from wrong

    def _language_name(self, language: str) -> str | None:
        names = self._options.languages
        return names.get(self._language.choose(language, tuple(names))) if names else None

    def _voice(self, name: str) -> str:
        options = self._options
        return name if name in options.voices else options.voice or options.voices[0]

    async def _samples(self, exchange: HttpExchange) -> AsyncGenerator[Pcm, None]:
        rate = self._options.rate
        headers = exchange.answer.headers
        kind = headers.get("content-type", "")
        extra = (f";{name[2:]}={headers[name]}" for name in _RAW_HEADERS if name in headers)
        reader = SpeechReader(rate, kind + "".join(extra))
        samples = EMPTY
        try:
            async with aclosing(exchange.pieces()) as pieces:
                async for piece in pieces:
                    samples = np.concatenate((samples, reader.feed(piece)))
                    if len(samples) >= LEAST_S * rate:
                        yield samples
                        samples = EMPTY
            samples = np.concatenate((samples, reader.finish()))
        except (EngineError, NotPlayable):
            if len(samples := np.concatenate((samples, reader.rest()))):
                yield samples
            raise
        if len(samples):
            yield samples

    def _not_playable(self, wrong: NotPlayable, text: str) -> EngineError:
        place, complaint = self.place, complaint_of_bytes(200, wrong.text)
        if complaint.status != 200:
            return refusal(place, complaint, (text,))
        says = without(complaint.message, (text, place.key))
        why = "raw PCM was asked for (response_format: pcm)"
        return Misconfiguration(
            f"{place.who} sends {wrong.what}, which cannot be played",
            why=f"{why}; it says: {says}" if says else why,
            fix="Have it send raw 16-bit PCM or WAV: start it so, set tts.extra to"
            " {response_format: wav}, or correct tts.url, tts.model and tts.voices",
        )


SPEC = UrlEngineSpec(
    name="openai-speech",
    kind=Kind.TTS,
    options=SpeechOptions,
    build=UrlTts,
    summary="a server with streaming /v1/audio/speech: vLLM-Omni, Kokoro-FastAPI, speaches, OpenAI",
)
