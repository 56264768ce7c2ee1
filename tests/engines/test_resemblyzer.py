"""Resemblyzer, the real network, on people's speech."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.speaker.resemblyzer import Resemblyzer, ResemblyzerOptions, build
from pipeline.engines.voices import ENROLMENT_S, PIECE_S, Person, Strangers, learned, speech_in
from pipeline.work import NEVER
from tests.support.places import Weights
from tests.support.recordings import recording

ENROLLED = round(ENROLMENT_S * LISTEN_RATE)
LIBRIVOX = [f"librivox-0{number}" for number in (870, 880, 890, 920, 930)]
pytestmark = [pytest.mark.engines, pytest.mark.real]


@pytest.fixture(scope="module")
def encoder(weights: Weights) -> Resemblyzer:
    return build(ResemblyzerOptions(), weights("resemblyzer"))


def pieces(pcm: Pcm, seconds: float) -> list[Pcm]:
    size = round(seconds * LISTEN_RATE)
    return [pcm[at : at + size] for at in range(0, len(pcm) - size + 1, size)]


def test_an_enrolled_reader_is_told_from_another(encoder: Resemblyzer) -> None:
    """Learned from 20 s, and known by 4 s."""
    tom = speech_in(recording("two_cities").pcm)
    anna = speech_in(np.concatenate([recording(name).pcm for name in LIBRIVOX]))
    voice = learned([encoder.embed(each, NEVER) for each in pieces(tom[:ENROLLED], PIECE_S)])
    people = [Person("Tom", voice)]
    for pcm, name in ((tom[ENROLLED:], "Tom"), (anna, "")):
        turns = pieces(pcm, 4.0)
        told = {Strangers().name(people, encoder.embed(each, NEVER), each, 1) for each in turns}
        assert (len(turns) >= 2, told) == (True, {name})
