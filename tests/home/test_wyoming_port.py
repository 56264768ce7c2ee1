"""Home Assistant's side of the Wyoming protocol, with the library that it uses."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from wyoming.asr import Transcribe, Transcript, TranscriptChunk
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event, Eventable, async_write_event
from wyoming.info import Describe, Info
from wyoming.ping import Ping
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeVoice,
)

from app.access.policy import Caller, Rules
from app.home import wyoming_port
from app.home.wyoming_port import serve_wyoming
from app.server.gate import Access
from app.server.listening import bind
from pipeline.engines.contract import Partial
from pipeline.errors import EngineError
from pipeline.work import Cancelled
from reachy_voice.testing.jobs import ScriptedJob
from tests.support.beside import beside
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.machine

SPEECH = {"rate": 48_000, "width": 2, "channels": 2}


@asynccontextmanager
async def door(assistant: StagedAssistant, access: Access | None = None) -> AsyncIterator[int]:
    """Yields its port; checks afterwards that nothing runs or is open."""
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    admits = (access or Access()).admits
    async with beside(serve_wyoming(listener, cast(Any, assistant), admits)):
        yield port
    assert assistant.cast.idle


async def ask(port: int, *events: Eventable, until: str) -> list[Event]:
    """Everything received up to the event ``until``, or to the end."""
    found: list[Event] = []
    with suppress(ConnectionError):
        async with AsyncTcpClient("127.0.0.1", port) as client, asyncio.timeout(10):
            for asked in events:
                await client.write_event(asked.event())
            while (event := await client.read_event()) is not None:
                found.append(event)
                if event.type == until:
                    break
    return found


def heard(seconds: float, **asked: Any) -> Sequence[Eventable]:
    frames = [np.full(2 * 4800, 1000, np.int16).tobytes()] * round(seconds * 10)
    chunks = [AudioChunk(audio=frame, **SPEECH) for frame in frames]
    return [Transcribe(**asked), AudioStart(**SPEECH), *chunks, AudioStop()]


def sound(events: Sequence[Event]) -> float:
    """Seconds."""
    chunks = [AudioChunk.from_event(e) for e in events if AudioChunk.is_type(e.type)]
    return sum(len(chunk.audio) / 2 / chunk.rate for chunk in chunks)


def kinds(events: Sequence[Event]) -> list[str]:
    return [e.type for e in events if not AudioChunk.is_type(e.type)]


async def test_it_describes_its_services() -> None:
    assistant = StagedAssistant()
    assistant.stt.languages = ("en", "de")
    async with door(assistant) as port:
        (found,) = await ask(port, Describe(), until="info")
        (pong,) = await ask(port, Ping("here"), until="pong")
    info = Info.from_event(found)
    assert info.asr[0].models[0].languages == ["en", "de"]
    assert [(voice.name, voice.description) for voice in info.tts[0].voices] == [("joe", "joe")]
    assert info.tts[0].supports_synthesize_streaming
    assert pong.data == {"text": "here"}


async def test_speech_becomes_text() -> None:
    assistant = StagedAssistant()
    assistant.stt.texts = ("Richie, mach das Licht an.",)
    assistant.stt.languages = ("en", "de")
    async with door(assistant) as port:
        spoken = heard(1.0, language="de-AT", transcript_names=["Reachy"])
        (found,) = await ask(port, *spoken, until="transcript")
    assert Transcript.from_event(found).text == "Reachy, mach das Licht an."
    assert assistant.stt.opened_in == ["de"]
    assert len(assistant.stt.finished[0]) == pytest.approx(16_000, abs=50)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("Thanks for watching!", ""),
        ("Vielen Dank fürs Zuschauen!", ""),
        ("you you you you", ""),
        ("이이이", ""),
        ("Thank you.", "Thank you."),
        ("Stop.", "Stop."),
    ],
)
async def test_invented_words_are_no_command(text: str, known: str) -> None:
    assistant = StagedAssistant()
    assistant.stt.texts = (text,)
    async with door(assistant) as port:
        (found,) = await ask(port, *heard(1.0, language="en"), until="transcript")
    assert Transcript.from_event(found).text == known


@pytest.mark.parametrize(
    ("partials", "final", "told"),
    [
        (["Turn on", "Turn on the"], "Turn on the light.", ["Turn on", " the", " light."]),
        (["", ""], "Turn on the light.", ["Turn on the light."]),
        (["Turn off"], "Turn on the light.", ["Turn off"]),  # its end has the transcript
        ([], "", []),
    ],
)
async def test_stable_words_are_sent_as_they_come(
    partials: Sequence[str], final: str, told: Sequence[str]
) -> None:
    assistant = StagedAssistant()
    assistant.stt.streams = True
    assistant.stt.partials = [Partial(text, "li") for text in partials]
    assistant.stt.texts = (final,)
    async with door(assistant) as port:
        (described,) = await ask(port, Describe(), until="info")
        found = await ask(port, *heard(1.0), until="transcript-stop")
    assert Info.from_event(described).asr[0].supports_transcript_streaming
    chunks = ["transcript-chunk"] * len(told)
    assert kinds(found) == ["transcript-start", *chunks, "transcript", "transcript-stop"]
    assert [TranscriptChunk.from_event(each).text for each in found[1:-2]] == told
    assert Transcript.from_event(found[-2]).text == final


@pytest.mark.parametrize(
    ("asked", "opened"),
    [("auto", ""), ("zh-CN", "zh"), ("deu", "de"), ("English", "en"), ("", "en"), ("fr", "en")],
)
async def test_a_language_as_clients_write_it(
    asked: str, opened: str, caplog: pytest.LogCaptureFixture
) -> None:
    assistant = StagedAssistant()
    assistant.stt.languages, assistant.stt.texts = ("en", "de", "zh"), ("Ja.",)
    assistant.stt.reported = {"Ja.": "de"}
    async with door(assistant) as port:
        (found,) = await ask(port, *heard(0.5, language=asked), until="transcript")
    assert assistant.stt.opened_in == [opened]
    assert Transcript.from_event(found).language == (opened or "de")
    assert ("takes: en, de, zh" in caplog.text) == (asked == "fr"), "it says what it lacks"


async def test_a_text_is_spoken() -> None:
    assistant = StagedAssistant()
    async with door(assistant) as port:
        whole = Synthesize("It costs $5. Good.", SynthesizeVoice(name="joe"))
        found = await ask(port, whole, until="audio-stop")
    assert kinds(found) == ["audio-start", "audio-stop"]
    assert " ".join(assistant.tts.said) == "It costs five dollars. Good."
    assert {request.voice for request in assistant.tts.requests} == {"joe"}
    assert sound(found) == pytest.approx(5 * 0.05, abs=0.02)


async def test_a_field_that_is_null_is_absent() -> None:
    event = Synthesize("Good.").event()
    event.data["voice"] = None
    async with door(StagedAssistant()) as port:
        found = await ask(port, SimpleNamespace(event=lambda: event), until="audio-stop")
    assert kinds(found) == ["audio-start", "audio-stop"]


@pytest.mark.parametrize(
    ("asked", "spoken"), [("de-DE", "de"), ("en_US", "en"), ("German", "de"), ("xx", "en")]
)
async def test_a_text_in_a_language_as_clients_write_it(asked: str, spoken: str) -> None:
    assistant = StagedAssistant()
    async with door(assistant) as port:
        await ask(port, Synthesize("Hm.", SynthesizeVoice(language=asked)), until="audio-stop")
    (request,) = assistant.tts.requests
    assert request.language == spoken


async def test_a_streamed_text_is_spoken_by_sentence() -> None:
    assistant = StagedAssistant()
    text = "First this. Then that one. And so on"
    async with door(assistant) as port, AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(SynthesizeStart().event())
        await client.write_event(SynthesizeChunk("First this. Then ").event())
        async with asyncio.timeout(10):
            started = await client.read_event()
        assert started is not None
        assert started.type == "audio-start"
        assert assistant.tts.said == ["First this."], "before the rest is there"
        for event in (
            SynthesizeChunk("that one. And so on"),
            Synthesize(text),  # for servers that do not stream
            SynthesizeStop(),
        ):
            await client.write_event(event.event())
        found = []
        async with asyncio.timeout(10):
            while "synthesize-stopped" not in kinds(found):
                event = await client.read_event()
                assert event is not None
                found.append(event)
    assert kinds(found) == ["audio-stop", "synthesize-stopped"]
    assert " ".join(assistant.tts.said) == f"{text}."


async def test_a_text_without_words_is_silence() -> None:
    assistant = StagedAssistant()
    async with door(assistant) as port:
        found = await ask(port, Synthesize("... **"), until="audio-stop")
    assert kinds(found) == ["audio-start", "audio-stop"]
    assert not assistant.tts.said


@pytest.mark.parametrize("asked", [[Synthesize("Hello.")], heard(0.5)])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (EngineError("The engine is broken"), "The engine is broken"),
        (Cancelled(), "The engine was replaced"),
    ],
)
async def test_an_engine_that_fails_is_an_error(
    asked: Sequence[Eventable], error: Exception, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    assistant = StagedAssistant()
    assistant.tts.error = assistant.stt.error = error
    async with door(assistant) as port:
        (found,) = await ask(port, *asked, until="error")
    assert told in Error.from_event(found).text
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_caller_from_elsewhere_must_be_allowed() -> None:
    told: list[str] = []
    access = Access(Rules(loopback=False), tell=told.append)
    async with door(StagedAssistant(), access) as port:
        assert await ask(port, Describe(), until="info") == []
    assert "127.0.0.1" in told[0] or "program here" in told[0]
    here = Caller(ipaddress.ip_address("192.0.2.1"), hosts=("192.0.2.2",))
    assert not await Access().admits(here)
    allowed = Rules(addresses=(ipaddress.ip_network("192.0.2.1"),))
    assert await Access(allowed).admits(here)


def line(kind: str, **data: Any) -> bytes:
    return json.dumps({"type": kind, "data": data}).encode() + b"\n"


def chunk(audio: bytes, **form: Any) -> bytes:
    """A sound in its wire format."""
    data = json.dumps({**SPEECH, **form}).encode()
    sizes = {"data_length": len(data), "payload_length": len(audio)}
    head = json.dumps({"type": "audio-chunk", **sizes}).encode()
    return line("audio-start") + head + b"\n" + data + audio


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"nonsense\n", ""),
        (b"[]\n", "cannot be read"),
        (b"[" * 50_000 + b"\n", "cannot be read"),
        (line("transcribe", language=5) + line("audio-start"), "cannot be read"),
        (json.dumps({"type": "audio-chunk", "payload_length": 1 << 30}).encode() + b"\n", ""),
        (line("audio-start") + b'{"type": "audio-chunk"}\n', "rate"),
        (chunk(bytes(7)), "no whole frames"),
        (chunk(bytes(7), rate=16_000, channels=1), "no whole frames"),
        (chunk(bytes(8), rate=0), "8 to 192 kHz"),
        (chunk(bytes(8), rate=1), "8 to 192 kHz"),
        (chunk(bytes(8), rate=10**30), "8 to 192 kHz"),
        (chunk(bytes(8), rate="fast"), "8 to 192 kHz"),
        (chunk(bytes(8), width=0), "8 to 32 bits"),
        (chunk(bytes(8), rate=16_000, channels=-1), "mono or stereo"),
        (b"x" * (wyoming_port.MOST_EVENT_BYTES + 10), ""),
    ],
)
async def test_unreadable_data_ends_only_its_connection(
    sent: bytes, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with door(StagedAssistant()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        answer = b""
        async with asyncio.timeout(10):
            with suppress(ConnectionError):
                answer = await reader.read()
        writer.close()
        assert await ask(port, Describe(), until="info")
    assert told.encode() in answer
    assert bool(told) == (b'"type": "error"' in answer)
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_client_that_leaves_ends_its_work() -> None:
    assistant = StagedAssistant()
    async with door(assistant) as port:
        await ask(port, *heard(0.5)[:-1], Ping(), until="pong")
        for _ in range(2 * wyoming_port.MOST_CLIENTS):
            assert await ask(port, Describe(), until="info")


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("asked", [heard(0.1), [Synthesize("One two.")]])
async def test_a_client_that_leaves_ends_work_that_has_begun(
    asked: Sequence[Eventable], reset: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing can be sent to it yet."""
    begun, ended, take = asyncio.Event(), asyncio.Event(), ScriptedJob.take

    async def slowly(job: ScriptedJob, seconds: float) -> None:
        begun.set()
        try:
            await take(job, 3600)
        finally:
            ended.set()

    monkeypatch.setattr(ScriptedJob, "take", slowly)
    async with door(StagedAssistant()) as port, asyncio.timeout(10):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        for each in asked:
            await async_write_event(each.event(), writer)
        await begun.wait()
        if reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()
        await ended.wait()


async def test_speech_without_an_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wyoming_port, "LONGEST_S", 1.0)
    async with door(StagedAssistant()) as port:
        (found,) = await ask(port, *heard(1.5), until="error")
    assert "more than 1 s" in Error.from_event(found).text
