"""How ``talk`` handles echo: the array's chip, this program, or half-duplex."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.settings.load import load_settings
from app.talk.conversation import Connected, Disconnected
from app.talk.remote import RemoteConversation
from app.talk.state import TalkState
from app.talk.talk_app import NOT_HEARD, PUSH, TalkApp
from app.talk.talking import Talking
from hardware.settings import Sound
from hardware.sound.notices import (
    AllZero,
    DeviceLoss,
    DevicesReady,
    Lifeless,
    MoreLatency,
    SampleLoss,
)
from pipeline.echo.card import CardEcho
from pipeline.events import FellAsleep
from pipeline.hearing.card import ChipHearing, HalfDuplexHearing
from tests.support.scripted_driver import ARRAY, LAPTOP, ScriptedDriver

pytestmark = pytest.mark.quick

SETTINGS = load_settings(None, (), {}).settings
HERE = DevicesReady(ARRAY.name, ARRAY.name, 16_000)
ELSEWHERE = DevicesReady(ARRAY.name, LAPTOP.name, 16_000)


def talk_app(tmp_path: Path, url: str | None = None, **sound: Any) -> TalkApp:
    settings = SETTINGS.model_copy(update={"sound": Sound(**sound)})
    stages = SimpleNamespace(vad=SimpleNamespace(window_samples=512))
    assistant: Any = None if url else SimpleNamespace(stages=stages)
    return TalkApp(settings, TalkState(), assistant, url, tmp_path, ScriptedDriver(ARRAY))


@pytest.mark.parametrize(
    ("sound", "opened", "kind"),
    [
        ({}, HERE, ChipHearing),
        ({}, ELSEWHERE, CardEcho),
        ({"echo": "software"}, HERE, CardEcho),
        ({"echo": "chip"}, ELSEWHERE, ChipHearing),
        ({"echo": "half-duplex"}, HERE, HalfDuplexHearing),
        # After a key press the user is heard from the first word on, and nothing more is played.
        ({"echo": "half-duplex", "push_to_talk": True}, HERE, ChipHearing),
    ],
)
async def test_the_echo_canceller_is_chosen(
    tmp_path: Path, sound: dict[str, Any], opened: DevicesReady, kind: type
) -> None:
    told = talk_app(tmp_path, **sound)
    assert isinstance(await told._hearing(opened), kind)


@pytest.mark.parametrize("push_to_talk", [True, False])
async def test_a_remote_server_hears_nothing_during_playback(
    tmp_path: Path, push_to_talk: bool
) -> None:
    told = talk_app(tmp_path, "far:8765", echo="half-duplex", push_to_talk=push_to_talk)
    conversation = await told._conversation(HERE)
    assert isinstance(conversation, RemoteConversation)
    assert (conversation._half_duplex is None) == push_to_talk


async def test_a_key_pressed_while_disconnected_is_reported(tmp_path: Path) -> None:
    told = talk_app(tmp_path, "far:8765", push_to_talk=True)
    conversation = RemoteConversation("far:8765", push_to_talk=True)
    talking = Talking(told._card, conversation, push_to_talk=True)
    await told._push(talking)
    assert not talking.pressed
    told._state.note(Connected())
    await told._push(talking)
    talking._said_s = 1.0
    told._state.note(Disconnected("gone"))
    await told._push(talking)
    assert [line.text for line in told._state.lines] == [NOT_HEARD, "speak now", NOT_HEARD]


async def test_the_robot_does_not_sleep_on_without_its_server(tmp_path: Path) -> None:
    told = talk_app(tmp_path, "localhost")
    told._note(0.0, Connected())
    told._note(0.0, FellAsleep("silence"))
    posture = told._body._body._posture
    assert posture.mode(1e9) == "asleep"
    told._note(0.0, Disconnected("restart"))
    assert posture.mode(1e9) == "idle"


@pytest.mark.parametrize("push_to_talk", [True, False])
async def test_the_greeting_comes_once(tmp_path: Path, push_to_talk: bool) -> None:
    told = talk_app(tmp_path, "far:8765", push_to_talk=push_to_talk)
    told._sound_says(HERE)
    told._note(0.0, Connected())
    told._note(0.0, Disconnected("gone"))
    told._note(0.0, Connected())
    (line,) = told._state.lines
    assert line.text.startswith(f"Ready: {ARRAY.name} -> {ARRAY.name}, 16000 Hz. ")
    assert line.text.endswith(PUSH if push_to_talk else "Speak.")


async def test_notices_of_the_card_are_shown(tmp_path: Path) -> None:
    told = talk_app(tmp_path)
    notices = (
        HERE,
        DeviceLoss(ARRAY.name, "its stream has ended"),
        HERE,
        AllZero(),
        AllZero(over=True),
        Lifeless(),
        Lifeless(over=True),
        SampleLoss(160),
        MoreLatency(ARRAY.name, 0.025),
    )
    missing = []
    for notice in notices:
        told._sound_says(notice)
        missing.append(told._state.missing)
    assert missing == ["", ARRAY.name, *[""] * 7]
    said = [line.text for line in told._state.lines]
    assert said[0] == f"{ARRAY.name} is gone: its stream has ended"
    assert said[1] == f"{ARRAY.name} is back"
    assert said[2].startswith("The microphone delivers only zeros")
    assert said[4].startswith("The microphone delivers next to nothing")
    assert said[6] == "10 ms of the microphone were lost: too busy"
    assert "it gets 25 ms of buffer from now on" in said[7]
