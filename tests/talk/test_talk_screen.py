"""The terminal view of ``talk``, and its keys."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import pty
import re
import termios
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from rich.console import Console, ConsoleDimensions

from app.talk.conversation import Connected, Disconnected
from app.talk.keys import has_keys, key_presses
from app.talk.state import FLOOR_DB, TalkState
from app.talk.view import PlainView, draw, latency_bar, live_view, meter, pointer, warnings_in
from hardware.sound.alignment import SoundBlock
from pipeline import events
from pipeline.audio import AudioFormat
from pipeline.commands import Direction
from pipeline.messages import Usage

pytestmark = pytest.mark.quick

ASLEEP, AWAKE = events.FellAsleep("silence"), events.Woke("word")


def block(level: int = 0, played: int = 0) -> SoundBlock:
    return SoundBlock(np.full(160, level, np.int16), np.full(160, played, np.int16), 0.0)


def screen(**options: Any) -> tuple[Console, io.StringIO]:
    return Console(file=(file := io.StringIO()), **options), file


def shown(state: TalkState) -> str:
    console, file = screen(width=100, force_terminal=False)
    console.print(draw(state, "[q] quit"))
    return file.getvalue()


def turn(state: TalkState) -> None:
    state.note(Connected())
    state.note(events.SpeechStarted("a", 0, 135.0))
    state.note(events.TranscriptPartial("a", "what [time"))
    state.note(events.TranscriptPartial("a", " is"))


def test_a_turn_on_the_screen() -> None:
    state = TalkState(devices="mic -> speaker, 16000 Hz")
    assert "connecting" in shown(state)
    turn(state)
    text = shown(state)
    assert "hearing you" in text
    assert "what [time is" in text  # nothing of it is markup
    assert "↗ 135°" in text
    state.note(events.SpeechStopped("a", 900))
    assert "thinking" in shown(state)
    state.note(events.TranscriptReady("a", "what [time] is it", 1.0))
    state.note(events.ReplyStarted("r", "audio", True, "", AudioFormat(), None, None))
    state.note(events.ReplyText("r", "b", 0, "It is [bold]two."))
    state.heard(block(played=1000))
    text = shown(state)
    assert "speaking" in text
    assert "It is [bold]two." in text
    state.note(events.ReplyFinished("r", "completed", (), Usage()))
    state.note(events.Timeline("r", 160, 210, 300, 320, 380))
    state.heard(block())
    text = shown(state)
    assert "listening" in text
    assert "380 ms" in text
    assert "transcript 210" in text
    assert text.index("what [time] is it") < text.index("It is [bold]two.")
    assert "mic -> speaker, 16000 Hz   [q] quit" in text


def test_the_screen_says_why_speech_is_ignored() -> None:
    state = TalkState()
    state.note(Connected())
    assert "listening" in shown(state)
    state.pressed = False
    assert "press space to speak" in shown(state)
    state.pressed = True
    assert "listening" in shown(state)
    state.muted = True
    assert "muted, m unmutes" in shown(state)


@pytest.mark.parametrize(
    ("muted", "told", "doing"),
    [
        (False, [ASLEEP], "asleep"),
        (False, [ASLEEP, AWAKE], "listening"),
        (False, [ASLEEP, AWAKE, events.SpeechStarted("item_1", 0)], "hearing"),
        (False, [ASLEEP, Disconnected(""), Connected()], "listening"),
        (True, [ASLEEP], "muted"),
    ],
)
def test_the_state_shows_sleep(muted: bool, told: list[Any], doing: str) -> None:
    state = TalkState(muted=muted)
    for event in (Connected(), *told):
        state.note(event)
    assert state.doing == doing


def test_our_own_notice_is_shown_at_once() -> None:
    """Nothing else may happen for a long time, so it cannot wait."""
    state, (console, file) = TalkState(), screen(width=40)
    state.on_change = PlainView(state, console).changed
    state.say("no array")
    assert file.getvalue() == "note: no array\n"


def test_control_characters_are_not_obeyed() -> None:
    state = TalkState()
    state.say("\x1b]0;title\x07 and\r\nyou: more")
    state.note(events.TranscriptPartial("a", "a\x1b[2Jb\\\\\\"))
    state.note(Disconnected("\x1b[31mgone"))
    state.note(events.TranscriptPartial("a", "c\\\\\\"))
    text = shown(state)
    assert "\x1b" not in text
    assert "[/]" not in text
    assert " ]0;title  and  you: more" in text
    assert "you    c\\\\\\" in text


def test_in_a_low_terminal_the_newest_words_are_seen() -> None:
    state = TalkState(devices="mic -> speaker")
    for number in range(8):
        state.say(f"number {number} " + "and so on " * 10)
    state.saying = "the newest"
    console = Console(file=io.StringIO(), force_terminal=True, width=40, height=12)
    lines = console.render_lines(draw(state, "[q] quit"))
    told = ["".join(segment.text for segment in line).strip() for line in lines]
    assert len(told) < 12
    assert told[0].startswith("● connecting")
    assert told[-3:] == ["reachy the newest", "", "mic -> speaker   [q] quit"]


def test_earlier_words_stay_after_a_lost_connection() -> None:
    state = TalkState()
    turn(state)
    state.note(events.ReplyStarted("r", "audio", True, "", AudioFormat(), None, None))
    state.note(events.ReplyText("r", "b", 0, "It is"))
    state.note(Disconnected("gone"))
    assert [line.text for line in state.lines] == ["It is ..."]
    assert not state.saying
    assert not state.partial


def test_out_of_band_responses_are_not_shown() -> None:
    state = TalkState()
    state.note(events.ReplyStarted("r", "text", False, "", AudioFormat(), None, None))
    state.note(events.ReplyText("r", "b", 0, "secret"))
    state.note(events.ReplyFinished("r", "completed", (), Usage()))
    assert "secret" not in shown(state)
    assert not state.lines


def test_noise_is_not_shown_as_a_turn() -> None:
    state = TalkState()
    turn(state)
    state.note(events.SpeechStopped("a", 900))
    state.note(events.SpeechRejected("a"))
    assert state.doing == "listening"
    assert "what" not in shown(state)


def test_troubles_are_shown() -> None:
    state = TalkState()
    state.note(Connected())
    state.missing = "Reachy Mini Audio"
    assert "waiting for the device Reachy Mini Audio" in shown(state)
    state.missing = ""
    state.note(Disconnected("it is gone"))
    assert "connecting" in shown(state)
    assert "it is gone" in shown(state)
    state.note(events.Refused(None, "x", "That cannot be."))
    state.note(events.ReplyStarted("r", "audio", True, "", AudioFormat(), None, None))
    state.note(events.ReplyFinished("r", "failed", (), Usage(), error="The voice broke"))
    text = shown(state)
    assert "That cannot be." in text
    assert "The voice broke" in text


def test_the_level_rises_at_once_and_falls_slowly() -> None:
    state = TalkState()
    assert state.level_db == FLOOR_DB
    state.heard(block(32767))
    assert state.level_db == pytest.approx(0, abs=0.01)
    state.heard(block())
    assert state.level_db == pytest.approx(-2, abs=0.01)
    for _ in range(100):
        state.heard(block())
    assert state.level_db == FLOOR_DB
    assert meter(FLOOR_DB).plain.count("▮") == 0
    assert meter(0).plain.count("▯") == 0
    assert meter(-30).plain.count("▮") == meter(-30).plain.count("▯")


def test_an_arrow_points_at_the_speaker() -> None:
    assert [pointer(deg) for deg in (0, 90, 180, 270, 359)] == ["←", "↑", "→", "↓", "←"]
    state = TalkState()
    state.note(events.DirectionHeard(Direction(10.0, speech=False)))
    assert state.direction_deg is None


def test_the_latency_bar_has_every_stage_once() -> None:
    stages = {"endpoint": 160.0, "first_audio": 400.0, "first_token": 300.0, "unknown": 9.0}
    bar = latency_bar(stages).plain
    assert bar.count("█") == 48
    assert re.findall(r"(\w+ \w+) (\d+)", bar.split("\n")[1]) == [
        ("turn over", "160"),
        ("first token", "300"),
        ("first audio", "400"),
    ]
    assert latency_bar({}).plain == ""


def test_lines_for_a_pipe_are_printed_once() -> None:
    state, (console, file) = TalkState(), screen(width=40)
    view = PlainView(state, console)
    for number in range(30):
        state.say(f"number [{number}]")
        view.changed()
        view.changed()
    state.say("twice")
    state.say("twice")
    view.changed()
    told = file.getvalue().splitlines()
    assert told == [f"note: number [{n}]" for n in range(30)] + ["note: twice"] * 2


def test_the_live_view_restores_the_terminal() -> None:
    state = TalkState()
    console, file = screen(force_terminal=True, width=80)
    with live_view(state, console, "[q] quit"):
        state.say("hello there")
    assert "hello there" in file.getvalue()
    assert file.getvalue().rstrip().endswith("\x1b[?25h")  # the cursor is back


def test_a_resized_terminal_is_redrawn() -> None:
    state = TalkState(devices="mic -> speaker")
    state.say("and so on " * 20)
    console, file = screen(force_terminal=True, width=100, height=24)
    with live_view(state, console, "[q] quit"):
        file.seek(0)
        file.truncate()
        console.size = ConsoleDimensions(40, 12)
    told = file.getvalue()  # it is drawn once more in the end
    assert told.count("\x1b[H\x1b[2J") == 1
    rows = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", told.split("\x1b[H\x1b[2J")[1]).splitlines()
    assert max(len(row.strip("\r")) for row in rows) <= 40


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    main, side = pty.openpty()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(fileno=lambda: side))
    return main, side


async def test_keys_are_read_singly_and_the_terminal_restored(
    terminal: tuple[int, int],
) -> None:
    main, side = terminal
    before = termios.tcgetattr(side)
    keys: asyncio.Queue[str] = asyncio.Queue()
    with key_presses(keys.put_nowait):
        os.write(main, b"m q")
        assert [await keys.get() for _ in range(3)] == ["m", " ", "q"]
        assert termios.tcgetattr(side) != before
    assert termios.tcgetattr(side) == before
    os.close(main)
    os.close(side)


async def test_a_closed_terminal_ends_reading(
    terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    main, side = terminal
    read = Mock(side_effect=os.read)
    monkeypatch.setattr("os.read", read)
    with key_presses(lambda character: None):
        os.close(main)
        for _ in range(20):
            await asyncio.sleep(0.005)
    assert read.call_count == 1
    os.close(side)


@pytest.mark.parametrize("stdin", [io.StringIO(), None])
def test_without_a_terminal_there_are_no_keys(
    stdin: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``None``: stdin is closed, as under a service manager."""
    monkeypatch.setattr("sys.stdin", stdin)
    assert not has_keys()


def test_warnings_are_on_the_screen_while_it_is_shown() -> None:
    state = TalkState()
    with warnings_in(state):
        logging.getLogger("reachy_voice.talk").warning("the room in %s is odd", "here")
        logging.getLogger("reachy_voice.talk").info("not this")
    logging.getLogger("reachy_voice.talk").warning("nor this")
    assert [line.text for line in state.lines] == ["the room in here is odd"]
