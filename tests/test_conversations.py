"""Conversations, to the millisecond."""

from __future__ import annotations

from lifelike import Engines
from talk_script import lines, perform, turn_end_ms


def test_a_clear_end() -> None:
    story = perform("0 1024 What time is it?", until_ms=4_000)
    end = turn_end_ms(1024, "What time is it?")
    assert story.table("judged", "voices") == lines(f"""
        64    user speaks
    """)
