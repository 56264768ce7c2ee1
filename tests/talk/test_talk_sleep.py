"""Sleep in ``talk``: the displayed state, and the messages to and from a server."""

from __future__ import annotations

import pytest

from app.talk.conversation import Connected, Disconnected
from app.talk.remote import RemoteConversation, events_of
from app.talk.state import TalkState
from pipeline.commands import WakeUp
from pipeline.events import FellAsleep, SpeechStarted, Woke

pytestmark = pytest.mark.quick

ASLEEP, AWAKE = FellAsleep("silence"), Woke("word")


@pytest.mark.parametrize(
    ("events", "doing"),
    [
        ([Connected(), ASLEEP], "asleep"),
        ([Connected(), ASLEEP, AWAKE], "listening"),
        ([Connected(), ASLEEP, AWAKE, SpeechStarted("item_1", 0)], "hearing"),
        ([Connected(), ASLEEP, Disconnected(""), Connected()], "listening"),
    ],
)
def test_the_state_shows_sleep(events: list[object], doing: str) -> None:
    state = TalkState()
    for event in events:
        state.note(event)  # type: ignore[arg-type]
    assert state.doing == doing


def test_muted_and_asleep_shows_the_mute() -> None:
    state = TalkState(muted=True)
    state.note(Connected())
    state.note(ASLEEP)
    assert state.doing == "muted"


def test_a_server_is_asked_to_wake_and_reports_its_state() -> None:
    (message,) = RemoteConversation("localhost")._messages(WakeUp())
    assert message == {"type": "reachy_voice.wake"}
    told = [{"type": f"reachy_voice.{kind}", "reason": "silence"} for kind in ("asleep", "awake")]
    assert [type(event) for each in told for event in events_of(each)] == [FellAsleep, Woke]
