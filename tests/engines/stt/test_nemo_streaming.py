"""Windows of a stream: every frame is finally decoded once, in order, and soon."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.contract import Partial
from pipeline.engines.stt.nemo_streaming import ContextSize, Stream, Window, settled

pytestmark = pytest.mark.quick

CONTEXTS = st.builds(
    ContextSize,
    left=st.integers(0, 40),
    chunk=st.integers(1, 12),
    right=st.integers(0, 20),
    most=st.integers(0, 50),
)


def decode(stream: Stream, window: Window) -> None:
    """A decoder that finds one token per frame: the frame's number."""
    taken = range(window.start + window.skip, window.start + window.skip + window.take)
    rest = range(window.start + window.skip + window.take, window.end)
    stream.took(window, tuple(taken), tuple(rest), ("behind", taken.stop))


def advance(stream: Stream, frames: int) -> list[Window]:
    windows = []
    while window := stream.next_pass(frames):
        decode(stream, window)
        windows.append(window)
    return windows


@given(CONTEXTS, st.lists(st.integers(0, 30), max_size=30))
def test_each_frame_is_taken_once_and_in_time(context: ContextSize, pieces: list[int]) -> None:
    stream, fed = Stream(context), 0
    for piece in pieces:
        fed += piece
        for window in advance(stream, fed):
            assert 0 <= window.start <= window.end <= fed
            assert window.skip <= context.left
            assert window.end - window.start - window.skip <= (
                max(context.chunk, context.most) + context.right + context.chunk
            )
        known = (*stream.sure, *stream.unsure)
        assert known == tuple(range(len(known)))
        # Tentative within a chunk, final once the right context is there.
        assert len(known) > fed - context.chunk
        assert len(stream.sure) > fed - context.chunk - context.right
        assert stream.next_pass(fed) is None


@given(CONTEXTS, st.data())
def test_pieces_up_to_a_chunk_make_no_difference(context: ContextSize, data: st.DataObject) -> None:
    total = 60
    cuts = data.draw(st.lists(st.integers(1, context.chunk), min_size=1))
    one_by_one, cut = Stream(context), Stream(context)
    expected = [window for fed in range(total + 1) for window in advance(one_by_one, fed)]
    found, fed, at = [], 0, 0
    while fed < total:
        fed = min(total, fed + cuts[at % len(cuts)])
        found += advance(cut, fed)
        at += 1
    assert found == expected
    assert (cut.sure, cut.unsure, cut.state) == (one_by_one.sure, one_by_one.unsure, cut.state)


def test_the_first_pass_has_no_left_context_and_needs_right_context() -> None:
    stream = Stream(ContextSize(left=10, chunk=4, right=6, most=100))
    assert stream.next_pass(3) is None
    assert advance(stream, 4) == [Window(0, 4, 0, 0)]
    assert stream.sure == ()
    assert advance(stream, 8) == [Window(0, 8, 0, 2)]
    assert stream.sure == (0, 1)
    assert stream.unsure == tuple(range(2, 8))
    assert stream.state == ("behind", 2)


def test_waiting_audio_is_taken_in_one_pass_up_to_a_limit() -> None:
    stream = Stream(ContextSize(left=10, chunk=4, right=4, most=20))
    assert [window.end for window in advance(stream, 50)] == [20, 40, 48]


# --- words ---------------------------------------------------------------------------------------

PIECES = ("▁hel", "lo", "▁wor", "ld", ",", ".", "▁", "▁?", "▁a", "'s", "▁¿", "é")
IDS = st.lists(st.integers(0, len(PIECES) - 1), max_size=12)


def text_of(ids: Sequence[int]) -> str:
    """Joined as NeMo does: no space before punctuation."""
    text = "".join(PIECES[each] for each in ids).replace("▁", " ").lstrip()
    return re.sub(r"(\s)([.,?¿])", r"\2", text)


def test_the_last_word_is_tentative_until_another_begins() -> None:
    assert settled(text_of, (0, 1), ()) == Partial("", "hello")
    assert settled(text_of, (0, 1), (4, 2)) == Partial("", "hello, wor")
    assert settled(text_of, (0, 1, 4, 2), (3,)) == Partial("hello,", "world")
    assert settled(text_of, (0, 1, 6), ()) == Partial("", "hello")


@given(st.lists(st.tuples(IDS, IDS), max_size=8))
def test_committed_text_is_a_prefix_of_later_text(
    passes: list[tuple[list[int], list[int]]],
) -> None:
    sure: tuple[int, ...] = ()
    before = ""
    for more, unsure in passes:
        sure += tuple(more)
        partial = settled(text_of, sure, tuple(unsure))
        assert partial.committed.split()[: len(before.split())] == before.split()
        assert partial.text.startswith(before)
        assert partial.text == text_of((*sure, *unsure)).strip()
        before = partial.committed
