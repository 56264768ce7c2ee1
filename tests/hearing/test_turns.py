"""Turn taking as pure lists: scores in, signals out."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.audio import AudioFrame
from pipeline.hearing.turn_taker import Signal, TurnEnd, TurnPause, TurnResume, TurnStart, TurnTaker
from pipeline.settings import Endpointing

pytestmark = pytest.mark.quick

WINDOW = 512
SILENCE = np.zeros(WINDOW, np.int16)


def feed(taker: TurnTaker, scores: list[float], first: int = 0) -> list[Signal]:
    return [
        signal
        for n, score in enumerate(scores, start=first)
        for signal in taker.feed(score, AudioFrame(SILENCE, 16_000, n * WINDOW))
    ]


def test_a_click_is_no_speech_and_two_windows_are() -> None:
    taker = TurnTaker(Endpointing())
    assert feed(taker, [0.0, 0.9, 0.0]) == []
    # It may have been the beginning, though (tests/hearing/test_onset.py).
    assert feed(taker, [0.9, 0.9], first=3) == [TurnStart(1 * WINDOW)]


def test_an_unjudged_pause_ends_after_the_longest_wait() -> None:
    taker = TurnTaker(Endpointing())
    signals = feed(taker, [0.9] * 10 + [0.0] * 79)
    assert signals == [TurnStart(0), TurnPause(10 * WINDOW, 11 * WINDOW), TurnEnd(10 * WINDOW)]
    # 2,496 ms are 78 windows.
    taker = TurnTaker(Endpointing())
    assert TurnEnd(10 * WINDOW) not in feed(taker, [0.9] * 10 + [0.0] * 77)


def test_a_clear_end_is_taken_at_once_if_its_wait_is_already_over() -> None:
    taker = TurnTaker(Endpointing())
    feed(taker, [0.9] * 10 + [0.0] * 8)
    assert taker.judge(224) == [TurnEnd(10 * WINDOW)]


def test_a_judgement_before_the_wait_is_over_is_kept() -> None:
    taker = TurnTaker(Endpointing())
    feed(taker, [0.9] * 10 + [0.0] * 2)
    assert taker.judge(224) == []
    assert feed(taker, [0.0] * 5, first=12) == [TurnEnd(10 * WINDOW)]


def test_speech_in_the_pause_resumes_and_the_next_pause_is_judged_anew() -> None:
    taker = TurnTaker(Endpointing())
    feed(taker, [0.9] * 10 + [0.0] * 2)
    taker.judge(224)
    assert feed(taker, [0.9, 0.0], first=12) == [
        TurnResume(12 * WINDOW),
        TurnPause(13 * WINDOW, 14 * WINDOW),
    ]
    assert feed(taker, [0.0] * 10, first=14) == []


def test_a_late_judgement_of_a_pause_that_is_over_is_ignored() -> None:
    taker = TurnTaker(Endpointing())
    feed(taker, [0.9] * 10 + [0.0] * 2 + [0.9])
    assert taker.judge(224) == []


def test_hysteresis_keeps_weak_speech_open() -> None:
    taker = TurnTaker(Endpointing())
    assert feed(taker, [0.9, 0.9, 0.4, 0.4, 0.4]) == [TurnStart(0)]


def test_a_turn_that_never_ends_is_cut_at_the_limit() -> None:
    taker = TurnTaker(Endpointing(max_utterance_s=1.0))
    signals = feed(taker, [0.9] * 40)
    assert signals[1:3] == [TurnPause(32 * WINDOW, 32 * WINDOW), TurnEnd(32 * WINDOW)]


def test_a_noise_that_comes_and_goes_is_suspected_once() -> None:
    taker = TurnTaker(Endpointing())
    found = []
    for n, score in enumerate([0.02, 0.35, 0.1, 0.3, 0.1, 0.34, 0.1, 0.45, 0.9]):
        feed(taker, [score], first=n)
        found.append(taker.suspects)
    assert [n for n, suspected in enumerate(found) if suspected] == [1, 7, 8], "and speech at once"


def test_a_weak_score_is_suspected_only_while_it_rises() -> None:
    taker = TurnTaker(Endpointing())
    found = []
    for n, score in enumerate([0.02, 0.15, 0.15, 0.3, 0.04, 0.9, 0.9]):
        feed(taker, [score], first=n)
        found.append(taker.suspects)
    assert found == [False, True, False, True, False, True, False]
    taker.reset()
    feed(taker, [0.35], first=7)
    taker.reset()
    assert not taker.suspects


def test_every_sound_may_be_speech_until_the_room_is_known_to_sound_like_that() -> None:
    taker = TurnTaker(Endpointing())
    found = []
    for n, score in enumerate([0.02, 0.15, 0.15, 0.04, *[0.2] * 100]):
        feed(taker, [score], first=n)
        found.append(taker.may_be_speech)
    assert found[:5] == [False, True, True, False, True]
    assert not found[-1]
