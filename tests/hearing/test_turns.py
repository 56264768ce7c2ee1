"""Turn-taking over plain lists: scores and levels in, signals out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import AudioFrame, Pcm
from pipeline.hearing.turn_taker import Signal, TurnEnd, TurnPause, TurnResume, TurnStart, TurnTaker
from pipeline.settings import Endpointing

pytestmark = pytest.mark.quick

WINDOW = 512
SILENCE = np.zeros(WINDOW, np.int16)
ROOM, VOICE = 20.0, 3000.0


def hear(taker: TurnTaker, heard: list[tuple[float, Pcm]], first: int = 0) -> list[Signal]:
    return [
        signal
        for n, (score, pcm) in enumerate(heard, start=first)
        for signal in taker.feed(score, AudioFrame(pcm, 16_000, n * WINDOW))
    ]


def feed(taker: TurnTaker, scores: list[float], first: int = 0) -> list[Signal]:
    return hear(taker, [(score, SILENCE) for score in scores], first)


def test_one_window_is_no_speech_and_two_are() -> None:
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


def test_any_sound_may_be_speech_until_the_room_is_known() -> None:
    taker = TurnTaker(Endpointing())
    found = []
    for n, score in enumerate([0.02, 0.15, 0.15, 0.04, *[0.2] * 100]):
        feed(taker, [score], first=n)
        found.append(taker.may_be_speech)
    assert found[:5] == [False, True, True, False, True]
    assert not found[-1]


# --- a voice that fades into its room is noticed before the scores fall ------------------------


def sound(level: float, samples: int = WINDOW) -> Pcm:
    """Noise of one level, always the same."""
    return np.random.default_rng(1).normal(0, level, samples).astype(np.int16)


@pytest.fixture
def speaking() -> TurnTaker:
    """A turn in progress: 5 windows of room, 10 of speech."""
    taker = TurnTaker(Endpointing())
    heard = [(0.01, sound(ROOM))] * 5 + [(0.99, sound(VOICE))] * 10
    assert hear(taker, heard) == [TurnStart(5 * WINDOW)]
    return taker


def test_a_pause_begins_where_the_voice_fades(
    speaking: TurnTaker,
) -> None:
    half = np.concatenate((sound(VOICE, WINDOW // 2), sound(ROOM, WINDOW // 2)))
    fade = 15 * WINDOW + WINDOW // 2
    assert hear(speaking, [(0.97, half)], first=15) == []
    assert hear(speaking, [(0.9, sound(ROOM))], first=16) == [TurnPause(fade, 17 * WINDOW)]


def test_no_turn_ends_before_the_scores_have_fallen(speaking: TurnTaker) -> None:
    room = sound(ROOM)
    assert hear(speaking, [(0.9, room)], first=15) == [TurnPause(15 * WINDOW, 16 * WINDOW)]
    assert speaking.judge(0) == []
    assert hear(speaking, [(0.7, room), (0.5, room)], first=16) == []
    assert hear(speaking, [(0.1, room)], first=18) == [TurnEnd(15 * WINDOW)]


def test_silence_counts_from_where_the_voice_faded(speaking: TurnTaker) -> None:
    hear(speaking, [(score, sound(ROOM)) for score in (0.9, 0.7, 0.1, 0.0)], first=15)
    assert speaking.judge(160) == []
    assert hear(speaking, [(0.0, sound(ROOM))], first=19) == [TurnEnd(15 * WINDOW)]


def test_a_closure_within_a_word_is_no_pause(speaking: TurnTaker) -> None:
    hear(speaking, [(0.9, sound(ROOM))], first=15)
    loud = [(0.9, sound(VOICE))]
    assert hear(speaking, loud, first=16) == [TurnResume(16 * WINDOW, within_word=True)]
    hear(speaking, [(0.1, sound(ROOM))], first=17)
    assert hear(speaking, loud, first=18) == [TurnResume(18 * WINDOW)]


def test_a_speaker_may_resume_softly(speaking: TurnTaker) -> None:
    soft = [(0.9, sound(ROOM * 2))] * 30
    signals = hear(speaking, soft, first=15)
    # Taken for an end once, not twice.
    assert [type(signal) for signal in signals] == [TurnPause, TurnResume]
    assert hear(speaking, [(0.1, sound(ROOM))], first=45) == [TurnPause(45 * WINDOW, 46 * WINDOW)]


def test_a_high_vad_score_is_believed(speaking: TurnTaker) -> None:
    assert hear(speaking, [(0.99, sound(ROOM))] * 3, first=15) == []


def test_in_a_loud_room_only_the_scores_count() -> None:
    taker = TurnTaker(Endpointing())
    hear(taker, [(0.01, sound(VOICE / 3))] * 5 + [(0.99, sound(VOICE))] * 10)
    assert hear(taker, [(0.9, sound(VOICE / 3))] * 3, first=15) == []
    assert hear(taker, [(0.1, sound(VOICE / 3))], first=18) == [TurnPause(18 * WINDOW, 19 * WINDOW)]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0.0, ROOM, 300.0, VOICE])), max_size=150)
)
def test_signals_alternate_and_lie_in_order(steps: list[tuple[float, float]]) -> None:
    taker = TurnTaker(Endpointing())
    signals = [
        signal
        for n, (score, level) in enumerate(steps)
        for signal in (
            *taker.feed(score, AudioFrame(sound(level), 16_000, n * WINDOW)),
            *taker.judge(160),
        )
    ]
    may_follow = {
        TurnStart: {TurnPause},
        TurnPause: {TurnResume, TurnEnd},
        TurnResume: {TurnPause},
        TurnEnd: {TurnStart},
    }
    for before, after in itertools.pairwise(signals):
        assert type(after) in may_follow[type(before)]
    starts = [s.start if isinstance(s, TurnStart | TurnResume) else s.speech_end for s in signals]
    assert starts == sorted(starts)
