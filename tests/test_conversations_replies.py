"""Conversations to the millisecond: what becomes of the replies.

As in ``tests/test_conversations.py``: 60 ms for a transcript, 50 ms for the turn detector, 100 ms
for a first token, 80 ms for a first sound; and when a turn ends is taken from what was judged.
"""

from __future__ import annotations

from typing import Any

from lifelike import Brain, Ears, Engines
from talk_script import lines, perform

TIME = "What time is it?"
LAST_MS = 310


def detection(**changes: Any) -> dict[str, Any]:
    """A ``session.update`` of turn detection."""
    return {"audio": {"input": {"turn_detection": {"type": "server_vad", **changes}}}}


# --- begun on a stable partial transcript ------------------------------------------------------

JOKE = "Tell me a joke."


def guessing(**changes: Any) -> Engines:
    return Engines(Ears(streams=True), Brain(**changes))


def test_a_reply_to_a_stable_partial_is_adopted_and_is_there_when_the_turn_ends() -> None:
    """The voice trails off for 96 ms after the last word, whose transcript does not change then."""
    story = perform(f"0 1024 {JOKE}\n1024 96 ~", guessing(first_s=0.2))
    end = story.end_ms()
    table = story.table()
    assert f"1056 thinks about '{JOKE}'" in table
    assert f"{end} answer begins" in table
    assert f"{max(end, 1256)} says 'I am here.'" in table
    assert f"{max(end, 1336)} audio" in table
    assert len([row for row in table if row.endswith(f"thinks about '{JOKE}'")]) == 1


def test_a_reply_to_a_partial_that_went_on_is_thrown_away_within_one_window() -> None:
    story = perform(f"0 1024 {JOKE}\n1024 96 ~", guessing(first_s=0.2))
    before = [row for row in story.table() if int(row.split()[0]) < 1056]
    assert before == lines("""
        64  user speaks
        288 thinks about 'Tell'
        512 thrown away
        544 thinks about 'Tell me'
        768 thrown away
        800 thinks about 'Tell me a'
        1024 thrown away
    """)


def test_a_guess_that_was_misheard_is_thrown_away_for_the_final_words() -> None:
    engines = guessing(first_s=0.2)
    engines.ears.corrects[JOKE] = "Tell me a yoke."
    story = perform(f"0 1024 {JOKE}\n1024 96 ~", engines)
    end = story.end_ms()
    assert story.table()[-10:] == lines(f"""
        1056             thinks about '{JOKE}'
        1152             user pauses
        1212             thrown away
        1212             thinks about 'Tell me a yoke.'
        {end}            user stops
        {end}            heard 'Tell me a yoke.'
        {end}            answer begins
        {max(end, 1412)} says 'I am here.'
        {max(end, 1492)} audio
        {max(end, 1492) + LAST_MS} answer completed
    """)
