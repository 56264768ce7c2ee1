"""``talk`` as a client of a server on another machine."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import numpy as np
import pytest
import websockets.asyncio.server
import websockets.utils

from app.talk import remote
from app.talk.conversation import Connected, Disconnected
from app.talk.realtime_client import NoServer, TurnFailed
from app.talk.remote import RemoteConversation, events_of
from pipeline import commands, events
from pipeline.audio import LISTEN_RATE
from pipeline.bus import Published
from reachy_voice.testing import ScriptedTts
from tests.support.beside import beside
from tests.support.scripted_server import Served, servers
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.machine

T = TypeVar("T")


class Reader:
    """Events in order; keeps everything it has read."""

    def __init__(self, conversation: RemoteConversation) -> None:
        self._events = conversation.events()
        self.seen: list[events.Event | Connected | Disconnected] = []

    async def until(self, kind: type[T]) -> T:
        async with asyncio.timeout(20):
            async for happened in self._events:
                event = happened.event if isinstance(happened, Published) else happened
                self.seen.append(event)
                if isinstance(event, kind):
                    return event
        raise AssertionError(f"no {kind}")

    def all(self, kind: type[T]) -> list[T]:
        return [event for event in self.seen if isinstance(event, kind)]


@asynccontextmanager
async def talking(url: str, push_to_talk: bool = False) -> AsyncIterator[tuple]:
    conversation = RemoteConversation(url, push_to_talk)
    async with beside(conversation.run()):
        yield conversation, Reader(conversation)


async def say(conversation: RemoteConversation, seconds: float, level: int) -> None:
    for _ in range(round(seconds * 50)):
        pcm = np.full(LISTEN_RATE // 50, level, np.int16)
        await conversation.submit(commands.AppendAudio(pcm, LISTEN_RATE, reference=pcm))


async def test_a_question_is_answered() -> None:
    async with servers() as serve:
        served = await serve(StagedAssistant())
        async with talking(f"127.0.0.1:{served.port}") as (conversation, reader):
            await reader.until(Connected)
            await say(conversation, 0.8, 3000)
            await say(conversation, 2.0, 0)
            await conversation.submit(
                commands.NoteDirection(commands.Direction(3.0, True))
            )  # no message of the wire
            finished = await reader.until(events.ReplyFinished)
            assert finished.status == "completed"
            assert reader.all(events.SpeechStarted)
            assert [event.text for event in reader.all(events.TranscriptReady)] != [""]
            assert reader.all(events.ReplyText)
            audio = reader.all(events.ReplyAudio)
            assert {piece.rate for piece in audio} == {24_000}
            assert all(len(piece.pcm) for piece in audio)
            await conversation.submit(commands.TruncateItem(audio[0].item_id, 0, 100))
            await conversation.submit(commands.TruncateItem("nothing", 0, 100))
            refused = await reader.until(events.Refused)
            assert "nothing" in refused.message
            assert len(reader.all(events.Refused)) == 1


async def test_speech_over_an_answer_is_reported_as_held() -> None:
    long = ScriptedTts(first_s=0.0, seconds_per_word=2.0)
    async with servers() as serve:
        assistant = StagedAssistant(tts=long)
        assistant.stt.texts = ("yeah",)
        served = await serve(assistant)
        async with talking(served.url) as (conversation, reader):
            await reader.until(Connected)
            await say(conversation, 0.8, 3000)
            await say(conversation, 2.0, 0)
            first = await reader.until(events.ReplyAudio)
            await asyncio.sleep(1.5)
            await say(conversation, 0.2, 3000)
            assert (await reader.until(events.ReplyHeld)).reply_id == first.reply_id
            await say(conversation, 2.0, 0)
            await reader.until(events.ReplyWentOn)


async def test_push_to_talk() -> None:
    async with servers() as serve:
        served = await serve(StagedAssistant())
        async with talking(served.url, push_to_talk=True) as (conversation, reader):
            await reader.until(Connected)
            await conversation.submit(commands.ClearAudio())
            await say(conversation, 0.8, 3000)
            await conversation.submit(commands.CommitAudio())
            await conversation.submit(commands.CreateResponse())
            assert (await reader.until(events.ReplyFinished)).status == "completed"
            assert reader.all(events.SpeechStarted) == []


async def test_it_reconnects_to_a_returning_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "RETRIES_S", (0.01,))
    async with servers() as serve:
        first: Served = await serve(StagedAssistant())
        async with talking(first.url) as (conversation, reader):
            await reader.until(Connected)
            for session in first.clients.open.copy():
                session.close(1012, "restart")
            await reader.until(Disconnected)
            await say(conversation, 0.1, 0)  # dropped without an error
            await reader.until(Connected)


async def test_a_missing_server_is_an_error() -> None:
    with pytest.raises(NoServer, match="There is no reachy-voice server"):
        await RemoteConversation("127.0.0.1:9").run()


@pytest.mark.parametrize("address", ["a..b:8765", "127.0.0.1:99999", "robot:port", "[::1:8765"])
async def test_an_invalid_address_is_reported(address: str) -> None:
    with pytest.raises(NoServer):
        await RemoteConversation(address).run()


async def test_a_refusing_server_is_an_error() -> None:
    async def refuse(socket: websockets.asyncio.server.ServerConnection) -> None:
        await socket.recv()
        await socket.send(json.dumps({"type": "error", "error": {"message": "Not you."}}))
        await socket.wait_closed()

    async with websockets.asyncio.server.serve(refuse, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        conversation = RemoteConversation(f"127.0.0.1:{port}")
        with pytest.raises(TurnFailed) as refused:
            await conversation.run()
    assert refused.value.why == "Not you."


async def test_a_server_that_refuses_later_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "RETRIES_S", (0.01,))
    visits = 0

    async def serve(socket: websockets.asyncio.server.ServerConnection) -> None:
        nonlocal visits
        visits += 1
        await socket.recv()
        refusal = {"type": "error", "error": {"message": "Too many."}}
        for nonsense in (
            *("{", "[]", "{}", '{"type": "response.done"}'),
            *('{"type": "error", "error": "quota"}', '{"type": "response.done", "response": null}'),
        ):
            await socket.send(nonsense)
        await socket.send(json.dumps({"type": "session.updated"} if visits != 2 else refusal))
        if visits > 2:
            await socket.wait_closed()

    async with websockets.asyncio.server.serve(serve, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with talking(f"127.0.0.1:{port}") as (_, reader):
            for _ in range(2):
                await reader.until(Connected)
    assert visits == 3


async def test_a_server_that_hangs_is_not_waited_for() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accepts the connection and our session, then reads nothing more."""
        head = await reader.readuntil(b"\r\n\r\n")
        key = next(x for x in head.decode().split("\r\n") if x.startswith("Sec-WebSocket-Key"))
        accept = websockets.utils.accept_key(key.partition(": ")[2])
        text = json.dumps({"type": "session.updated"}).encode()
        writer.write(
            f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
            + bytes((0x81, len(text)))
            + text
        )
        try:
            await asyncio.sleep(20)
        finally:
            writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    conversation = RemoteConversation(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    running = asyncio.create_task(conversation.run())
    await Reader(conversation).until(Connected)
    running.cancel()
    _, late = await asyncio.wait({running}, timeout=15)
    assert not late
    server.close()


def test_half_duplex_sends_silence_while_the_loudspeaker_sounds() -> None:
    conversation = RemoteConversation("127.0.0.1:9", half_duplex=True)
    loud, quiet = np.full(160, 3000, np.int16), np.zeros(160, np.int16)
    sent = []
    for given in (loud, *(quiet for _ in range(80))):
        for message in conversation._messages(
            commands.AppendAudio(loud, LISTEN_RATE, reference=given)
        ):
            sent.append(base64.b64decode(message["audio"]))
    assert not np.frombuffer(b"".join(sent[:60]), np.int16).any()
    assert np.frombuffer(sent[-1], np.int16).any()


def test_unknown_events_are_ignored() -> None:
    assert list(events_of({"type": "rate_limits.updated"})) == []
    failed = {"id": "r", "status": "failed", "status_details": {"error": {"message": "broke"}}}
    (finished,) = events_of({"type": "response.done", "response": failed})
    assert isinstance(finished, events.ReplyFinished)
    assert finished.error == "broke"
    started = {"type": "input_audio_buffer.speech_started", "item_id": "a", "audio_start_ms": 3}
    assert list(events_of(started)) == [events.SpeechStarted("a", 3)]
    assert list(events_of(started | {"direction_deg": 9.0})) == [events.SpeechStarted("a", 3, 9.0)]


def test_a_server_is_asked_to_wake_and_reports_its_state() -> None:
    (message,) = RemoteConversation("localhost")._messages(commands.WakeUp())
    assert message == {"type": "reachy_voice.wake"}
    told = [{"type": f"reachy_voice.{kind}", "reason": "silence"} for kind in ("asleep", "awake")]
    assert [type(event) for each in told for event in events_of(each)] == [
        events.FellAsleep,
        events.Woke,
    ]
