"""Frames, framing, resampling and history: how samples are split never changes the result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import (
    AudioFrame,
    AudioHistory,
    Framer,
    Pcm,
    Resampler,
    from_float,
    pcm_from_bytes,
    pcm_to_bytes,
    to_float,
)

pytestmark = pytest.mark.quick


def split(pcm: Pcm, cuts: list[int]) -> list[Pcm]:
    return np.split(pcm, sorted(min(cut, len(pcm)) for cut in cuts))


cuts = st.lists(st.integers(0, 4000), max_size=12)


def test_a_frame_knows_its_place_in_time() -> None:
    frame = AudioFrame(np.zeros(512, np.int16), 16_000, 1024)
    assert (frame.end, frame.seconds) == (1536, 0.032)


@given(cuts)
def test_any_split_gives_the_same_windows(at: list[int]) -> None:
    pcm = np.arange(4000, dtype=np.int16)
    framer = Framer(512)
    frames = [frame for piece in split(pcm, at) for frame in framer.feed(piece)]
    assert [frame.index for frame in frames] == list(range(0, 3584, 512))
    assert np.array_equal(np.concatenate([frame.pcm for frame in frames]), pcm[:3584])


def test_a_window_is_not_changed_by_later_audio() -> None:
    framer = Framer(4)
    source = np.arange(6, dtype=np.int16)
    [first] = framer.feed(source)
    list(framer.feed(source))
    assert first.pcm.tolist() == [0, 1, 2, 3]


@given(cuts)
def test_resampling_in_pieces_does_not_click(at: list[int]) -> None:
    tone = (8000 * np.sin(2 * np.pi * 440 * np.arange(4800) / 24_000)).astype(np.int16)
    whole = Resampler(24_000, 16_000)
    expected = np.concatenate((whole.feed(tone), whole.flush()))
    pieces = Resampler(24_000, 16_000)
    got = np.concatenate([*(pieces.feed(piece) for piece in split(tone, at)), pieces.flush()])
    assert len(expected) == 3200
    assert np.abs(got.astype(int) - expected.astype(int)).max() <= 2  # rounding and dither


def test_equal_rates_pass_through() -> None:
    pcm = np.arange(10, dtype=np.int16)
    resampler = Resampler(16_000, 16_000)
    assert resampler.feed(pcm) is pcm
    assert len(resampler.flush()) == 0


@given(cuts, st.integers(-50, 4100), st.integers(-50, 4100))
def test_history_returns_what_it_still_holds(at: list[int], start: int, end: int) -> None:
    pcm = np.arange(4000, dtype=np.int16)
    history = AudioHistory(1000)
    for piece in split(pcm, at):
        history.append(piece)
    assert (history.start, history.end) == (3000, 4000)
    expected = pcm[max(3000, start) : max(max(3000, start), min(4000, end))]
    assert np.array_equal(history.read(start, end), expected)


def test_bytes_are_little_endian_and_even() -> None:
    assert pcm_to_bytes(np.array([1, -2], np.int16)) == b"\x01\x00\xfe\xff"
    assert pcm_from_bytes(b"\x01\x00\xfe\xff").tolist() == [1, -2]
    with pytest.raises(ValueError, match="even number of bytes, got 3"):
        pcm_from_bytes(b"abc")


def test_float_conversion_clips_instead_of_wrapping() -> None:
    assert from_float(np.array([2.0, -2.0, 0.0], np.float32)).tolist() == [32767, -32767, 0]
    assert to_float(np.array([-32768, 16384], np.int16)).tolist() == [-1.0, 0.5]
