"""The clients of a soak: they talk, interrupt, agree, call tools, write, vanish, come back.

Each client lives until it is stopped, one connection after the other, and draws everything from its
own seed. It is independent of the transport: a ``Connect`` provides links
(``benchmarks.soak.links``), and its voice provides audio as messages that are ready to send.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.soak.links import Gone, Link, Report

Manner = Literal["robot", "long", "guest", "writer"]
MINUTES: dict[Manner, tuple[float, float]] = {
    "robot": (4.0, 40.0),
    "long": (1e9, 1e9),
    "guest": (0.5, 5.0),
    "writer": (2.0, 20.0),
}
"""How long each kind stays connected. A writer pushes to talk, and types."""
Sound = Literal["question", "interruption", "backchannel", "noise"]
OVER = {
    "listen": 45,
    "interruption": 17,
    "backchannel": 15,
    "noise": 6,
    "cancel": 5,
    "truncate": 4,
    "mute": 3,
    "odd": 5,
}
"""A client's actions over an answer, with weights in percent."""
QUIET_S = 6.0
MOST_BEHIND_S = 1.0
"""Audio later than this is skipped."""
SAID_S = 120.0
"""Longer than any speech takes, even if the server reads slowly."""
PAUSE_S = 10.0
"""Between two turns, on average."""
TOOL = {
    "type": "function",
    "name": "look",
    "description": "Look somewhere.",
    "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
}


@dataclass(frozen=True)
class Voice:
    """``input_audio_buffer.append`` messages of ``frame_s`` seconds each, at ``rate`` Hz: silence,
    and several sounds of each kind."""

    frame_s: float
    rate: int
    silence: str
    sounds: Mapping[Sound, Sequence[Sequence[str]]]


Connect = Callable[[str, str, bool], AbstractAsyncContextManager[Link]]
"""``connect(key, query, fresh)``: a link for as long as the context lasts."""


class Microphone:
    """Streams its tape in real time, and silence when the tape is empty. ``run`` it in a task."""

    def __init__(self, link: Link, voice: Voice, rng: random.Random) -> None:
        self.muted = False
        self._link = link
        self._voice = voice
        self._rng = rng
        self._tape: deque[str] = deque()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        with contextlib.suppress(Gone):
            while True:
                if self._tape:
                    await self._link.send_text(self._tape.popleft())
                    if not self._tape:
                        self._link.wake()
                elif not self.muted:
                    await self._link.send_text(self._voice.silence)
                due = max(due + self._voice.frame_s, loop.time() - MOST_BEHIND_S)
                await asyncio.sleep(max(0.0, due - loop.time()))

    async def say(self, kind: Sound) -> None:
        """Return when the sound has been sent. Raises ``Gone``."""
        self._tape.extend(self._rng.choice(self._voice.sounds[kind]))
        await self._link.until(lambda: not self._tape, SAID_S)


