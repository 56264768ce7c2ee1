"""Hostile clients: no crash, no lost session, and one error for each bad message.

    python -m benchmarks.hostile [-n MESSAGES] [--loopback MESSAGES] [--seed SEED] [--out FILE]

Most messages go straight to ``RealtimeConnection``; the others go over loopback sockets to the
real server with real sessions over scripted engines. Every server event is checked strictly. Exits
with 1 when anything was found.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from benchmarks.hostile.messages import Attack, Hostile
from tests.support.conformance import Recorder
from tests.support.protocol_client import Client
from tests.support.scripted_server import servers
from tests.support.staged_server import StagedAssistant

PER_CONNECTION = 1_000
"""Messages to one connection before a fresh one takes its place."""

BATCH = 50
"""Messages that are sent in one burst, before the answers are counted."""

ANSWER_S = 30.0
"""Longest wait for the answer to a harmless message; a session that takes longer is lost."""

KEPT_FINDINGS = 20


@dataclass
class Result:
    """What became of the messages. ``errors`` counts ``error`` events."""

    seed: int
    messages: int = 0
    bad: int = 0
    errors: int = 0
    connections: int = 0
    crashes: int = 0
    lost_sessions: int = 0
    wrong_answers: int = 0
    leaked: int = 0
    """Exceptions that are still in memory at the end; each keeps what was done with its message."""
    kinds: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        return not (self.crashes or self.lost_sessions or self.wrong_answers or self.leaked)

    def sent(self, attack: Attack, *, bad: bool) -> None:
        self.messages += 1
        self.bad += bad
        self.kinds[attack.kind] = self.kinds.get(attack.kind, 0) + 1

    def finding(self, what: str, *attacks: Attack) -> None:
        if len(self.findings) < KEPT_FINDINGS:
            frames = "; ".join(f"{attack.kind}: {attack.frame[:300]!r}" for attack in attacks)
            self.findings.append(f"{what} [{frames}]"[:2_000])


# --- straight to the protocol --------------------------------------------------------------------


class Direct:
    """Attacks ``RealtimeConnection``, without a session behind it."""

    def __init__(self, seed: int) -> None:
        self.result = Result(seed)
        self._attacks: Iterator[Attack] = iter(Hostile(seed))
        self._new_client = Client

    def run(self, messages: int) -> Result:
        before = _exceptions_in_memory()
        began = time.perf_counter()
        while (left := messages - self.result.messages) > 0:
            self.result.connections += 1
            self._run_connection(islice(self._attacks, min(left, PER_CONNECTION)))
        self.result.seconds = time.perf_counter() - began
        self.result.leaked = max(0, _exceptions_in_memory() - before)
        if self.result.leaked:
            self.result.finding(f"{self.result.leaked} exceptions were never freed")
        return self.result

    def _run_connection(self, attacks: Iterator[Attack]) -> None:
        client = self._new_client()
        input_format = "audio/pcm"
        for attack in attacks:
            bad = attack.verdict == "bad"
            bad |= attack.verdict == "bad_pcm" and input_format == "audio/pcm"
            self.result.sent(attack, bad=bad)
            try:
                commands = client.protocol.receive(attack.frame)
            except Exception as error:
                self.result.crashes += 1
                self.result.finding(f"{type(error).__name__}: {error}", attack)
                return
            try:
                events = client.sent()
            except (AssertionError, ValueError) as error:
                self.result.wrong_answers += 1
                self.result.finding(f"{type(error).__name__}: {error}", attack)
                continue
            for event in events:
                if event["type"] == "session.updated":
                    input_format = event["session"]["audio"]["input"]["format"]["type"]
            if problem := self._wrong(attack, bad, len(commands), events):
                self.result.wrong_answers += 1
                self.result.finding(problem, attack)
        if not self._survived(client):
            self.result.lost_sessions += 1
            self.result.finding("a plain session.update is not answered any more")

    def _wrong(self, attack: Attack, bad: bool, commands: int, events: list[Any]) -> str | None:
        errors = [event["error"] for event in events if event["type"] == "error"]
        self.result.errors += len(errors)
        if len(errors) > 1:
            return f"{len(errors)} errors"
        if errors and commands:
            return "an error and an effect"
        if bad and not errors:
            return "no error"
        # An append without a sample is neither good nor bad.
        if not errors and not commands and b"append" not in _bytes(attack.frame):
            return "neither an error nor an effect"
        if errors and attack.event_id not in (None, errors[0]["event_id"]):
            return f"the error names {errors[0]['event_id']!r:.100}"
        return None

    def _survived(self, client: Any) -> bool:
        commands = client.update(instructions="Still here?")
        (event,) = client.sent()
        updated: bool = event["type"] == "session.updated"
        return updated and len(commands) == 1


def _exceptions_in_memory() -> int:
    gc.collect()
    return sum(issubclass(type(thing), BaseException) for thing in gc.get_objects())


def _bytes(frame: str | bytes) -> bytes:
    return frame if isinstance(frame, bytes) else frame.encode()


# --- over a socket -------------------------------------------------------------------------------


class Loopback:
    """Attacks the real server. Answers are counted burst by burst: what cannot be read has no
    ``event_id`` by which its error could be found."""

    def __init__(self, seed: int) -> None:
        self.result = Result(seed)
        self._attacks: Iterator[Attack] = iter(Hostile(seed))

    async def run(self, messages: int) -> Result:
        assistant = StagedAssistant()
        began = time.perf_counter()
        async with servers() as start:
            url = (await start(assistant)).url
            while (left := messages - self.result.messages) > 0:
                self.result.connections += 1
                await self._run_connection(url, min(left, PER_CONNECTION))
        self.result.seconds = time.perf_counter() - began
        return self.result

    async def _run_connection(self, url: str, messages: int) -> None:
        burst: list[Attack] = []
        try:
            async with connect(url, max_size=None) as socket:
                client = _Client(socket)
                for number in range(0, messages, BATCH):
                    burst = list(islice(self._attacks, min(BATCH, messages - number)))
                    async with asyncio.timeout(ANSWER_S):
                        self._count(burst, await client.suffer(burst, f"marker_{number}"))
                burst = []
                async with asyncio.timeout(ANSWER_S):
                    await client.hold_a_turn()
        except (ConnectionClosed, TimeoutError) as error:
            self.result.lost_sessions += 1
            self.result.finding(f"{type(error).__name__}: {error}", *burst)
        except AssertionError as error:
            self.result.wrong_answers += 1
            self.result.finding(f"does not conform: {error}", *burst)

    def _count(self, burst: list[Attack], errors: Counter[str | None]) -> None:
        self.result.errors += errors.total()
        changed_format = any("audio/pcmu" in str(attack.frame) for attack in burst)
        nameless = [attack for attack in burst if attack.event_id is None]
        for attack in burst:
            bad = attack.verdict == "bad" or (attack.verdict == "bad_pcm" and not changed_format)
            self.result.sent(attack, bad=bad)
            if attack.event_id is None:
                continue
            given = errors.pop(attack.event_id, 0)
            if given > 1 or (bad and given == 0):
                self.result.wrong_answers += 1
                self.result.finding(f"{given} errors", attack)
        if errors.total() < len(nameless):
            self.result.wrong_answers += 1
            self.result.finding(f"{errors.total()} errors for {len(nameless)}", *nameless)


class _Client:
    """One connection, whose every event is checked, alone and in its place."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._recorder = Recorder(whole=True)

    async def suffer(self, burst: list[Attack], marker: str) -> Counter[str | None]:
        """Send a burst; the errors that came of it, by the ``event_id`` that they name."""
        # Audio of one byte a sample may have any length, so every burst begins with PCM.
        pcm = {"input": {"format": {"type": "audio/pcm", "rate": 24_000}}}
        await self._send("session.update", session={"type": "realtime", "audio": pcm})
        for attack in burst:
            await self._socket.send(attack.frame)
        # The session takes commands in order: this refusal comes after all others.
        await self._send("conversation.item.delete", event_id=marker, item_id="nobody")
        errors: Counter[str | None] = Counter()
        while True:
            event = await self._next()
            if event["type"] == "error":
                if (event_id := event["error"]["event_id"]) == marker:
                    return errors
                errors[event_id] += 1

    async def hold_a_turn(self) -> None:
        """After all that, an ordinary turn: it ends as a completed response."""
        audio = {"input": {"turn_detection": None}}
        plain: dict[str, Any] = {"type": "realtime", "output_modalities": ["text"], "audio": audio}
        plain |= {"tools": [], "tool_choice": "auto", "max_output_tokens": "inf"}
        await self._send("session.update", session=plain)
        await self._send("response.cancel")
        content = [{"type": "input_text", "text": "What time is it?"}]
        item = {"type": "message", "role": "user", "content": content}
        await self._send("conversation.item.create", item=item)
        await self._send("response.create", response={"metadata": {"last": "yes"}})
        while True:
            event = await self._next()
            if event["type"] == "response.done" and event["response"]["metadata"]:
                if event["response"]["metadata"] != {"last": "yes"}:
                    continue
                if event["response"]["status"] != "completed":
                    raise TimeoutError(f"the last turn failed: {event['response']}")
                return

    async def _next(self) -> dict[str, Any]:
        text = await self._socket.recv()
        assert isinstance(text, str), "a binary frame"
        event: dict[str, Any] = self._recorder.record(text)
        return event

    async def _send(self, kind: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"type": kind, **fields}))


# --- command line --------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.hostile")
    parser.add_argument("-n", type=int, default=100_000, metavar="MESSAGES")
    parser.add_argument("--loopback", type=int, default=10_000, metavar="MESSAGES")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    direct = Direct(options.seed).run(max(0, options.n - options.loopback))
    loopback = asyncio.run(Loopback(options.seed + 1).run(min(options.n, options.loopback)))
    report = {
        "messages": direct.messages + loopback.messages,
        "direct": asdict(direct),
        "loopback": asdict(loopback),
        "load_average": os.getloadavg()[0],
        "python": sys.version.split()[0],
    }
    text = json.dumps(report, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    sys.exit(0 if direct.clean and loopback.clean else 1)


if __name__ == "__main__":
    main()
