"""What ``benchmarks.talk_echo`` counts: a benchmark that counts wrongly measures nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest

from benchmarks.talk_echo import CALM_S, Evening, Interruption, _Story, figures
from pipeline.events import ReplyHeld, SpeechStarted


@pytest.fixture
def story() -> _Story:
    unused: Any = None
    path: Any = type("Path", (), {"found": True})
    return _Story(Evening(1), unused, unused, path, (), unused, unused)


def test_what_is_noticed_while_somebody_goes_on_is_no_false_stop(story: _Story) -> None:
    story.said_until = time.monotonic() + 60
    story.note(0.0, ReplyHeld("resp_1"))
    story.note(0.0, SpeechStarted("item_1", 0))
    assert story.noticed_at is not None
    assert story.stopped.is_set()
    assert not story.told.stopped_s
    assert not story.told.held_s


def test_what_is_noticed_while_nobody_speaks_is(story: _Story) -> None:
    story.note(0.0, ReplyHeld("resp_1"))
    story.note(0.0, SpeechStarted("item_1", 0))
    assert len(story.told.held_s) == len(story.told.stopped_s) == 1
    story.quiet.set()
    story.note(0.0, SpeechStarted("item_2", 0))
    assert len(story.told.after_s) == 1
    assert len(story.told.stopped_s) == 1


def test_moments_after_something_stood_still_are_told_apart() -> None:
    told = Evening(
        1,
        robot_s=100.0,
        calm_robot_s=80.0,
        found_s=3.0,
        stopped_s=[11.0, 10.0 + CALM_S],
        held_s=[2.0, 9.0, 12.0],
        interruptions=[
            Interruption("one", at_s, 6, noticed_ms, 700, 90)
            for at_s, noticed_ms in ((5.0, 100), (11.0, None))
        ],
        stood_still_s=[10.0],
    )
    found = figures([told])
    both, calm = found["all"], found["calm"]
    assert (both["stopped"], calm["stopped"]) == (2, 1)
    assert (both["held"], both["held_once_found"]) == (3, 2)
    assert (calm["held"], calm["held_once_found"]) == (2, 1)
    assert (both["+6 dB"]["n"], both["+6 dB"]["noticed"]["within_250_ms"]) == (2, 1)
    assert (calm["+6 dB"]["n"], calm["+6 dB"]["noticed"]["within_250_ms"]) == (1, 1)
    assert (both["robot_h"], calm["robot_h"]) == (0.028, 0.022)
