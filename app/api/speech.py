"""``POST /v1/audio/speech``. Shapes: ``openai.types.audio.SpeechCreateParams``."""

from __future__ import annotations

import base64
import io
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.access.api_errors import parsed
from app.api.answering import RequestBody, streamed, streamed_events
from app.api.turnstile import Passage, Turnstile
from pipeline.audio import Pcm, Resampler, wav_header
from pipeline.engines.stages import TtsStage
from pipeline.messages import SpeechRequest
from pipeline.speaking.chunker import SpeechChunker
from pipeline.spoken.language_codes import language_code
from pipeline.work import in_thread

RATE = 24_000
"""Hz, in every format, as at OpenAI."""
LONGEST_CHARS = 4096
"""As in the API reference."""
PIECE_LETTERS = 100
"""Letters synthesised at once: 6 s of speech, finished even if a conversation begins."""
EVENT_BYTES = 32 * 1024
"""Most sound in one event: some clients read no lines longer than 64 KiB."""

Format = Literal["mp3", "opus", "flac", "wav", "pcm"]
_ENCODED = {
    "mp3": ("MP3", "MPEG_LAYER_III", "audio/mpeg"),
    "opus": ("OGG", "OPUS", "audio/ogg"),
    "flac": ("FLAC", "PCM_16", "audio/flac"),
}


class NamedVoice(RequestBody):
    id: str


class SpokenText(RequestBody):
    input: str = Field(min_length=1, max_length=LONGEST_CHARS)
    model: str = ""
    voice: str | NamedVoice = ""
    response_format: Format = "mp3"
    speed: float = Field(default=1.0, ge=0.25, le=4.0)
    stream_format: Literal["audio", "sse"] = "audio"
    language: str = ""
    """Our own field, as clients write it; empty or unknown: the settings' language."""


async def speak(
    request: Request, body: bytes, turnstile: Turnstile, tts: TtsStage, language: str
) -> Response:
    """Raises ``ApiError``, ``ReachyVoiceError``."""
    asked = parsed(SpokenText, body)
    language = language_code(asked.language) or language

    def sound(passage: Passage) -> AsyncGenerator[Pcm, None]:
        return _synthesize(asked, language, tts, passage)

    async def pieces(passage: Passage) -> AsyncGenerator[bytes, None]:
        if asked.response_format in _ENCODED:
            yield await _encoded(asked, sound(passage))
            return
        head = wav_header(RATE) if asked.response_format == "wav" else b""
        async with aclosing(sound(passage)) as made:
            async for pcm in made:
                yield head + pcm.tobytes()
                head = b""

    if asked.stream_format == "sse":
        return await streamed_events(
            request, turnstile, lambda passage: _sound_events(pieces(passage))
        )
    name = asked.response_format
    media_type = _ENCODED[name][2] if name in _ENCODED else f"audio/{name}"
    return await streamed(request, turnstile, pieces, media_type)


async def _synthesize(
    asked: SpokenText, language: str, tts: TtsStage, passage: Passage
) -> AsyncGenerator[Pcm, None]:
    """Yield speech at ``RATE``. Between sentences, waits while a conversation needs the voice."""
    voice = asked.voice if isinstance(asked.voice, str) else asked.voice.id
    chunker = SpeechChunker(language)
    chunker.feed(asked.input)
    chunker.close()
    resampler = Resampler(tts.rate, RATE)
    while piece := chunker.take(PIECE_LETTERS):
        await passage.quiet()
        if not piece.spoken:
            continue
        request = SpeechRequest(piece.spoken, voice, asked.speed, language)
        async with aclosing(tts.synthesize(request, passage.work)) as made:
            async for pcm in made:
                yield resampler.feed(pcm)
    yield resampler.flush()


async def _encoded(asked: SpokenText, sound: AsyncGenerator[Pcm, None]) -> bytes:
    """Encode sound as it is made: all at once, it would take the cores from a conversation."""
    import soundfile

    kind, subtype, _ = _ENCODED[asked.response_format]
    made = io.BytesIO()
    with soundfile.SoundFile(made, "w", RATE, 1, subtype, format=kind) as file:
        async with aclosing(sound):
            async for pcm in sound:
                await in_thread(partial(file.write, pcm))  # even if cancelled: it is closed next
        if not file.frames:
            file.write(np.zeros(RATE // 10, np.int16))  # without samples, the file would be empty
    return made.getvalue()


async def _sound_events(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[Any, None]:
    """Yield sound as the events of ``stream_format: sse``."""
    async with aclosing(pieces):
        async for piece in pieces:
            for at in range(0, len(piece), EVENT_BYTES):
                audio = base64.b64encode(piece[at : at + EVENT_BYTES]).decode()
                yield {"type": "speech.audio.delta", "audio": audio}
    usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    yield {"type": "speech.audio.done", "usage": usage}
