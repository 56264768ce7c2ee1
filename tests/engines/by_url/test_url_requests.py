"""Requests by URL to servers that hang, break, close or are absent; and unwanted work is not waited
for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.server.tls import tls_generated
from pipeline.engines.by_url import pool
from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.by_url.pool import HttpRequest, Pool
from pipeline.engines.registry import Kind
from pipeline.errors import EngineError
from pipeline.messages import LlmRequest, SpeechRequest
from pipeline.work import Cancelled, Priority, Work
from tests.support.far_answers import data
from tests.support.far_server import FarServer, Mood, free_port, problem, serving, stream
from tests.support.url_engines import HELLO, answer, chat_with, running

pytestmark = pytest.mark.machine

CHAT = "/v1/chat/completions"
STT = "openai-transcriptions"
APIS = [(Kind.LLM, "openai-chat"), (Kind.TTS, "openai-speech")]
PATHS = {
    "openai-chat": CHAT,
    "openai-speech": "/v1/audio/speech",
    "openai-transcriptions": "/v1/audio/transcriptions",
}
Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def begun(engine: UrlEngine, work: Work) -> Any:
    """A stream of the engine's output."""
    if engine.place.kind is Kind.TTS:
        return engine.synthesize(SpeechRequest("Hello there."), work)
    return engine.open().reply(LlmRequest(HELLO), work)


async def finished(engine: UrlEngine, work: Work) -> None:
    """Run one request of the engine's kind to its end."""
    if engine.place.kind is Kind.STT:
        utterance = await engine.open("en", False, work)
        await utterance.feed(np.zeros(1600, np.int16), work)
        await utterance.finish(work)
        return
    async with aclosing(begun(engine, work)) as items:
        async for _ in items:
            pass


ALL = pytest.mark.parametrize(("kind", "name"), [*APIS, (Kind.STT, "openai-transcriptions")])

# --- cancelling --------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), APIS)
async def test_abandoning_a_stream_closes_the_request(kind: Kind, name: str) -> None:
    far = FarServer(per_token_s=0.01, words=["word "] * 1000)
    far.moods[PATHS["openai-speech"]] = [Mood(200, "audio/pcm", [b"12" * 2400, None])]
    async with serving(far), running(kind, name, far.url) as engine:
        work = Work()
        async with aclosing(begun(engine, work)) as items:
            await anext(items)
        async with asyncio.timeout(10):
            assert await far.hung_up.get() == PATHS[name]
        assert not engine.endpoint.busy
        assert engine.problem is None


@ALL
@pytest.mark.parametrize("body", [[None], [b" " * 4800, None]])
@pytest.mark.parametrize("steps_between", [None, *range(6)])
async def test_the_server_knows_when_work_or_both_work_and_task_are_cancelled(
    kind: Kind, name: str, body: list[bytes | None], steps_between: int | None
) -> None:
    """The second cancellation comes while the first closes the connection."""
    kinds = {"openai-chat": "text/event-stream", "openai-speech": "audio/pcm"}
    mood = Mood(200, kinds.get(name, "application/json"), body)
    far = FarServer(moods={PATHS[name]: [mood]})
    async with serving(far), running(kind, name, far.url) as engine:
        work = Work()
        using = asyncio.create_task(finished(engine, work))
        await far.until_asked(PATHS[name])
        if body[0]:
            while await far.began.get() != PATHS[name]:
                pass
        work.cancel()
        for _ in range(steps_between or 0):
            await asyncio.sleep(0)
        if steps_between is not None:
            using.cancel()
        await asyncio.wait({using})
        assert using.cancelled() or isinstance(using.exception(), Cancelled)
        async with asyncio.timeout(10):
            assert await far.hung_up.get() == PATHS[name]


