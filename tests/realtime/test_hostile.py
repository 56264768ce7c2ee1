"""Hostile messages: each bad one is one error, and no error has an effect."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.realtime.hostile import Hostile
from tests.support.protocol_client import Client, receive

pytestmark = pytest.mark.quick


def test_a_bad_message_is_one_error_and_nothing_else(client: Client) -> None:
    for hostile in islice(Hostile(seed=1), 2_000):
        commands = receive(client.protocol, hostile.frame)
        errors = [event["error"] for event in client.sent() if event["type"] == "error"]
        assert len(errors) <= 1, hostile
        assert not (errors and commands), hostile
        assert errors or not hostile.bad, hostile
        if errors and hostile.event_id:
            assert errors[0]["event_id"] == hostile.event_id, hostile
