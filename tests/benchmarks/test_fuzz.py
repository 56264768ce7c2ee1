"""A small run of ``benchmarks.hostile``: hostile messages hurt nobody, and each is told so once."""

from __future__ import annotations

import json

# Imported here, because reading a file blocks the loop.
import tests.support.scripted_server
import tests.support.staged_server  # noqa: F401
from benchmarks.hostile.__main__ import Direct, Loopback, Result
from benchmarks.hostile.messages import Hostile
from benchmarks.hostile.shapes import VALID


def require_clean(result: Result) -> None:
    assert result.clean, result.findings
    assert result.errors >= result.bad > 0


def test_hostile_messages_are_one_error_each() -> None:
    result = Direct(seed=1).run(2_000)
    require_clean(result)
    assert result.messages == 2_000


async def test_hostile_clients_lose_no_session() -> None:
    result = await Loopback(seed=2).run(1_000)
    require_clean(result)
    assert result.connections == 1


def test_the_same_seed_is_the_same_attack() -> None:
    one, other = iter(Hostile(7)), iter(Hostile(7))
    assert [next(one) for _ in range(500)] == [next(other) for _ in range(500)]


def test_every_client_event_is_spoilt() -> None:
    """All that ``openai``'s types know, but for WebRTC's one."""
    kinds = {message["type"] for message in VALID}
    assert len(kinds) == 10
    assert all(json.loads(json.dumps(message)) == message for message in VALID)
