"""A small Realtime client for ``ask`` and ``bench``: plays a recording and listens to the answer.

It knows only the public API, so what it measures is what any client sees.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import websockets.asyncio.client
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from app.server.local_key import key_for
from app.setup.place import USUAL_PORT
from pipeline.audio import Pcm, pcm_from_bytes, pcm_to_bytes
from pipeline.errors import ReachyVoiceError, one_error

RATE = 24_000
"""Hz, both ways: the Realtime API's default."""
CHUNK_MS = 20
KEY_VARIABLE = "REACHY_VOICE_API_KEY"
"""Environment variable with the key, for a server that requires one."""
TURN_TIMEOUT_S = 60.0
LAST_ANSWER_S = 3.0
"""How long after the speech to wait for another answer if there was one already."""
HOLE_S = 0.01
"""Shortest silence that counts as a hole; shorter ones are jitter of the client's own clock."""
ROOM_TONE_RMS = 8.0
"""In int16; -72 dBFS, a quiet room. No real microphone delivers digital zeros."""
ROOM_TONE_S = 2
"""Length of the noise before it repeats."""


class TurnFailed(ReachyVoiceError):
    """The server did not answer a turn."""

    exit_code = 8


class NoServer(ReachyVoiceError):
    """No server answers at this address."""

    exit_code = 9


def room_tone(samples: int) -> Pcm:
    """A quiet room at a microphone: the same faint white noise each time, int16."""
    noise = np.random.default_rng(0).normal(0.0, ROOM_TONE_RMS, samples)
    return noise.round().astype(np.int16)


@dataclass(slots=True)
class SpokenTurn:
    """One turn as the client saw it. Times are seconds of the loop's clock."""

    speech_end_at: float
    heard: str = ""
    answered: str = ""
    audio: list[Pcm] = field(default_factory=list)
    first_audio_at: float | None = None
    plays_until: float = 0.0
    holes_ms: list[float] = field(default_factory=list)
    """Gaps that a player hears if it plays audio as soon as it arrives."""
    early: bool = False
    """The answer began before the speaker was done, or more speech interrupted it."""
    cut_offs: int = 0
    """How many answers were early."""
    timeline_ms: dict[str, float | None] = field(default_factory=dict)
    """The server's stages, counted from its own end of speech."""
    usage: dict[str, Any] = field(default_factory=dict)

    @property
    def voice_to_voice_ms(self) -> float | None:
        """Last speech sample sent -> first reply sample received; ``None`` without audio, and for
        an early answer."""
        if self.early or self.first_audio_at is None or self.first_audio_at < self.speech_end_at:
            return None
        return (self.first_audio_at - self.speech_end_at) * 1000

    @property
    def stages_ms(self) -> dict[str, float]:
        """The server's stages in ms after the last speech sample, like ``voice_to_voice_ms``, which
        ``first_audio`` equals; empty if that is ``None``."""
        latency, first_audio = self.voice_to_voice_ms, self.timeline_ms.get("first_audio")
        if latency is None or first_audio is None:
            return {}
        stages = {stage: ms for stage, ms in self.timeline_ms.items() if ms is not None}
        return {stage: ms + latency - first_audio for stage, ms in stages.items()}

    def hear(self, pcm: Pcm, now: float) -> None:
        """Take the next sound of the answer."""
        if self.first_audio_at is None:
            self.first_audio_at = self.plays_until = now
        if now > self.plays_until + HOLE_S:
            self.holes_ms.append(1000 * (now - self.plays_until))
        self.plays_until = max(now, self.plays_until) + len(pcm) / RATE
        self.audio.append(pcm)

    def forget_answer(self) -> None:
        """Discard an answer that came too early: only the answer to the last words counts."""
        self.answered = ""
        self.audio.clear()
        self.holes_ms.clear()
        self.first_audio_at = None
        self.early = False
        self.timeline_ms = {}

    @property
    def pcm(self) -> Pcm:
        """The spoken answer, int16 mono at ``RATE``."""
        return np.concatenate(self.audio) if self.audio else np.zeros(0, dtype=np.int16)


def _raise_if_failed(response: dict[str, Any]) -> None:
    if response["status"] == "failed":
        error = (response.get("status_details") or {}).get("error") or {}
        raise TurnFailed("The server could not answer", why=str(error.get("message", "")))


@contextmanager
def _closing_is_a_failure() -> Iterator[None]:
    try:
        yield
    except ConnectionClosed as closed:
        raise TurnFailed("The server closed the connection", why=str(closed)) from None


