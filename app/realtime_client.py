"""A small Realtime client for ``ask`` and ``bench``: speaks a recording, listens to the answer.

It knows only the public API, so what it measures is what any client sees.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import websockets.asyncio.client
from websockets.exceptions import ConnectionClosed, WebSocketException

from pipeline.audio import Pcm, pcm_from_bytes, pcm_to_bytes
from pipeline.errors import ReachyVoiceError

RATE = 24_000
"""Hz, both ways: the Realtime API's default."""
CHUNK_MS = 20
TURN_TIMEOUT_S = 60.0
LAST_ANSWER_S = 3.0
"""How long after the speech to wait for another answer when there was one already."""


class TurnFailed(ReachyVoiceError):
    """The server did not answer a turn."""

    exit_code = 8


class NoServer(ReachyVoiceError):
    """Nobody serves at this address."""

    exit_code = 9


@dataclass(slots=True)
class SpokenTurn:
    """One turn as the client saw it. Times are seconds of the loop's clock."""

    speech_end_at: float
    heard: str = ""
    answered: str = ""
    audio: list[Pcm] = field(default_factory=list)
    first_audio_at: float | None = None
    cut_offs: int = 0
    """Answers that began before the speaker was done."""
    timeline_ms: dict[str, float | None] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)

    @property
    def voice_to_voice_ms(self) -> float:
        """Last speech sample sent -> first reply sample received; NaN if it came before."""
        if self.first_audio_at is None or self.first_audio_at < self.speech_end_at:
            return float("nan")
        return (self.first_audio_at - self.speech_end_at) * 1000

    def forget_answer(self) -> None:
        """It answered too early: only the answer to the last words counts."""
        self.answered = ""
        self.audio.clear()
        self.first_audio_at = None

    @property
    def pcm(self) -> Pcm:
        """The spoken answer, int16 mono at ``RATE``."""
        return np.concatenate(self.audio) if self.audio else np.zeros(0, dtype=np.int16)


def _raise_if_failed(response: dict[str, Any]) -> None:
    if response["status"] == "failed":
        error = (response.get("status_details") or {}).get("error") or {}
        raise TurnFailed("The server could not answer", why=str(error.get("message", "")))


class RealtimeClient:
    """One conversation over one WebSocket."""

    def __init__(self, socket: websockets.asyncio.client.ClientConnection) -> None:
        self._socket = socket

    async def configure(self, session: dict[str, Any] | None = None) -> None:
        """Ask for transcripts of what was heard, and for ``session`` on top."""
        await self._expect("session.created")
        transcription = {"input": {"transcription": {"model": "default"}}}
        await self._send(
            {
                "type": "session.update",
                "session": {"type": "realtime", "audio": transcription, **(session or {})},
            }
        )
        await self._expect("session.updated")

    async def speak(self, pcm: Pcm, speech_end: int) -> SpokenTurn:
        """Say ``pcm`` (int16 at ``RATE``) in real time, then stay silent and listen.

        ``speech_end``: index after the last sample of speech. Raises ``TurnFailed``.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        turn = SpokenTurn(speech_end_at=began + speech_end / RATE)
        try:
            async with asyncio.timeout(len(pcm) / RATE + TURN_TIMEOUT_S):
                await self._converse(turn, pcm, began)
        except TimeoutError:
            raise TurnFailed(
                "The server did not answer",
                why=f"no reply within {TURN_TIMEOUT_S:g} s of the end of the recording",
                fix="Is there speech in the recording? Look at the server's log",
            ) from None
        return turn

    async def stay_silent(self, seconds: float) -> None:
        """Stream silence in real time, and ignore what comes back."""
        try:
            async with asyncio.timeout(seconds):
                await self._microphone(np.zeros(0, np.int16), asyncio.get_running_loop().time())
        except TimeoutError:
            return

    async def _converse(self, turn: SpokenTurn, pcm: Pcm, began: float) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                microphone = group.create_task(self._microphone(pcm, began))
                await self._listen(turn)
                microphone.cancel()
        except* TurnFailed as failed:
            raise failed.exceptions[0] from None
        except* ConnectionClosed as closed:
            why = str(closed.exceptions[0])
            raise TurnFailed("The server closed the connection", why=why) from None

    async def _microphone(self, pcm: Pcm, began: float) -> None:
        """Send 20 ms chunks when they would have been recorded; silence after the recording."""
        size = RATE * CHUNK_MS // 1000
        silence = np.zeros(size, dtype=np.int16)
        sent = 0
        while True:
            chunk = pcm[sent : sent + size] if sent < len(pcm) else silence
            sent += len(chunk)
            await asyncio.sleep(began + sent / RATE - asyncio.get_running_loop().time())
            audio = base64.b64encode(pcm_to_bytes(chunk)).decode()
            await self._send({"type": "input_audio_buffer.append", "audio": audio})

    async def _listen(self, turn: SpokenTurn) -> None:
        """Follow the turn to the end of the answer to its last words.

        An answer that ends before the speech does was too early. If none follows, it stands, as a
        cut-off without a latency.
        """
        now = asyncio.get_running_loop().time
        premature = busy = False
        while True:
            patience = turn.speech_end_at + LAST_ANSWER_S if premature and not busy else None
            try:
                async with asyncio.timeout_at(patience):
                    event = await self._receive()
            except TimeoutError:
                if patience is None:
                    raise
                return
            match event["type"]:
                case "response.created" | "input_audio_buffer.speech_started":
                    busy = True
                    if premature:
                        turn.forget_answer()
                        premature = False
                case "input_audio_buffer.speech_stopped":
                    busy = False
                case "response.done":
                    busy = False
                    response = event["response"]
                    _raise_if_failed(response)
                    turn.usage = response.get("usage") or {}
                    premature = response["status"] == "cancelled" or now() < turn.speech_end_at
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
                if turn.first_audio_at is None:
                    turn.first_audio_at = now
                turn.audio.append(pcm_from_bytes(base64.b64decode(event["delta"])))
            case "reachy_voice.timeline":
                turn.timeline_ms = {
                    key.removesuffix("_ms"): value
                    for key, value in event.items()
                    if key.endswith("_ms")
                }
            case "error":
                raise TurnFailed("The server refused", why=event["error"]["message"])

    async def _send(self, message: dict[str, Any]) -> None:
        await self._socket.send(json.dumps(message))

    async def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await self._socket.recv())
        return message

    async def _expect(self, kind: str) -> None:
        while (event := await self._receive())["type"] != kind:
            if event["type"] == "error":
                raise TurnFailed("The server refused", why=event["error"]["message"])


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[RealtimeClient]:
    """A conversation with the server at ``url`` (``ws://host:port/v1/realtime``).

    Raises ``NoServer`` when nobody answers there.
    """
    joint = "&" if "?" in url else "?"
    try:
        socket = await websockets.asyncio.client.connect(
            f"{url}{joint}timings=true", max_size=None, proxy=None
        )
    except (OSError, WebSocketException) as error:
        raise NoServer(
            f"There is no reachy-voice server at {url}",
            why=str(error),
            fix="Start one with script/serve, or leave --url away to use one of your own",
        ) from error
    async with socket:
        yield RealtimeClient(socket)
