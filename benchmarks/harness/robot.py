"""A robot on the WebSocket, in real time: it plays audio as soon as it arrives."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

from app.talk.realtime_client import RATE, RealtimeClient, SpokenTurn
from pipeline.audio import EMPTY, Pcm

ANSWER_S, AFTER_S, TOLD_S = 30.0, 0.4, 2.0


@dataclass
class Player:
    """Plays audio as soon as it arrives, and notes when it had nothing to play."""

    first_at: float | None = None
    gaps_ms: list[float] = field(default_factory=list)
    until: float = 0.0
    """When it will have played everything, in ``time.monotonic`` seconds."""

    def take(self, seconds: float) -> None:
        now = time.monotonic()
        if self.first_at is None:
            self.first_at = self.until = now
        if now > self.until:
            self.gaps_ms.append(1000 * (now - self.until))
        self.until = max(now, self.until) + seconds

    @property
    def left_s(self) -> float:
        """Seconds still to be played."""
        return max(0.0, self.until - time.monotonic())


@dataclass(frozen=True, slots=True)
class InterruptionTimes:
    """Times in ms from the onset of the speech."""

    sent_ms: float
    """To the last sound of the answer."""
    told_ms: float | None
    """To ``speech_started``."""
    silent_ms: float
    """Until the player, which drops its audio on ``speech_started``, is silent."""
    missed: bool
    """The answer was not cancelled."""


class RobotClient(RealtimeClient):
    """A client that plays what it hears. ``events``: type, response and time of each event."""

    def __init__(self, socket: Any) -> None:
        super().__init__(socket)
        self.player = Player()
        self.events: list[tuple[str, str, float]] = []

    async def _receive(self) -> dict[str, Any]:
        event = await super()._receive()
        response = event.get("response_id") or event.get("response", {}).get("id", "")
        if event["type"] == "response.created":
            self.player = Player()
        if event["type"] == "response.output_audio.delta":
            self.player.take(len(base64.b64decode(event["delta"])) / 2 / RATE)
        self.events.append((event["type"], response, time.monotonic()))
        return event

    async def ask(self, pcm: Pcm, speech_end: int) -> tuple[SpokenTurn, list[float]]:
        """Ask, and wait until the answer has been played; returns the turn, and the holes in its
        answer in ms."""
        turn = await self.speak(pcm, speech_end)
        await asyncio.sleep(self.player.left_s + AFTER_S)
        return turn, turn.holes_ms

    async def interrupt(
        self, over: Pcm, onset_s: float, after_s: float, question: Pcm = EMPTY
    ) -> InterruptionTimes:
        """Speak over an answer, ``after_s`` after its first sound; speech begins ``onset_s`` into
        ``over``. Without ``question``, an answer is requested. Raises ``TimeoutError``."""
        now = asyncio.get_running_loop().time
        async with (
            asyncio.timeout(ANSWER_S + (len(question) + len(over)) / RATE),
            asyncio.TaskGroup() as group,
        ):
            microphone = group.create_task(self._microphone(question, now()))
            if not len(question):
                await self._send({"type": "response.create"})
            await self._until("response.output_audio.delta")
            victim, player = self.events[-1][1], self.player
            ending = group.create_task(self._until("response.done", victim))
            await asyncio.sleep(after_s)
            microphone.cancel()
            onset = time.monotonic() + onset_s
            microphone = group.create_task(self._microphone(over, now()))
            missed = (await ending)["response"]["status"] != "cancelled"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TOLD_S):
                    await self._until("input_audio_buffer.speech_started", since=onset)
            microphone.cancel()
        starts = self._times("input_audio_buffer.speech_started", since=onset)
        return InterruptionTimes(
            1000 * (self._times("response.output_audio.delta", victim)[-1] - onset),
            1000 * (starts[0] - onset) if starts else None,
            1000 * (min([player.until, *starts[:1]]) - onset),
            missed,
        )

    def _times(self, kind: str, response: str = "", since: float = 0.0) -> list[float]:
        return [
            at
            for each, id_, at in self.events
            if each == kind and response in ("", id_) and at > since
        ]

    async def _until(self, kind: str, response: str = "", since: float = 0.0) -> dict[str, Any]:
        """Wait for such an event and return it; empty if it has already come."""
        event: dict[str, Any] = {}
        while not self._times(kind, response, since):
            event = await self._receive()
        return event
