"""The measure of clauses that fail in answers, with a voice of syllables."""

from __future__ import annotations

from itertools import repeat

import pytest

from benchmarks import tts_faults_replies
from benchmarks.tts_clauses import Voice
from benchmarks.tts_faults_replies import Found, replies, report
from tests.support.moody_voice import RATE, S_PER_CHAR, speechlike


def syllables() -> Voice:
    return Voice("syllables", RATE, lambda text: speechlike(len(text) * S_PER_CHAR, len(text)))


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hisses, and nothing else."""
    monkeypatch.setattr(tts_faults_replies, "_round_and_round", lambda seed: repeat("white noise"))
    monkeypatch.setattr(tts_faults_replies, "ANSWERS_EACH", 2)


def test_a_hiss_is_cut_and_its_clause_said_again(only: None) -> None:
    found = replies([syllables()], 4, 1.0, 1)
    figures = report(found, 1.0, 1)["faults"]
    assert figures["n"] == figures["cut"] == figures["within_1_s"] > 0
    assert figures["said_again"] + figures["nothing_was_left"] == figures["n"]
    assert figures["sent_s_max"] < 1.0


def test_nothing_is_counted_where_nothing_fails(only: None) -> None:
    found: Found = replies([syllables()], 4, 0.0, 1)
    assert found.injected == []
    assert found.healthy == found.clauses >= 4
    assert found.healthy_cut == []
    assert report(found, 0.0, 1)["faults"] == {"n": 0}


def test_what_is_never_cut_is_seen(only: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.speaking.clause_watch import ClauseWatch

    monkeypatch.setattr(ClauseWatch, "feed", lambda self, pcm: None)
    found = replies([syllables()], 8, 1.0, 1)
    figures = report(found, 1.0, 1)["faults"]
    assert figures["cut"] == 0
    assert figures["sent_s_max"] > 5
