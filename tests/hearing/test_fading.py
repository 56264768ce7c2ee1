"""A voice that fades into its room is noticed before the VAD's scores fall."""

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
BLOCK = 128
ROOM, VOICE = 20.0, 3000.0


def sound(level: float, samples: int = WINDOW) -> Pcm:
    """Noise of one level, the same each time."""
    return np.random.default_rng(1).normal(0, level, samples).astype(np.int16)


def feed(taker: TurnTaker, heard: list[tuple[float, Pcm]], first: int = 0) -> list[Signal]:
    return [
        signal
        for n, (score, pcm) in enumerate(heard, start=first)
        for signal in taker.feed(score, AudioFrame(pcm, 16_000, n * WINDOW))
    ]


@pytest.fixture
def speaking() -> TurnTaker:
    """In the middle of a turn: 5 windows of room, 10 of speech."""
    taker = TurnTaker(Endpointing())
    heard = [(0.01, sound(ROOM))] * 5 + [(0.99, sound(VOICE))] * 10
    assert feed(taker, heard) == [TurnStart(5 * WINDOW)]
    return taker


def test_a_pause_begins_where_the_voice_fades_and_not_where_the_scores_fall(
    speaking: TurnTaker,
) -> None:
    half = np.concatenate((sound(VOICE, WINDOW // 2), sound(ROOM, WINDOW // 2)))
    fade = 15 * WINDOW + WINDOW // 2
    assert feed(speaking, [(0.97, half)], first=15) == []
    assert feed(speaking, [(0.9, sound(ROOM))], first=16) == [TurnPause(fade, 17 * WINDOW)]


def test_no_turn_ends_before_the_scores_have_fallen(speaking: TurnTaker) -> None:
    room = sound(ROOM)
    assert feed(speaking, [(0.9, room)], first=15) == [TurnPause(15 * WINDOW, 16 * WINDOW)]
    assert speaking.judge(0) == []
    assert feed(speaking, [(0.7, room), (0.5, room)], first=16) == []
    assert feed(speaking, [(0.1, room)], first=18) == [TurnEnd(15 * WINDOW)]


def test_silence_counts_from_where_the_voice_faded(speaking: TurnTaker) -> None:
    feed(speaking, [(score, sound(ROOM)) for score in (0.9, 0.7, 0.1, 0.0)], first=15)
    assert speaking.judge(160) == []
    assert feed(speaking, [(0.0, sound(ROOM))], first=19) == [TurnEnd(15 * WINDOW)]


def test_a_closed_mouth_in_a_word_is_no_pause_of_the_speaker(speaking: TurnTaker) -> None:
    feed(speaking, [(0.9, sound(ROOM))], first=15)
    loud = [(0.9, sound(VOICE))]
    assert feed(speaking, loud, first=16) == [TurnResume(16 * WINDOW, within_word=True)]
    feed(speaking, [(0.1, sound(ROOM))], first=17)
    assert feed(speaking, loud, first=18) == [TurnResume(18 * WINDOW)]


def test_a_speaker_may_go_on_softly(speaking: TurnTaker) -> None:
    soft = [(0.9, sound(ROOM * 2))] * 30
    signals = feed(speaking, soft, first=15)
    # Once taken for an end, and no second time.
    assert [type(signal) for signal in signals] == [TurnPause, TurnResume]
    assert feed(speaking, [(0.1, sound(ROOM))], first=45) == [TurnPause(45 * WINDOW, 46 * WINDOW)]


def test_a_vad_that_is_sure_of_speech_is_believed(speaking: TurnTaker) -> None:
    assert feed(speaking, [(0.99, sound(ROOM))] * 3, first=15) == []


def test_where_the_room_is_loud_only_the_scores_count() -> None:
    taker = TurnTaker(Endpointing())
    feed(taker, [(0.01, sound(VOICE / 3))] * 5 + [(0.99, sound(VOICE))] * 10)
    assert feed(taker, [(0.9, sound(VOICE / 3))] * 3, first=15) == []
    assert feed(taker, [(0.1, sound(VOICE / 3))], first=18) == [TurnPause(18 * WINDOW, 19 * WINDOW)]


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
