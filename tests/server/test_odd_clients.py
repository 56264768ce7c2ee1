"""Clients that vanish or do not read."""

from __future__ import annotations

from typing import Any

import pytest

from reachy_voice.testing import ScriptedTts
from tests.support.scripted_server import Serve, closed_with, talking
from tests.support.staged_server import StagedAssistant, quick_llm
from tests.support.vanishing import vanishing

pytestmark = pytest.mark.machine

TIMES = 30


async def test_vanished_clients_leave_no_resources() -> None:
    async with vanishing(seed=1) as clients:
        for number in range(TIMES):
            await clients.vanish(number)
        left = await clients.left()
        assert not any(left.values()), left
        assert len(clients.moments) > 3, clients.moments


MINUTES = tuple(f"word{number}. " for number in range(90))
"""Each word takes 5 s: 7 minutes and 30 MB on the wire, more than sockets and bus hold."""


async def burst(talk: Any) -> None:
    """Request an answer that is sent as fast as it is made."""
    session = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
    await talk.send("session.update", session=session)
    await talk.until("session.updated")
    await talk.send("response.create")


async def test_a_client_that_stops_reading_does_not_delay_others(serving: Serve) -> None:
    tts = ScriptedTts(first_s=0.0, seconds_per_word=5.0)
    llm = quick_llm()
    llm.answers = [MINUTES, ("Just this. ",) * 4]
    served = await serving(StagedAssistant(llm, tts))
    async with talking(served, max_queue=1, ping_interval=None) as slow, talking(served) as quick:
        await burst(slow)
        await slow.until("response.created")
        # It stops reading: its queue and the sockets are full.
        await burst(quick)
        done = await quick.until("response.done")
        assert done["response"]["status"] == "completed"
        # No minutes of audio are kept for the slow client.
        with closed_with(1008, "client too slow"):
            await slow.until("response.done")
