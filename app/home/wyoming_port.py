"""Home Assistant's Wyoming protocol: speech to text and text to speech, over TCP.

Imported only if ``server.wyoming_port`` is set, because it imports ``wyoming``. The protocol has no
keys, so only addresses count: this machine, and those that the owner allows.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from wyoming.asr import Transcribe, Transcript, TranscriptChunk, TranscriptStart, TranscriptStop
from wyoming.audio import AudioChunk, AudioChunkConverter, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, Eventable, async_read_event, async_write_event
from wyoming.info import AsrModel, AsrProgram, Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from app.access.policy import Caller
from app.api.answering import as_api_error
from app.api.speech import PIECE_LETTERS
from app.compose import Assistant
from pipeline.audio import LISTEN_RATE, pcm_from_bytes, pcm_to_bytes
from pipeline.engines import contract
from pipeline.engines.stages import TtsStage, UtteranceStage
from pipeline.errors import ReachyVoiceError
from pipeline.hearing.keywords import Keywords
from pipeline.hearing.plausibility import NO_SCORES, invention
from pipeline.messages import SpeechRequest
from pipeline.settings import lexicon_of, with_inventions
from pipeline.speaking.chunker import SpeechChunker
from pipeline.spoken.language_codes import language_code
from pipeline.work import Cancelled, Work, new_client

log = logging.getLogger("reachy_voice.wyoming")

VERSION = version("reachy-voice")
MOST_CLIENTS = 16
MOST_EVENT_BYTES = 4 * 1024 * 1024
"""Largest part of an event; Home Assistant sends 2 kB of sound in one."""
LONGEST_S = 120.0
"""Longest utterance."""
RATES = range(8_000, 192_001)
"""Sample rates that a client may send, in Hz."""


async def serve_wyoming(
    listener: socket.socket, assistant: Assistant, admits: Callable[[Caller], Awaitable[bool]]
) -> None:
    """Serve until cancelled. ``admits``: whether a caller may connect."""
    clients = 0

    async def serve(reader: _ClientReader, writer: asyncio.StreamWriter) -> None:
        nonlocal clients
        clients += 1
        try:
            if clients <= MOST_CLIENTS and await admits(_caller(writer)):
                await WyomingClient(reader, writer, assistant).serve()
        except OSError:
            pass  # it has gone
        except Exception:  # the other clients go on
            log.exception("a Wyoming client failed")
        finally:
            clients -= 1
            writer.close()

    async with asyncio.TaskGroup() as group:

        def protocol() -> asyncio.StreamReaderProtocol:
            reader = _ClientReader()
            return asyncio.StreamReaderProtocol(
                reader, lambda _, writer: group.create_task(serve(reader, writer))
            )

        loop = asyncio.get_running_loop()
        async with await loop.create_server(protocol, sock=listener) as server:
            await server.serve_forever()


class _ClientReader(asyncio.StreamReader):
    """Ends ``work``, all that its client asks of engines, as soon as the client leaves."""

    def __init__(self) -> None:
        super().__init__(MOST_EVENT_BYTES)
        self.work = Work()
        self.work.client = new_client()

    def feed_eof(self) -> None:
        self.work.cancel()
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        self.work.cancel()
        super().set_exception(exc)

    async def readexactly(self, n: int) -> bytes:
        """Raises ``ValueError`` if that is too much; the library then ends the connection."""
        if n > MOST_EVENT_BYTES:
            raise ValueError(f"{n} bytes in one event")
        return await super().readexactly(n)


def _caller(writer: asyncio.StreamWriter) -> Caller:
    peer, reached = (
        ipaddress.ip_address(writer.get_extra_info(name)[0].partition("%")[0])
        for name in ("peername", "sockname")
    )
    return Caller(peer, hosts=(str(reached),), reached=reached)


Send = Callable[[Eventable], Awaitable[None]]


class WyomingClient:
    """One connection: one request after the other."""

    def __init__(
        self, reader: _ClientReader, writer: asyncio.StreamWriter, assistant: Assistant
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._assistant = assistant
        self._work = reader.work
        self._asked = Transcribe()
        self._hearing: _Hearing | None = None
        self._speaking: _Speaking | None = None
        """The text that is arriving in parts."""

    async def serve(self) -> None:
        try:
            while event := await async_read_event(self._reader):
                event.data = {key: value for key, value in event.data.items() if value is not None}
                await self._on(event)
        except asyncio.IncompleteReadError:
            pass  # it has gone
        except (ReachyVoiceError, Cancelled) as error:
            shown = as_api_error(error)
            await self._send(Error(shown.message, shown.code))
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            await self._send(Error(f"This event cannot be read: {error!r}", "invalid"))
        finally:
            self._work.cancel()
            if self._hearing:
                self._hearing.close()

    async def _send(self, event: Eventable) -> None:
        await async_write_event(event.event(), self._writer)

    async def _on(self, event: Event) -> None:
        kind = event.type
        if Describe.is_type(kind):
            await self._send(self._info())
        elif Ping.is_type(kind):
            await self._send(Pong(Ping.from_event(event).text))
        elif Transcribe.is_type(kind):
            self._asked = Transcribe.from_event(event)
        elif AudioStart.is_type(kind):
            await self._listen()
        elif AudioChunk.is_type(kind) and self._hearing:
            await self._hearing.hear(AudioChunk.from_event(event))
        elif AudioStop.is_type(kind) and self._hearing:
            hearing, self._hearing = self._hearing, None
            await self._transcribe(hearing)
        elif SynthesizeStart.is_type(kind):
            self._speaking = self._speaker(SynthesizeStart.from_event(event).voice)
        elif SynthesizeChunk.is_type(kind) and self._speaking:
            await self._speaking.say(SynthesizeChunk.from_event(event).text)
        elif Synthesize.is_type(kind) and not self._speaking:  # else it is the whole text again
            whole = Synthesize.from_event(event)
            await self._speaker(whole.voice).say(whole.text, last=True)
        elif SynthesizeStop.is_type(kind) and self._speaking:
            speaking, self._speaking = self._speaking, None
            await speaking.say("", last=True)
            await self._send(SynthesizeStopped())

    def _info(self) -> Info:
        stages, language = self._assistant.stages, self._assistant.defaults().language or "en"
        about: dict[str, Any] = {
            "attribution": Attribution("The reachy-voice authors", ""),
            "installed": True,
            "version": VERSION,
            "description": "The engines of reachy-voice",
        }
        heard = list(stages.stt.languages) or [language]
        models = [AsrModel(name="stt", languages=heard, **about)]
        voices = [
            TtsVoice(name=name, languages=[language], **about | {"description": name})  # is shown
            for name in stages.tts.voices
        ]
        about["name"] = "reachy-voice"
        hears = AsrProgram(models=models, supports_transcript_streaming=stages.stt.streams, **about)
        speaks = TtsProgram(voices=voices, supports_synthesize_streaming=True, **about)
        return Info(asr=[hears], tts=[speaks])

    async def _listen(self) -> None:
        if self._hearing:
            self._hearing.close()
        stages, asked = self._assistant.stages, self._asked.language or ""
        own = self._assistant.defaults().language
        language, as_asked = stages.heard_language([asked], own)
        if not as_asked:
            why = "A Wyoming client asks for %r, which the recogniser does not take (it takes: %s)"
            fix = "It hears %s. Choose another stt.engine, or another language in the client"
            known = ", ".join(stages.stt.languages)
            log.warning(f"{why}. {fix}", asked[:20], known, language or "any")
        streams = stages.stt.streams
        utterance = await stages.stt.open(language, streams, self._work)
        self._hearing = _Hearing(utterance, language, self._work, self._send if streams else None)
        if streams:
            await self._send(TranscriptStart(language=language or None))

    async def _transcribe(self, hearing: _Hearing) -> None:
        heard = await hearing.finish()
        settings, names = self._assistant.session_settings(), self._asked.transcript_names or ()
        language = hearing.language or heard.language
        lexicon = lexicon_of(settings.lexicons, language)
        text = Keywords((*names, *settings.words), lexicon).put_into(heard.text)
        own = with_inventions(settings.lexicons, replace(lexicon, language=hearing.language))
        if invention(heard, NO_SCORES, own):
            text = ""
        await hearing.tell(text)
        await self._send(Transcript(text, language=language or None))
        if hearing.streams:
            await self._send(TranscriptStop())

    def _speaker(self, voice: SynthesizeVoice | None) -> _Speaking:
        asked, own = (voice and voice.language) or "", self._assistant.defaults().language
        language = language_code(asked) or own
        request = SpeechRequest("", (voice and voice.name) or "", language=language)
        return _Speaking(self._assistant.stages.tts, request, self._work, self._send)


class _Hearing:
    def __init__(
        self, utterance: UtteranceStage, language: str, work: Work, send: Send | None
    ) -> None:
        self.language = language
        """ISO 639-1; empty: it is detected."""
        self._utterance = utterance
        self._work = work
        self._send = send
        """Gets words as soon as they are final; ``None``: only the whole text is sent."""
        self._convert = AudioChunkConverter(rate=LISTEN_RATE, width=2, channels=1)
        self._seconds = 0.0
        self._sent = ""
        self.streams = send is not None
        self.close = utterance.close

    async def hear(self, chunk: AudioChunk) -> None:
        """Raises ``ValueError`` for a malformed chunk, and after ``LONGEST_S``."""
        known = chunk.rate in RATES and chunk.width in range(1, 5) and chunk.channels in (1, 2)
        if not known or len(chunk.audio) % (chunk.width * chunk.channels):
            raise ValueError("no whole frames of 8 to 32 bits, mono or stereo, at 8 to 192 kHz")
        self._seconds += chunk.seconds
        if self._seconds > LONGEST_S:
            raise ValueError(f"an utterance of more than {LONGEST_S:g} s")
        pcm = pcm_from_bytes(self._convert.convert(chunk).audio)
        await self.tell((await self._utterance.feed(pcm, self._work)).committed)

    async def tell(self, text: str) -> None:
        """Send what follows the words already sent; nothing if those have changed."""
        if self._send and text.startswith(self._sent) and (more := text[len(self._sent) :]):
            self._sent = text
            await self._send(TranscriptChunk(more))

    async def finish(self) -> contract.Transcript:
        try:
            return await self._utterance.finish(self._work)
        finally:
            self.close()


class _Speaking:
    """One text, spoken sentence by sentence as it comes."""

    def __init__(self, tts: TtsStage, usual: SpeechRequest, work: Work, send: Send) -> None:
        self._tts = tts
        self._usual = usual
        """The voice and the language."""
        self._work = work
        self._send = send
        self._chunker = SpeechChunker(usual.language)
        self._sound = {"rate": tts.rate, "width": 2, "channels": 1}
        self._begun = False

    async def say(self, text: str, *, last: bool = False) -> None:
        self._chunker.feed(text)
        if last:
            self._chunker.close()
        while piece := self._chunker.take(PIECE_LETTERS):
            if not piece.spoken:
                continue
            request = replace(self._usual, text=piece.spoken)
            async with aclosing(self._tts.synthesize(request, self._work)) as made:
                async for pcm in made:
                    await self._begin()
                    await self._send(AudioChunk(audio=pcm_to_bytes(pcm), **self._sound))
        if last:
            await self._begin()
            await self._send(AudioStop())

    async def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            await self._send(AudioStart(**self._sound))