@pytest.mark.parametrize("lets_go", [True, False])
async def test_the_next_request_waits_until_the_server_lets_go(
    lets_go: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "LET_GO_S", 60.0 if lets_go else 0.01)
    happened: list[str] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await next_request(reader) != CHAT:
            writer.write(http(MODELS))
        happened.append("asked")
        words = data({"choices": [{"delta": {"content": "Well, then. "}}]})
        writer.write(http(words, length=10_000, kind=b"text/event-stream"))
        await reader.read()
        happened.append("left")
        for _ in range(200 if lets_go else 0):  # long enough for another request
            await asyncio.sleep(0)
        if not lets_go:
            await asyncio.Event().wait()
        happened.append("let go")
        writer.close()

    async with raw_server(connected) as url, running(Kind.LLM, "openai-chat", url) as engine:
        for _ in range(2):
            async with aclosing(begun(engine, Work())) as items:
                await anext(items)
    between = ["let go"] if lets_go else []
    assert happened[: 3 + len(between)] == ["asked", "left", *between, "asked"]


async def test_an_answer_dropped_at_its_end_is_not_waited_for() -> None:
    far = FarServer(moods={"/long": [Mood(body=[b"one", 0.01, b"two"])]})
    async with serving(far), asyncio.timeout(10):
        async with Pool() as pool:
            answer = await pool.send(HttpRequest("GET", f"{far.root}/long"), 1.0)
            for _ in range(2):  # sent, and nothing is read
                await far.began.get()
            answer.close()
        async with Pool() as pool:
            await pool.send(HttpRequest("GET", f"{far.root}/long"), 1.0)


async def test_cancelled_reading_ahead_makes_room_for_the_answer() -> None:
    far = FarServer(moods={CHAT: [Mood(body=[None])]})
    async with chat_with(far, max_requests=1) as engine:
        reading = Work(Priority.WARM_UP)
        task = asyncio.create_task(engine.open().warm(LlmRequest(HELLO), reading))
        await far.until_asked(CHAT)
        answering = asyncio.create_task(answer(engine))
        await asyncio.sleep(0)
        assert len(far.asked(CHAT)) == 1
        reading.cancel()
        assert await answering
        with pytest.raises(Cancelled):
            await task


async def test_closing_the_engine_ends_running_requests() -> None:
    far = FarServer(moods={CHAT: [stream(data({"choices": []}), None)]})
    async with serving(far):
        async with running(Kind.LLM, "openai-chat", far.url) as engine:
            using = asyncio.create_task(finished(engine, Work()))
            while await far.began.get() != CHAT:
                pass
        with pytest.raises(Cancelled):
            await using
        with pytest.raises(EngineError, match="is closed"):
            await finished(engine, Work())


# --- connections -------------------------------------------------------------------------------


@asynccontextmanager
async def raw_server(connected: Connected) -> AsyncIterator[str]:
    """A server whose every byte ``connected`` writes; yields its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await connected(reader, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client is gone, or the test is over
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield f"http://127.0.0.1:{port}/v1"


MODELS = b'{"object": "list", "data": [{"id": "a"}]}'


def http(body: bytes, *, length: int | None = None, kind: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
    return head % (kind, len(body) if length is None else length) + body


async def next_request(reader: asyncio.StreamReader) -> str:
    """Read a whole request; returns its path."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    if length := re.search(r"content-length: (\d+)", head, re.IGNORECASE):
        await reader.readexactly(int(length[1]))
    return head.split(" ")[1]


async def test_a_kept_connection_closed_by_the_server_is_no_failure() -> None:
    asked: list[str] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = len(asked) == 0
        asked.append(await next_request(reader))
        if asked[-1] == "/v1/models":
            writer.write(http(MODELS))
            if first:
                # It takes the next request and closes without an answer.
                asked.append(await next_request(reader))
                return
        while True:
            writer.write(http(b'{"text": "Good morning."}'))
            asked.append(await next_request(reader))

    async with raw_server(connected) as url, running(Kind.STT, STT, url) as engine:
        await finished(engine, Work())
    assert asked == ["/v1/models", "/v1/audio/transcriptions", "/v1/audio/transcriptions"]


