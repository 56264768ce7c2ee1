"""Parakeet while people speak: partials that keep their word and come in time, several at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import Partial
from pipeline.engines.stt.parakeet import Parakeet, ParakeetOptions
from pipeline.workers.host import Done, EngineHost, Item, Submit
from tests.support.recordings import Uncancelled
from tests.support.tiny_models.parakeet import PHRASES, VOICES
from tests.support.tiny_parakeet import engine, needs_nemo, options, say, talk

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


def test_a_partial_is_told_once_for_each_pass() -> None:
    """Two equal ones in a row mean that two passes agree."""
    stt = engine()
    pcm, _ = talk("Go forward ten meters.")
    utterance, passes = stt.open("en", True), stt._shared.windows.passes
    told = [utterance.feed(piece) for piece in np.split(pcm, range(512, len(pcm), 512))]
    assert 3 < sum(bool(each.text) for each in told) <= stt._shared.windows.passes - passes


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
    utterance = stt.open("en", False)
    utterance.feed(pcm)
    final = utterance.finish(Uncancelled())
    assert final.text == text
    bar_s = chosen.chunk_s + chosen.right_s + 0.150
    words, checked = [word.text for word in final.words], 0
    for count, word in enumerate(final.words, 1):
        if word.end_s + bar_s < seen[-1][0]:
            assert _first(seen, words[:count], committed=False) - word.end_s <= bar_s
            checked += 1
    for count, after in enumerate(final.words[1:], 1):
        if after.end_s + bar_s < seen[-1][0]:
            assert _first(seen, words[:count], committed=True) - after.end_s <= bar_s
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
        passes = stt._shared.windows.passes
        assert stt.open("en", wanted).feed(talk(*PHRASES[:2])[0]) == Partial()
        assert stt._shared.windows.passes == passes
    assert engine().streams
    assert not engine(partials=False).streams


def test_partials_are_a_gpus_business_unless_they_are_asked_for() -> None:
    assert ParakeetOptions().partials is None
    assert not engine(partials=None, device="cpu").streams


# --- several at once ---------------------------------------------------------------------------


class Clients:
    """Utterances on one engine, whose calls all wait before the host runs."""

    def __init__(self, stt: Parakeet, count: int, partials: bool) -> None:
        self._answers: list[Any] = []
        self._host = EngineHost(stt, self._answers.append)
        self._count = count
        for client in range(1, count + 1):
            opening = ("en", partials)
            submit = Submit(client, 0, "open", opening, 0, False, keep_as=client, client=client)
            self._host.receive(submit)
        self._host.run_until_idle()
        self._job = 100

    def each(self, method: str, *arguments: tuple[Any, ...]) -> list[Any]:
        """Call ``method`` of every utterance with its own arguments, at the same time."""
        first = self._job
        self._job += 100
        self._answers.clear()
        for client, own in enumerate(arguments, 1):
            job = first + client
            self._host.receive(Submit(job, client, method, own, 0, True, client=client))
        self._host.run_until_idle()
        errors = [each.error for each in self._answers if isinstance(each, Done) and each.error]
        assert not errors
        items = {each.job: each.value for each in self._answers if isinstance(each, Item)}
        return [items[first + client] for client in range(1, self._count + 1)]


@pytest.mark.parametrize("rows_alone", [True, False])
def test_utterances_that_wait_share_their_passes(
    rows_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``rows_alone`` False: as a GPU decodes, all rows at once."""
    stt = engine()
    monkeypatch.setattr(stt._shared.model, "decodes_rows_alone", rows_alone)
    talks = [talk(*PHRASES[at : at + 2], voice="en-us+f2") for at in (0, 3, 6)]
    clients = Clients(stt, len(talks), partials=True)
    longest = max(len(pcm) for pcm, _ in talks)
    alone = [stt.open("en", True) for _ in talks]
    windows, finals = stt._shared.windows.passes, stt._shared.finals.passes
    step = 5120
    for begin in range(0, longest, step):
        pieces = [pcm[begin : begin + step] for pcm, _ in talks]
        found = clients.each("feed_steps", *[(piece,) for piece in pieces])
        expected = [each.feed(piece) for each, piece in zip(alone, pieces, strict=True)]
        assert found == expected
    texts = clients.each("finish_steps", *[()] * len(talks))
    assert [each.text for each in texts] == [text for _, text in talks]
    own_windows = sum(len(pcm) // step for pcm, _ in talks)
    shared_windows = stt._shared.windows.passes - windows - own_windows
    assert shared_windows == longest // step
    assert stt._shared.finals.passes - finals == 1


def test_a_batch_decodes_as_each_alone() -> None:
    model = engine()._shared.model
    clips = [say(*each) for each in SPEECH[::7]]
    together = model.transcribe(clips, lambda: False)
    assert together == [model.transcribe([clip], lambda: False)[0] for clip in clips]
    assert all(together)


def test_more_than_the_limit_is_another_pass() -> None:
    stt = engine(batch_s=0)
    talks = [say("Look at me."), say("Stop, please.")]
    clients = Clients(stt, 2, partials=False)
    clients.each("feed_steps", *[(pcm,) for pcm in talks])
    passes = stt._shared.finals.passes
    texts = clients.each("finish_steps", (), ())
    assert [each.text for each in texts] == ["Look at me.", "Stop, please."]
    assert stt._shared.finals.passes - passes == 2
