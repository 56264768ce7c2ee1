"""Comparing voices: whose voice it is, and whether a recording has only one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import Embedding
from pipeline.engines.voices import EnrolmentError, Person, Strangers, learned, speech_in

pytestmark = pytest.mark.quick


def between(angle_deg: float, other_axis: int = 1) -> Embedding:
    """An embedding at this angle to axis 0."""
    vector = np.zeros(8, np.float32)
    vector[0], vector[other_axis] = np.cos(np.radians(angle_deg)), np.sin(np.radians(angle_deg))
    return vector


def speech(seconds: float, level: int = 2000) -> Pcm:
    return np.full(round(seconds * LISTEN_RATE), level, np.int16)


PEOPLE = (Person("Tom", between(0)), Person("Anna", between(90)))


@pytest.mark.parametrize(
    ("angle_deg", "speech_s", "name"),
    [
        *((0, 1.0, "Tom"), (35, 4.0, "Tom"), (80, 8.0, "Anna")),
        *((42, 1.0, "Tom"), (42, 4.0, "")),  # a short turn may be less similar
        (45, 1.0, None),  # one of the two
    ],
)
def test_the_speaker_is_named(angle_deg: float, speech_s: float, name: str | None) -> None:
    assert Strangers().name(PEOPLE, between(angle_deg), speech(speech_s), 1) == name


def test_a_known_stranger_is_not_taken_for_a_similar_person() -> None:
    strangers = Strangers()
    alike = between(39, other_axis=2)
    assert strangers.name(PEOPLE, alike, speech(1.0), 1) == "Tom"
    assert strangers.name(PEOPLE, between(55, other_axis=2), speech(8.0), 2) == ""
    assert strangers.name(PEOPLE, alike, speech(1.0), 3) == ""
    assert strangers.name(PEOPLE, between(5), speech(4.0), 4) == "Tom"


def test_the_beginning_of_a_turn_does_not_make_its_speaker_a_stranger() -> None:
    strangers = Strangers()
    assert strangers.name(PEOPLE, between(50, other_axis=2), speech(0.7), 1) == ""
    assert strangers.name(PEOPLE, between(35, other_axis=2), speech(2.0), 1) == "Tom"
    assert strangers.name(PEOPLE, between(35, other_axis=2), speech(2.0), 2) == "Tom"


@pytest.mark.parametrize(
    ("stranger_level", "level", "name"),
    [(400, 2000, None), (400, 1500, None), (400, 1000, ""), (1500, 2000, "")],
)
def test_a_turn_as_loud_as_peoples_may_be_less_similar(
    stranger_level: int, level: int, name: str | None
) -> None:
    """A television is softer, and stays so."""
    strangers = Strangers()
    alike = between(42, other_axis=2)
    assert strangers.name(PEOPLE, alike, speech(4, level), 0) == ""
    assert strangers.name(PEOPLE, between(5), speech(4), 1) == "Tom"
    assert strangers.name(PEOPLE, between(80, other_axis=3), speech(4, stranger_level), 2) == ""
    assert strangers.name(PEOPLE, alike, speech(4, level), 3) == name
    assert strangers.name(PEOPLE, between(80, other_axis=2), speech(4), 4) == ""


@pytest.mark.parametrize("pieces", [[0, 5, 10, 3, 8, 6], [0, 5, 10, 60, 8, 6]])
def test_one_voice_is_learned_despite_an_odd_piece(pieces: list[float]) -> None:
    voice = learned([between(each) for each in pieces])
    assert voice.dtype == np.float32
    assert np.linalg.norm(voice) == pytest.approx(1)
    assert voice @ between(7) > 0.97


def test_two_voices_are_refused() -> None:
    with pytest.raises(EnrolmentError, match="two voices"):
        learned([between(each) for each in (0, 70, 5, 75, 10, 72)])


def pieces() -> Iterator[tuple[float, int]]:
    yield from ((0.5, 0), (1.0, 3000), (1.0, 2), (0.8, 2500), (2.0, 0))


def test_pauses_are_left_out() -> None:
    rng = np.random.default_rng(1)
    parts = [rng.choice([-level, level], round(s * LISTEN_RATE)) for s, level in pieces()]
    kept = speech_in(np.concatenate(parts).astype(np.int16))
    assert 1.8 <= len(kept) / LISTEN_RATE <= 2.3
    assert not len(speech_in(np.zeros(10, np.int16)))