class RealtimeClient:
    """One conversation over one WebSocket."""

    def __init__(self, socket: websockets.asyncio.client.ClientConnection) -> None:
        self._socket = socket

    async def configure(self, session: dict[str, Any] | None = None) -> None:
        """Request transcripts of the speech, and ``session`` on top.

        Raises ``TurnFailed``.
        """
        await self._expect("session.created")
        transcription = {"input": {"transcription": {"model": "default"}}}
        await self._send(
            {
                "type": "session.update",
                "session": {"type": "realtime", "audio": transcription, **(session or {})},
            }
        )
        await self._expect("session.updated")

    async def speak(self, pcm: Pcm, speech_end: int, *, to_end: bool = True) -> SpokenTurn:
        """Play ``pcm`` (int16 at ``RATE``) in real time, then stream room tone and listen: to the
        end of the answer, or only to its first sound.

        ``speech_end``: index after the last sample of speech. Raises ``TurnFailed``.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        turn = SpokenTurn(speech_end_at=began + speech_end / RATE)
        try:
            async with asyncio.timeout(len(pcm) / RATE + TURN_TIMEOUT_S):
                await self._converse(turn, pcm, began, to_end)
        except TimeoutError:
            raise TurnFailed(
                "The server did not answer",
                why=f"no reply within {TURN_TIMEOUT_S:g} s of the end of the recording",
                fix="Is there speech in the recording? Look at the server's log",
            ) from None
        return turn

    async def _converse(self, turn: SpokenTurn, pcm: Pcm, began: float, to_end: bool) -> None:
        with one_error():
            async with asyncio.TaskGroup() as group:
                microphone = group.create_task(self._microphone(pcm, began))
                await self._listen(turn, to_end)
                microphone.cancel()

    async def _microphone(self, pcm: Pcm, began: float) -> None:
        """Send 20 ms chunks when they would have been recorded; then room tone."""
        size = RATE * CHUNK_MS // 1000
        room = itertools.cycle(room_tone(ROOM_TONE_S * RATE).reshape(-1, size))
        position = 0
        while True:
            chunk = pcm[position : position + size] if position < len(pcm) else next(room)
            position += len(chunk)
            await asyncio.sleep(began + position / RATE - asyncio.get_running_loop().time())
            audio = base64.b64encode(pcm_to_bytes(chunk)).decode()
            await self._send({"type": "input_audio_buffer.append", "audio": audio})

    async def _listen(self, turn: SpokenTurn, to_end: bool) -> None:
        """Follow the turn to the end of the answer to its last words, or to its first sound.

        An answer that begins before the speech ends, or that more speech interrupts, was too early.
        If no other answer follows, it counts as a cut-off without a latency.
        """
        now = asyncio.get_running_loop().time
        premature = busy = False
        while to_end or turn.voice_to_voice_ms is None:
            patience = turn.speech_end_at + LAST_ANSWER_S if premature and not busy else None
            try:
                async with asyncio.timeout_at(patience):
                    event = await self._receive()
            except TimeoutError:
                if patience is None:
                    raise
                return
            match event["type"]:
                case "response.created" | "input_audio_buffer.speech_started" as kind:
                    busy = True
                    if premature:
                        turn.forget_answer()
                        premature = False
                    if kind == "response.created":
                        turn.early = now() < turn.speech_end_at
                case "input_audio_buffer.speech_stopped":
                    busy = False
                case "response.done":
                    busy = False
                    response = event["response"]
                    _raise_if_failed(response)
                    turn.usage = response.get("usage") or {}
                    turn.early = premature = turn.early or response["status"] == "cancelled"
                    if not premature:
                        return
                    turn.cut_offs += 1
                case _:
                    self._note(event, turn, now())

    def _note(self, event: dict[str, Any], turn: SpokenTurn, now: float) -> None:
        match event["type"]:
            case "conversation.item.input_audio_transcription.completed":
                turn.heard = f"{turn.heard} {event['transcript']}".strip()
            case "response.output_audio_transcript.delta":
                turn.answered += event["delta"]
            case "response.output_audio.delta":
                turn.hear(pcm_from_bytes(base64.b64decode(event["delta"])), now)
            case "reachy_voice.timeline":
                turn.timeline_ms = {
                    key.removesuffix("_ms"): value
                    for key, value in event.items()
                    if key.endswith("_ms")
                }
            case "error":
                raise TurnFailed("The server refused", why=event["error"]["message"])

    async def _send(self, message: dict[str, Any]) -> None:
        with _closing_is_a_failure():
            await self._socket.send(json.dumps(message))

    async def _receive(self) -> dict[str, Any]:
        with _closing_is_a_failure():
            message: dict[str, Any] = json.loads(await self._socket.recv())
        return message

    async def _expect(self, kind: str) -> None:
        while (event := await self._receive())["type"] != kind:
            if event["type"] == "error":
                raise TurnFailed("The server refused", why=event["error"]["message"])


def realtime_url(address: str) -> str:
    """The WebSocket's URL from ``host``, ``host:port``, a base URL, or the full URL.

    Raises ``NoServer`` if it is not an address.
    """
    scheme, _, rest = address.rpartition("://")
    try:
        port = urlsplit(f"ws://{rest}").port
    except ValueError:
        raise _no_address(address, "the text after the colon is not a port") from None
    scheme = {"": "ws", "http": "ws", "https": "wss"}.get(scheme, scheme)
    host, slash, path = rest.partition("/")
    path = f"{slash}{path}".rstrip("/")
    if scheme not in ("ws", "wss") or not host:
        raise _no_address(address)
    if port is None and address == host:
        host = f"{host}:{USUAL_PORT}"
    if "/realtime" not in path:
        path = f"{path or '/v1'}/realtime"
    return f"{scheme}://{host}{path}"


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[RealtimeClient]:
    """A conversation with the server at ``url``. Raises what ``dial`` raises."""
    async with dial(url) as socket:
        yield RealtimeClient(socket)


@asynccontextmanager
async def dial(
    url: str, *, holds: bool = False
) -> AsyncIterator[websockets.asyncio.client.ClientConnection]:
    """A WebSocket to the server at ``url``, in any form that ``realtime_url`` takes, with the key
    in ``KEY_VARIABLE``, or else the key of our own server on this machine. ``holds``: also get an
    event when an answer is held back, and when the robot falls asleep or wakes.

    Raises ``NoServer`` if no server answers, or it refuses us.
    """
    url = realtime_url(url)
    joint = "&" if "?" in url else "?"
    key = os.environ.get(KEY_VARIABLE) or await asyncio.to_thread(key_for, url, os.environ)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    query = "timings=true&holds=true&sleep=true" if holds else "timings=true"
    try:
        socket = await websockets.asyncio.client.connect(
            f"{url}{joint}{query}", additional_headers=headers, max_size=None, proxy=None
        )
    except InvalidStatus as refusal:
        raise _refusal(url, refusal, key) from refusal
    except ssl.SSLError as error:
        raise _no_tls(url, error) from error
    except (OSError, WebSocketException) as error:
        raise _no_server(url, error) from error
    except ValueError as error:  # an invalid port, name or pair of brackets
        raise _no_address(url, str(error)) from error
    async with socket:
        yield socket


def _no_address(address: str, why: str = "") -> NoServer:
    return NoServer(
        f"{address!r} is not the address of a server",
        why=why,
        fix="Give host:port, or ws://HOST:PORT/v1/realtime",
    )


def _refusal(url: str, refusal: InvalidStatus, key: str | None) -> NoServer:
    match refusal.response.status_code:
        case HTTPStatus.UNAUTHORIZED:
            wrong = f"it does not know the key in {KEY_VARIABLE}"
            fix = f"Set {KEY_VARIABLE} to a key of that server (there: reachy-voice key new NAME)"
            return NoServer(
                f"The server at {url} does not let us in",
                why="it requires a key" if key is None else wrong,
                fix=fix,
            )
        case HTTPStatus.NOT_FOUND:
            return NoServer(
                f"There is a server, but no Realtime API at {url}",
                why="it does not know the path (HTTP 404)",
                fix="The path is /v1/realtime, and HOST:PORT is enough",
            )
    return _no_server(url, refusal)


_NO_TLS_THERE = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
"""OpenSSL's errors for an answer that is not TLS; the second since version 3.5."""

_OTHER_NAME = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL."""


def _no_tls(url: str, error: ssl.SSLError) -> NoServer:
    if error.reason in _NO_TLS_THERE:
        return NoServer(
            f"The server at {url} does not speak TLS",
            why=str(error),
            fix="Use ws:// (or http://) in its address",
        )
    fix = "Copy its certificate here and set SSL_CERT_FILE to that file"
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _OTHER_NAME:
        fix = "Use a name or address that is in its certificate (there: access.hosts adds names)"
    return NoServer(
        f"The certificate of the server at {url} is not trusted", why=str(error), fix=fix
    )


def _no_server(url: str, error: Exception) -> NoServer:
    return NoServer(
        f"There is no reachy-voice server at {url}",
        why=str(error),
        fix="Start one there (reachy-voice serve), or give no address, to use engines here",
    )
