"""Parakeet while people speak: partials that keep their word and come in time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.engines.contract import Partial
from pipeline.engines.stt.parakeet import Parakeet, ParakeetOptions
from tests.support.tiny_models.parakeet import PHRASES, VOICES
from tests.support.tiny_parakeet import engine, needs_nemo, options, reference, talk

# NeMo and what it imports warn about each other while they are imported, which takes a minute on a
# busy machine.
pytestmark = [
    pytest.mark.nemo,
    needs_nemo,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(300),
]

SPEECH = [(phrase, voice) for phrase in PHRASES for voice in VOICES]


# --- while somebody speaks ---------------------------------------------------------------------


def partials(stt: Parakeet, pcm: Pcm, cuts: list[int]) -> list[tuple[int, Partial]]:
    """What each piece came to, with the number of samples fed by then."""
    utterance = stt.open("en", True)
    pieces = np.split(pcm, cuts)
    ends = np.cumsum([len(piece) for piece in pieces]).tolist()
    newest, seen = Partial(), []
    for end, piece in zip(ends, pieces, strict=True):
        partial = utterance.feed(piece)
        newest = partial if partial.text else newest
        seen.append((end, newest))
    return seen


def test_each_pass_reports_one_partial() -> None:
    """Two equal ones in a row mean that two passes agree."""
    stt = engine()
    pcm, _ = talk("Go forward ten meters.")
    utterance, passes = stt.open("en", True), stt.model.passes
    told = [utterance.feed(piece) for piece in np.split(pcm, range(512, len(pcm), 512))]
    assert 3 < sum(bool(each.text) for each in told) <= stt.model.passes - passes


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(1, 100_000), max_size=25).map(sorted))
def test_committed_words_never_change(cuts: list[int]) -> None:
    pcm, text = talk(*PHRASES[3:7])
    before: list[str] = []
    for _, partial in partials(engine(), pcm, cuts):
        words = partial.committed.split()
        assert words[: len(before)] == before
        assert partial.text.split()[: len(words)] == words
        before = words
    # On this speech they are also what the whole utterance comes to.
    assert before == text.split()[: len(before)]


@pytest.mark.parametrize("piece_ms", [20, 32, 100])
def test_partials_come_in_time(piece_ms: int) -> None:
    """In seconds of audio. Tentative ones from the end of the word; committed ones from the end of
    the next, which shows that nothing will be added to the word."""
    stt, chosen = engine(), options()
    pcm, text = talk(*PHRASES[:6])
    cuts = list(range(0, len(pcm), piece_ms * LISTEN_RATE // 1000))[1:]
    seen = [(end / LISTEN_RATE, partial) for end, partial in partials(stt, pcm, cuts)]
    (found,) = reference().transcribe([to_float(pcm)], timestamps=True, verbose=False)
    times = [(word["word"], float(word["end"])) for word in found.timestamp["word"]]
    words, checked = [word for word, _ in times], 0
    assert " ".join(words) == text
    bar_s = chosen.chunk_s + chosen.right_s + 0.150
    for count, (_, end_s) in enumerate(times, 1):
        if end_s + bar_s < seen[-1][0]:
            assert _first(seen, words[:count], committed=False) - end_s <= bar_s
            checked += 1
    for count, (_, end_s) in enumerate(times[1:], 1):
        if end_s + bar_s < seen[-1][0]:
            assert _first(seen, words[:count], committed=True) - end_s <= bar_s
    assert checked > 15


def _first(seen: list[tuple[float, Partial]], words: list[str], committed: bool) -> float:
    """When the transcript began with ``words`` and did so from then on."""
    since = float("inf")
    for time_s, partial in seen:
        text = partial.committed if committed else partial.text
        right = text.split()[: len(words)] == words
        since = min(since, time_s) if right else float("inf")
    return since


def test_no_partials_unless_asked_for() -> None:
    for stt, wanted in ((engine(), False), (engine(partials=False), True)):
        passes = stt.model.passes
        assert stt.open("en", wanted).feed(talk(*PHRASES[:2])[0]) == Partial()
        assert stt.model.passes == passes
    assert engine().streams
    assert not engine(partials=False).streams


def test_partials_are_a_gpus_business_unless_they_are_asked_for() -> None:
    assert ParakeetOptions().partials is None
    assert not engine(partials=None, device="cpu").streams
