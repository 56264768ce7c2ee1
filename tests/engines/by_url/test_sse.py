"""Server-sent events: edge cases of the format, and any split of the same bytes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.by_url import sse
from pipeline.engines.by_url.sse import EventReader, TooLong

pytestmark = pytest.mark.quick


def read(*pieces: bytes) -> list[str]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)] + reader.finish()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: one\n\ndata: two\n\n", ["one", "two"]),
        (b"data: one\r\n\r\ndata: two\r\n\r\n", ["one", "two"]),
        (b"data: one\r\rdata: two\r\r", ["one", "two"]),
        (b"data:one\n\n", ["one"]),
        (b"data:  one\n\n", [" one"]),
        (b"data: one\ndata: two\n\n", ["one\ntwo"]),
        (b"event: response.created\ndata: {}\n\ndata: x\n\n", ["{}", "x"]),
        (b": ping - 2026\n\ndata: one\n\n", ["one"]),
        (b"event: ping\n\ndata: one\n\n", ["one"]),
        (b"id: 3\nretry: 10\nunknown\ndata: one\n\n", ["one"]),
        (b"\xef\xbb\xbfdata: one\n\n", ["one"]),
        ("data: Grüße 😀\n\n".encode(), ["Grüße 😀"]),
        (b"data: \xff\n\n", ["\N{REPLACEMENT CHARACTER}"]),
        (b"data: one\n\ndata: [DONE]", ["one", "[DONE]"]),
        (b"data\n\n", [""]),
        (b"", []),
    ],
)
def test_events_of_the_format(stream: bytes, events: list[str]) -> None:
    assert read(stream) == events


@given(
    st.lists(st.sampled_from([b"data: a\xc3\xa9", b"event: e", b": c", b"", b"data: b"])),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 60)),
)
def test_any_split_gives_the_same_events(lines: list[bytes], end: bytes, cuts: list[int]) -> None:
    stream = end.join(lines) + end
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert read(*pieces) == read(stream)


def test_an_endless_event_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MOST_BYTES", 100)
    reader = EventReader()
    reader.feed(b"data: " + 80 * b"x")
    with pytest.raises(TooLong):
        reader.feed(80 * b"x")
    reader = EventReader()
    with pytest.raises(TooLong):
        reader.feed(20 * b"data: 12345678\n")
