"""Robots that ask again and again, each from its own address (127.0.1.N)."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from benchmarks.harness.robot import Player
from pipeline.audio import LISTEN_RATE, Pcm, resampled
from tests.support.recordings import recording

FRAME_S, RATE = 0.02, 24_000
AGAIN_S = 1.0
"""Between two attempts to connect."""
TURN_S = 30.0
"""A turn that takes longer is lost."""
HEADERS = {"Authorization": "Bearer DUMMY"}
SPEECH_STEP = 500
"""A sample louder than this belongs to the question's words."""


@dataclass(frozen=True)
class SpokenQuestion:
    """A person's question as messages of ``FRAME_S``. ``speech``: the range of those with words."""

    frames: tuple[str, ...]
    speech: range


def question() -> SpokenQuestion:
    pcm = resampled(recording("goforward").pcm, LISTEN_RATE, RATE)
    size = int(FRAME_S * RATE)
    pcm = np.pad(pcm, (0, -len(pcm) % size))
    loud = np.flatnonzero(np.abs(pcm) > SPEECH_STEP)
    frames = tuple(_append(pcm[at : at + size]) for at in range(0, len(pcm), size))
    return SpokenQuestion(frames, range(int(loud[0]) // size, int(loud[-1]) // size + 1))


def _append(pcm: Pcm) -> str:
    audio = base64.b64encode(pcm.tobytes()).decode()
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio})


SILENT_FRAME = _append(np.zeros(int(FRAME_S * RATE), np.int16))


@dataclass
class FleetRobot:
    """One robot, which asks again ``silence_s`` after the end of an answer."""

    url: str
    address: str
    question: SpokenQuestion
    silence_s: float = 0.6
    firsts_ms: list[float] = field(default_factory=list)
    gaps_ms: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    connected_s: float = 0.0
    _began: float | None = None
    """When the current connection began."""
    _at: int = 0
    """How many frames of the question have been sent."""
    _last_word_at: float = 0.0
    """When the question's last word was sent."""
    _waits: bool = False
    """Whether an answer is due."""

    async def live(self) -> None:
        while True:
            try:
                async with connect(
                    self.url,
                    additional_headers=HEADERS,
                    proxy=None,
                    compression=None,
                    local_addr=(self.address, 0),
                ) as socket:
                    await self._talk(socket)
            except (ConnectionClosed, InvalidHandshake, OSError, TimeoutError) as error:
                status = getattr(getattr(error, "response", None), "status_code", None)
                self.counts[f"away: {status or type(error).__name__}"] += 1
                self.counts["lost"] += self._asking
                self._waits, self._at = False, 0
                await asyncio.sleep(AGAIN_S)

    def look(self) -> None:
        """Bring ``connected_s`` up to date."""
        if self._began is not None:
            now = time.monotonic()
            self.connected_s += now - self._began
            self._began = now

    @property
    def _asking(self) -> bool:
        """Whether words of the question have been sent but not yet answered."""
        return self._waits and self._at > self.question.speech.start

    async def _talk(self, socket: ClientConnection) -> None:
        self._began = time.monotonic()
        self._at = len(self.question.frames)
        await socket.send(json.dumps({"type": "session.update", "session": {"type": "realtime"}}))
        sending = asyncio.create_task(self._send(socket))
        try:
            while True:
                await self._ask(socket)
        finally:
            self.look()
            self._began = None
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, socket: ClientConnection) -> None:
        """Send the question, and silence before and after it, in real time."""
        due, frames = time.monotonic(), self.question.frames
        while True:
            if self._at < len(frames):
                await socket.send(frames[self._at])
                self._at += 1
                if self._at <= self.question.speech.stop:
                    self._last_word_at = time.monotonic()
            else:
                await socket.send(SILENT_FRAME)
            due += FRAME_S
            await asyncio.sleep(due - time.monotonic())

    async def _ask(self, socket: ClientConnection) -> None:
        self._at, self._waits = 0, True
        player = Player()
        async with asyncio.timeout(TURN_S):
            async for text in socket:
                event = json.loads(text)
                if event["type"] == "response.created":
                    player = Player()
                elif event["type"] == "response.output_audio.delta":
                    player.take(len(event["delta"]) * 3 / 4 / 2 / RATE)
                elif event["type"] == "error":
                    self.counts[f"error: {event['error']['code']}"] += 1
                elif event["type"] == "response.done" and self._at == len(self.question.frames):
                    status = event["response"]["status"]
                    if status == "cancelled":  # the answer began too early; another follows
                        self.counts["began too early"] += 1
                        continue
                    self._note(status, player)
                    break
            else:
                raise ConnectionClosed(None, None)
        await asyncio.sleep(player.left_s + self.silence_s)

    def _note(self, status: str, player: Player) -> None:
        self.counts["turns"] += 1
        if status != "completed":
            self.counts[status] += 1
            self.counts["lost"] += 1
        self._waits = False
        self.gaps_ms += player.gaps_ms
        if player.first_at:
            self.firsts_ms.append(1000 * (player.first_at - self._last_word_at))


def talkers(url: str, count: int, silence_s: float) -> list[FleetRobot]:
    spoken_question = question()
    return [FleetRobot(url, f"127.0.1.{n + 2}", spoken_question, silence_s) for n in range(count)]


def percentiles(values: list[float], *which: int) -> dict[str, int | None]:
    return {f"p{p}": round(float(np.percentile(values, p))) if values else None for p in which}
