"""``POST /v1/audio/transcriptions``. Shapes: ``openai.types.audio.TranscriptionCreateParams``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from app.access.api_errors import ApiError, form_of, parsed, read_body
from app.api.answering import RequestBody, streamed_events, whole
from app.api.segments import PADDING_S, SpeechSegment, segments
from app.api.turnstile import Passage, Turnstile
from hardware.wav import decoded
from pipeline.audio import EMPTY, LISTEN_RATE, Pcm
from pipeline.engines.contract import Transcript
from pipeline.engines.stages import Stages
from pipeline.errors import AudioFormatError

LONGEST_S = 3600.0
"""Longest recording, which takes 115 MB once it is decoded."""


class RecordingRequest(RequestBody):
    """The fields beside ``file``."""

    model: str = ""
    language: str = ""
    response_format: Literal["json", "text", "verbose_json"] = "json"
    stream: bool = False


async def transcribe(
    request: Request, most_bytes: int, turnstile: Turnstile, stages: Stages, language: str
) -> Response:
    """``language``: the default. Raises ``ApiError``, ``ReachyVoiceError``."""
    asked, data = await _read(request, most_bytes)
    language, as_asked = stages.heard_language([asked.language], language)
    if not as_asked:
        known = ", ".join(stages.stt.languages) or "not told"
        message = f"The recogniser does not know {asked.language[:20]!r}. It knows: {known}."
        raise ApiError(400, "unsupported_language", message, "language")
    heard = RecordedSpeech(language)

    def texts(passage: Passage) -> AsyncGenerator[str, None]:
        return heard.texts(data, stages, passage)

    if asked.stream:
        return await streamed_events(
            request, turnstile, lambda passage: _text_events(texts(passage), heard)
        )

    async def make(passage: Passage) -> Response:
        async for _ in texts(passage):
            pass
        if asked.response_format == "text":
            return PlainTextResponse(f"{heard.text}\n")
        return JSONResponse(heard.shown(verbose=asked.response_format == "verbose_json"))

    return await whole(request, turnstile, make)


async def _read(request: Request, most_bytes: int) -> tuple[RecordingRequest, bytes]:
    body = await read_body(request, most_bytes, " (limits.upload_mb)")
    async with form_of(request, body) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise ApiError(400, "missing_required_parameter", "The form has no file.", "file")
        fields = {key: value for key, value in form.items() if isinstance(value, str)}
        return parsed(RecordingRequest, fields), await file.read()


# --- hearing -----------------------------------------------------------------------------------


@dataclass(eq=False)
class RecordedSpeech:
    """What a recording says."""

    language: str
    """ISO 639-1; empty: it is detected."""
    seconds: float = 0.0
    parts: list[tuple[SpeechSegment, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join(text for _, text in self.parts)

    async def texts(
        self, data: bytes, stages: Stages, passage: Passage
    ) -> AsyncGenerator[str, None]:
        """Yield the text of each stretch of speech. Between two, conversations go first. Raises
        ``ApiError``."""
        pieces, parts = decoded(data, LISTEN_RATE, "file", LONGEST_S), [EMPTY]
        try:
            await passage.quiet()
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                parts.append(piece)
                await passage.quiet()
        except AudioFormatError as error:
            raise ApiError(400, "invalid_audio", str(error), "file") from None
        pcm = np.concatenate(parts)
        self.seconds = len(pcm) / LISTEN_RATE
        for segment in await _speech(pcm, stages, passage):
            await passage.quiet()
            transcript = await self._pass(_piece(pcm, segment), stages, passage)
            self.language = self.language or transcript.language
            if text := transcript.text.strip():
                self.parts.append((segment, text))
                yield text

    async def _pass(self, pcm: Pcm, stages: Stages, passage: Passage) -> Transcript:
        utterance = await stages.stt.open(self.language, False, passage.work)
        try:
            await utterance.feed(pcm, passage.work)
            return await utterance.finish(passage.work)
        finally:
            utterance.close()

    def shown(self, *, verbose: bool) -> Mapping[str, Any]:
        if not verbose:
            return {"text": self.text, "usage": self.usage}
        rows = [
            {"id": number, "start": part.start, "end": part.end, "text": text, **_UNKNOWN}
            for number, (part, text) in enumerate(self.parts)
        ]
        about = {"task": "transcribe", "language": self.language, "duration": self.seconds}
        return {**about, "text": self.text, "segments": rows, "usage": self.usage}

    @property
    def usage(self) -> Mapping[str, Any]:
        return {"type": "duration", "seconds": round(self.seconds)}


_UNKNOWN = {
    "seek": 0,
    "tokens": [],
    "temperature": 0.0,
    "avg_logprob": 0.0,
    "compression_ratio": 1.0,
    "no_speech_prob": 0.0,
}
"""Fields that clients expect and this server does not know."""


async def _speech(pcm: Pcm, stages: Stages, passage: Passage) -> list[SpeechSegment]:
    window = stages.vad.window_samples
    stream = await stages.vad.open(passage.work)
    scores: list[float] = []
    try:
        for at in range(0, len(pcm) - window + 1, window):
            await passage.quiet()
            scores.append(await stream.score(pcm[at : at + window]))
            await asyncio.sleep(0)  # an engine on the event loop would let nothing else run
    finally:
        stream.close()
    return segments(scores, window / LISTEN_RATE)


def _piece(pcm: Pcm, segment: SpeechSegment) -> Pcm:
    """Cut out a segment, with silence in front if the recording begins with speech: before such
    speech, Moonshine invents words ("1933, the train")."""
    piece = pcm[round(segment.start * LISTEN_RATE) : round(segment.end * LISTEN_RATE)]
    lead = 0 if segment.start else round(PADDING_S * LISTEN_RATE)
    return np.pad(piece, (lead, 0))


async def _text_events(
    texts: AsyncGenerator[str, None], heard: RecordedSpeech
) -> AsyncGenerator[Any, None]:
    async with aclosing(texts):
        async for text in texts:
            before = " " if len(heard.parts) > 1 else ""
            yield {"type": "transcript.text.delta", "delta": before + text}
    yield {"type": "transcript.text.done", "text": heard.text, "usage": heard.usage}
