"""The benchmark of heard words: its player, and where words end."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.acoustics import Signal
from benchmarks.interruptions.heard_history import (
    HOWS,
    AlignedTts,
    How,
    Interruption,
    Said,
    play,
    written_ends,
)

RATE = 16_000
SAMPLES_PER_LETTER = 1000


class EvenPiper:
    """Each letter, and each space behind a word, is a phoneme, and as long as any other."""

    rate = RATE

    def say(self, text: str, pace: float) -> tuple[Signal, list[int]]:
        ends = list(
            range(SAMPLES_PER_LETTER, (len(text) + 2) * SAMPLES_PER_LETTER, SAMPLES_PER_LETTER)
        )
        noise = np.random.default_rng(len(text)).uniform(0.1, 0.5, ends[-1])
        return noise.astype(np.float32), ends

    def phones(self, text: str) -> int:
        return len(text) + 1


def even() -> AlignedTts:
    return AlignedTts(EvenPiper())


ANSWER = "Nobody remembers how many people were there when the lighthouse was built by hand."


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("at", [0.2, 0.5])
def test_the_history_has_the_words_of_an_even_voice(how: How, at: float) -> None:
    outcome = play(Interruption(ANSWER, how, 1.0, 250, at), even(), whole_s=6.0)
    assert outcome
    assert 0 < outcome.played < len(ANSWER.split())
    assert abs(outcome.error) <= 1
    assert outcome.unsent == 0


def test_a_history_with_a_word_more_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.speaking import delivery

    monkeypatch.setattr(delivery, "heard_text", lambda spoken, seconds: spoken[0][0])
    outcome = play(Interruption(ANSWER, "cancel", 1.0, 250, 0.05), even(), whole_s=6.0)
    assert outcome
    assert outcome.error > 1


def test_written_words_end_where_their_spoken_ones_do() -> None:
    spoken = ("on", "the", "first", "of", "May", "at", "noon.")
    said = Said(np.zeros(0, np.int16), tuple((w, n) for n, w in enumerate(spoken)))
    assert written_ends("on 1 May - at noon.", said) == [0, 3, 4, 4, 5, 6]