@pytest.mark.parametrize("lost", [len(pool.AGAIN_S), len(pool.AGAIN_S) + 1])
async def test_a_request_that_a_server_ends_at_once_is_repeated(
    monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """As when a shutting-down server is in front of a running one."""
    monkeypatch.setattr(pool, "AGAIN_S", (0.0,) * len(pool.AGAIN_S))
    asked: list[str] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await next_request(reader))
        if asked[-1] == "/v1/models":
            writer.write(http(MODELS).replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        elif asked.count(asked[-1]) > lost:
            writer.write(http(b'{"text": "Good morning."}'))

    async with raw_server(connected) as url, running(Kind.STT, STT, url) as engine:
        given_up = pytest.raises(EngineError, match="closed the connection without an answer")
        with given_up if lost > len(pool.AGAIN_S) else nullcontext():
            await finished(engine, Work())
    assert asked.count("/v1/audio/transcriptions") == len(pool.AGAIN_S) + 1


async def test_no_request_is_repeated_after_the_first_byte() -> None:
    asked: list[str] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked.append(await next_request(reader))
            if asked[-1] == "/v1/models":
                writer.write(http(MODELS))
                continue
            writer.write(http(b'{"te', length=100))
            await writer.drain()
            return

    async with raw_server(connected) as url, running(Kind.STT, STT, url) as engine:
        with pytest.raises(EngineError, match="broke off its answer"):
            await finished(engine, Work())
    assert asked == ["/v1/models", "/v1/audio/transcriptions"]


async def test_a_server_that_does_not_speak_http_is_reported() -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.com ESMTP\r\n")
        await writer.drain()
        await reader.read(1)

    async with raw_server(connected) as url:
        with pytest.raises(EngineError, match=r"cannot be|without an answer|not answer in HTTP"):
            async with running(Kind.STT, STT, url):
                pass


async def test_certificates_are_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    tls = await asyncio.to_thread(tls_generated, tmp_path, ["127.0.0.1"])
    far = FarServer()
    async with serving(far, certificate=tmp_path / "server.pem"):
        secure = far.url.replace("http://", "https://")
        with pytest.raises(EngineError, match=r"not trusted.*SSL_CERT_FILE"):
            async with running(Kind.LLM, "openai-chat", secure):
                pass
        monkeypatch.setenv("SSL_CERT_FILE", str(tls.certificate))
        async with running(Kind.LLM, "openai-chat", secure) as engine:
            assert await answer(engine)
            assert await answer(engine)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
        with pytest.raises(EngineError, match="certificates of SSL_CERT_FILE cannot be read"):
            async with running(Kind.LLM, "openai-chat", secure):
                pass
    async with serving(far):
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(EngineError, match=r"does not speak TLS.*Try http://"):
            async with running(Kind.LLM, "openai-chat", far.url.replace("http://", "https://")):
                pass


async def test_redirects_are_not_followed() -> None:
    far, other = FarServer(key="secret"), FarServer()
    async with serving(other), chat_with(far, api_key="secret") as engine:
        for secret in ("?state=1", "#token=1", ";id=1"):
            to = f"{other.url}/chat{secret}".replace("//", "//me:key@")
            far.moods[CHAT] = [Mood(307, headers=[("location", to)])]
            where = f"redirects to another address: HTTP 307, {other.url}/chat. "
            with pytest.raises(EngineError, match=re.escape(where)):
                await answer(engine)
    assert not other.seen


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    far = FarServer()
    async with chat_with(far) as engine:
        assert await answer(engine)


async def test_a_compressed_answer_is_refused() -> None:
    compressed = Mood(headers=[("content-encoding", "gzip")], body=[b"\x1f\x8b"])
    far = FarServer(moods={CHAT: [compressed]})
    async with chat_with(far) as engine:
        with pytest.raises(EngineError, match="is compressed"):
            await answer(engine)


async def test_the_conversation_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    caplog.set_level("DEBUG", logger="reachy_voice")
    complaint = {"error": {"message": "bad value 'Hello, who are you?' in Hello there"}}
    far = FarServer(words=["Hello there."], moods={CHAT: [problem(400, complaint)]})
    async with chat_with(far) as engine:
        with pytest.raises(EngineError) as refused:
            await answer(engine)
        await answer(engine)
    assert not [record for record in caplog.records if record.name.startswith("http")]
    for text in (caplog.text, str(refused.value)):
        assert "Hello" not in text
        assert "who" not in text
