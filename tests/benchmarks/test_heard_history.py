"""What the measure of heard words is worth: its player, and where words end."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest

from benchmarks.interruptions.heard_history import HOWS, How, Interruption, play
from benchmarks.interruptions.heard_voice import (
    AlignedPiper,
    AlignedTts,
    Said,
    _Group,
    _groups,
    _output,
    written_ends,
)

RATE = 16_000
SAMPLES_PER_LETTER = 1000


class EvenPiper:
    """Each letter, and each space, is as long as any other; a different sound for each word."""

    rate = RATE

    def say(self, text: str, speed: float) -> Said:
        words = text.split()
        ends = list(accumulate((len(word) + 1) * SAMPLES_PER_LETTER for word in words))
        noise = np.random.default_rng(len(text)).integers(1000, 9000, ends[-1])
        timed = tuple(zip(words, ends, strict=True))
        return Said(text, noise.astype(np.int16), RATE, timed, True)


def even() -> AlignedTts:
    return AlignedTts(EvenPiper())  # type: ignore[arg-type]


ANSWER = "Nobody remembers how many people were there when the lighthouse was built by hand."


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("at", [0.2, 0.5])
def test_the_history_has_the_words_of_an_even_voice(how: How, at: float) -> None:
    outcome = play(Interruption(ANSWER, how, 1.0, 250, at), even(), whole_s=6.0)
    assert outcome
    assert 0 < outcome.played < len(ANSWER.split())
    assert abs(outcome.error) <= 1
    assert outcome.unsent == 0


def test_more_is_heard_later() -> None:
    outcomes = [
        play(Interruption(ANSWER, "cancel", 1.0, 250, at), even(), whole_s=6.0)
        for at in (0.1, 0.4, 0.7)
    ]
    played = [each.played for each in outcomes if each]
    assert len(played) == 3
    assert played == sorted(set(played))


def test_a_history_with_a_word_more_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.speaking import delivery

    monkeypatch.setattr(delivery, "heard_text", lambda spoken, seconds: spoken[0][0])
    outcome = play(Interruption(ANSWER, "cancel", 1.0, 250, 0.05), even(), whole_s=6.0)
    assert outcome
    assert outcome.error > 1


def test_written_words_end_where_their_spoken_ones_do() -> None:
    spoken = ("on", "the", "first", "of", "May", "at", "noon.")
    said = Said("", np.zeros(0, np.int16), RATE, tuple((w, n) for n, w in enumerate(spoken)), True)
    assert written_ends("on 1 May - at noon.", said) == [0, 3, 4, 4, 5, 6]


def test_phonemes_are_grouped_by_word() -> None:
    phonemes = [("h", 1), ("a", 2), (" ", 3), ("b", 4), (",", 5), (" ", 6), ("c", 7), (".", 8)]
    groups = list(_groups(phonemes))
    assert [group.sounds for group in groups] == ["ha", "b", "c"]
    assert [group.end() for group in groups] == [2, 4, 7]


def test_words_that_are_said_as_one_share_their_group() -> None:
    piper = AlignedPiper.__new__(AlignedPiper)
    piper._alone = {"one": "wan", "of": "av", "the": "da", "robots": "robots"}
    groups = [
        _Group((("w", 1), ("a", 2), ("n", 3))),
        _Group((("a", 4), ("v", 5), ("d", 6), ("a", 7))),
        _Group(tuple((letter, 8 + n) for n, letter in enumerate("robots"))),
    ]
    assert piper._match(["one", "of", "the", "robots"], groups) == [3, 5, 7, 13]


def test_an_output_is_a_graph_with_one_value() -> None:
    """Field 7 of a model, with field 12 of a graph, with field 1 of a value."""
    assert _output("ab") == bytes((7 << 3 | 2, 6, 12 << 3 | 2, 4, 1 << 3 | 2, 2)) + b"ab"
