"""Hostile clients: no crash, no lost session, and one error for each bad message.

    python -m benchmarks.hostile [-n MESSAGES] [--seed SEED] [--out FILE]

The messages go over loopback sockets to the real server with real sessions over scripted engines.
Every server event is checked strictly. Exit code 1: a fault was found.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from benchmarks.harness.program import arguments, finish, load
from benchmarks.hostile.messages import Attack, Hostile
from tests.support.conformance import Recorder
from tests.support.scripted_server import servers
from tests.support.staged_server import StagedAssistant

PER_CONNECTION = 1_000
"""Messages to one connection before it is replaced."""
BATCH = 50
"""Messages sent in one burst before the answers are counted."""
ANSWER_S = 30.0
"""Longest wait for the answer to a harmless message; a session that takes longer is lost."""
KEPT_FINDINGS = 20


@dataclass
class Result:
    """The outcome of the messages. ``errors`` counts ``error`` events."""

    seed: int
    messages: int = 0
    bad: int = 0
    errors: int = 0
    connections: int = 0
    lost_sessions: int = 0
    wrong_answers: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        return not (self.lost_sessions or self.wrong_answers)

    def finding(self, what: str, *attacks: Attack) -> None:
        if len(self.findings) < KEPT_FINDINGS:
            frames = "; ".join(f"{attack.kind}: {attack.frame[:300]!r}" for attack in attacks)
            self.findings.append(f"{what} [{frames}]"[:2_000])

    def count(self, burst: list[Attack], errors: Counter[str | None]) -> None:
        """Count errors burst by burst: an unreadable message has no ``event_id`` to match its error
        with."""
        self.errors += errors.total()
        changed_format = any("audio/pcmu" in str(attack.frame) for attack in burst)
        nameless = [attack for attack in burst if attack.event_id is None]
        for attack in burst:
            bad = attack.verdict == "bad" or (attack.verdict == "bad_pcm" and not changed_format)
            self.messages += 1
            self.bad += bad
            self.kinds[attack.kind] += 1
            if attack.event_id is None:
                continue
            given = errors.pop(attack.event_id, 0)
            if given > 1 or (bad and given == 0):
                self.wrong_answers += 1
                self.finding(f"{given} errors", attack)
        if errors.total() < len(nameless):
            self.wrong_answers += 1
            self.finding(f"{errors.total()} errors for {len(nameless)}", *nameless)


async def attack(messages: int, seed: int) -> Result:
    """Attack the real server, one connection after the other."""
    result, attacks = Result(seed), iter(Hostile(seed))
    began = time.perf_counter()
    async with servers() as start:
        assistant = StagedAssistant()
        url = (await start(assistant)).url
        while (left := messages - result.messages) > 0:
            result.connections += 1
            await _attack_once(url, list(islice(attacks, min(left, PER_CONNECTION))), result)
            assistant.forget()
    result.seconds = round(time.perf_counter() - began, 1)
    return result


async def _attack_once(url: str, attacks: list[Attack], result: Result) -> None:
    burst: list[Attack] = []
    try:
        async with connect(url, max_size=None) as socket:
            client = _Client(socket)
            for number in range(0, len(attacks), BATCH):
                burst = attacks[number : number + BATCH]
                async with asyncio.timeout(ANSWER_S):
                    result.count(burst, await client.suffer(burst, f"marker_{number}"))
            burst = []
            async with asyncio.timeout(ANSWER_S):
                await client.hold_a_turn()
    except (ConnectionClosed, TimeoutError) as error:
        result.messages += len(burst)
        result.lost_sessions += 1
        result.finding(f"{type(error).__name__}: {error}", *burst)
    except AssertionError as error:
        result.messages += len(burst)
        result.wrong_answers += 1
        result.finding(f"does not conform: {error}", *burst)


class _Client:
    """One connection; every event is checked, alone and in sequence."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._recorder = Recorder(whole=True)

    async def suffer(self, burst: list[Attack], marker: str) -> Counter[str | None]:
        """Send a burst; return its errors by the ``event_id`` that they name."""
        # Audio of one byte a sample may have any length, so every burst begins with PCM.
        pcm = {"input": {"format": {"type": "audio/pcm", "rate": 24_000}}}
        await self._send("session.update", session={"type": "realtime", "audio": pcm})
        for attack in burst:
            await self._socket.send(attack.frame)
        # The session takes commands in order: this refusal comes after all others.
        await self._send("conversation.item.delete", event_id=marker, item_id="absent")
        errors: Counter[str | None] = Counter()
        while True:
            event = await self._next()
            if event["type"] == "error":
                if (event_id := event["error"]["event_id"]) == marker:
                    return errors
                errors[event_id] += 1

    async def hold_a_turn(self) -> None:
        """Finally, an ordinary turn must end as a completed response."""
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
            if event["type"] == "response.done":
                response = event["response"]
                if (response["metadata"] or {}).get("last") == "yes":
                    assert response["status"] == "completed", f"the last turn failed: {response}"
                    return

    async def _next(self) -> dict[str, Any]:
        text = await self._socket.recv()
        assert isinstance(text, str), "a binary frame"
        event: dict[str, Any] = self._recorder.record(text)
        return event

    async def _send(self, kind: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"type": kind, **fields}))


def main() -> None:
    parser = arguments(__doc__, "benchmarks.hostile")
    parser.add_argument("-n", type=int, default=100_000, metavar="MESSAGES")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    before = load()
    result = asyncio.run(attack(given.n, given.seed))
    finish(vars(result), given.out, before)
    sys.exit(0 if result.clean else 1)


if __name__ == "__main__":
    main()