@dataclass
class Client:
    """``name`` is also its key. ``link``: the open connection. ``vanished``: it lost its last
    connection, so it resumes its conversation. ``stopping``: leave when idle."""

    name: str
    manner: Manner
    voice: Voice
    connect: Connect
    report: Report
    rng: random.Random
    link: Link | None = None
    vanished: bool = False
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def live(self) -> None:
        """Until it is stopped."""
        while not self.stopping.is_set():
            await self._visit()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.rng.uniform(0.2, 20.0)):
                    await self.stopping.wait()

    async def _visit(self) -> None:
        query = "timings=true" if self.rng.random() < 0.3 else ""
        self.report.counts["connections"] += 1
        now = asyncio.get_running_loop().time
        ends_at = now() + 60 * self.rng.uniform(*MINUTES[self.manner])
        async with self.connect(self.name, query, not self.vanished) as link:
            self.link, self.vanished = link, True
            with contextlib.suppress(Gone):
                await link.send("session.update", session=self._session())
                async with _streaming(link, self.voice, self.rng) as microphone:
                    microphone.muted = self.manner == "writer"
                    while not self.stopping.is_set() and now() < ends_at:
                        await self._act(link, microphone)
                    await self._end(link, microphone)
            self.link = None

    def _session(self) -> dict[str, Any]:
        rng = self.rng
        kinds: list[dict[str, Any]] = [{"type": "server_vad"}]
        kinds.append({"type": "semantic_vad", "eagerness": "high"})
        if rng.random() < 0.2:
            kinds.append({"type": "server_vad", "idle_timeout_ms": 8000})
        detection = None if self.manner == "writer" else rng.choice(kinds)
        return {
            "type": "realtime",
            "instructions": f"Be brief. {rng.randrange(3)}",
            "tools": [TOOL],
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": self.voice.rate},
                    "transcription": {"model": "whisper-1"},
                    "turn_detection": detection,
                },
                "output": {"speed": rng.choice((0.9, 1.0, 1.2))},
            },
        }

    async def _end(self, link: Link, microphone: Microphone) -> None:
        """Vanish, or leave when idle and check that everything was closed."""
        if self.rng.random() < 0.6 and not self.stopping.is_set():
            self.report.counts["vanished"] += 1
            await link.cut()
            return
        for _ in range(2):
            await asyncio.sleep(QUIET_S)
            await link.until_silent()
        if not link.responses:
            link.finish()
        microphone.muted = True
        await link.leave()
        self.vanished = False

    # -- what it does

    async def _act(self, link: Link, microphone: Microphone) -> None:
        if self.manner == "writer":
            await self._write(link, microphone)
        else:
            await self._talk(link, microphone)
        while link.calls:
            await self._answer_call(link, link.calls.pop(0))
        await asyncio.sleep(self.rng.expovariate(1 / PAUSE_S))

    async def _talk(self, link: Link, microphone: Microphone) -> None:
        rng = self.rng
        self.report.counts["spoken"] += 1
        await microphone.say("question")
        begun = await link.until(lambda: bool(link.responses), 8.0)
        kind = rng.choices(list(OVER), list(OVER.values()))[0] if begun else "listen"
        self.report.counts[f"then: {kind}"] += 1
        if kind != "listen":
            await asyncio.sleep(rng.uniform(0.0, 5.0))
        match kind:
            case "interruption" | "backchannel" | "noise" as sound:
                await microphone.say(sound)
            case "cancel":
                await link.send("response.cancel", may_fail=True)
            case "truncate":
                await self._truncate(link)
            case "mute":
                microphone.muted = True
                await asyncio.sleep(rng.uniform(0.5, 5.0))
                microphone.muted = False
            case "odd":
                await self._odd(link)
        await link.until_silent()

    async def _truncate(self, link: Link) -> None:
        await link.send("response.cancel", may_fail=True)
        fields = {"content_index": 0, "audio_end_ms": int(link.audio_ms * self.rng.random())}
        kind = "conversation.item.truncate"
        await link.send(kind, may_fail=True, item_id=link.last_item or "", **fields)

    async def _odd(self, link: Link) -> None:
        """A rare action."""
        match self.rng.randrange(4):
            case 0:
                await link.send("input_audio_buffer.clear")
            case 1:
                kind = self.rng.choice(("delete", "retrieve"))
                item_id = link.last_item or ""
                await link.send(f"conversation.item.{kind}", may_fail=True, item_id=item_id)
            case 2:
                await link.send("input_audio_buffer.commit", may_fail=True)
            case _:
                await self._ask_aside(link)
                update = {"type": "realtime", "instructions": f"Be kind. {self.rng.randrange(3)}"}
                await link.send("session.update", session=update)

    async def _ask_aside(self, link: Link) -> None:
        """A text answer out of band."""
        asked = {"conversation": "none", "output_modalities": ["text"]}
        await link.send("response.create", may_fail=True, response=asked)

    async def _write(self, link: Link, microphone: Microphone) -> None:
        rng = self.rng
        if rng.random() < 0.4:
            await microphone.say("question")
            await link.send("input_audio_buffer.commit", may_fail=True)
        else:
            content = [{"type": "input_text", "text": "Hello, who are you?"}]
            item = {"type": "message", "role": "user", "content": content}
            await link.send("conversation.item.create", may_fail=True, item=item)
        response = {"output_modalities": [rng.choice(("audio", "text"))]}
        await link.send("response.create", may_fail=True, response=response)
        if rng.random() < 0.2:
            await self._ask_aside(link)
        if rng.random() < 0.2:
            await asyncio.sleep(rng.uniform(0.0, 3.0))
            await rng.choice((self._truncate, self._odd))(link)
        await link.until_silent()

    async def _answer_call(self, link: Link, call: dict[str, Any]) -> None:
        self.report.counts["tool calls"] += 1
        await asyncio.sleep(self.rng.expovariate(1 / 0.5))
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "a ship"}
        await link.send("conversation.item.create", may_fail=True, item=output)
        await link.send("response.create", may_fail=True)
        await link.until(lambda: bool(link.responses), 2.0)
        await link.until_silent()


@asynccontextmanager
async def _streaming(link: Link, voice: Voice, rng: random.Random) -> AsyncIterator[Microphone]:
    microphone = Microphone(link, voice, rng)
    running = asyncio.create_task(microphone.run())
    try:
        yield microphone
    finally:
        running.cancel()
        await asyncio.wait({running})
