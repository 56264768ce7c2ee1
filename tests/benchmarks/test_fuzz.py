"""A small run of ``benchmarks.hostile``: each hostile message is one error or one effect."""

from __future__ import annotations

from itertools import islice

from benchmarks.hostile.__main__ import attack
from benchmarks.hostile.messages import Hostile
from tests.support.protocol_client import Client


def test_hostile_messages_are_one_error_each() -> None:
    client = Client()
    for hostile in islice(Hostile(seed=1), 2_000):
        commands = client.protocol.receive(hostile.frame)
        errors = [event["error"] for event in client.sent() if event["type"] == "error"]
        assert len(errors) <= 1, hostile
        assert not (errors and commands), hostile
        assert errors or hostile.verdict != "bad", hostile
        if errors and hostile.event_id:
            assert errors[0]["event_id"] == hostile.event_id


async def test_hostile_clients_lose_no_session() -> None:
    result = await attack(1_000, seed=2)
    assert result.clean, result.findings
    assert result.errors >= result.bad > 0
    assert (result.messages, result.connections) == (1_000, 1)
