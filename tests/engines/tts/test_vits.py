"""A network split in two gives the output of the whole, and so do windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.onnx import open_session
from pipeline.engines.tts.onnx_parts import CannotCut, cut
from pipeline.engines.tts.piper import _open_part
from pipeline.engines.tts.vits import SMALLEST, SMALLEST_FIRST, Frames, Samples, Vocoder, limited
from tests.support.places import Weights

pytestmark = pytest.mark.engines

HOP = 4


class BlurringSession:
    """Turns each frame into ``HOP`` samples, blurred over the neighbours that it sees."""

    def __init__(self, reach: int) -> None:
        self.reach = reach
        self.lengths: list[int] = []

    def run(self, _: None, feeds: dict[str, Frames]) -> list[Samples]:
        frames = feeds["z"][0, 0]
        self.lengths.append(len(frames))
        kernel = np.ones(2 * self.reach + 1) / (2 * self.reach + 1)
        padded = np.pad(frames, self.reach)
        blurred = np.convolve(padded, kernel, "valid").astype(np.float32)
        return [np.repeat(blurred, HOP)[np.newaxis, np.newaxis]]


def noise(count: int) -> Frames:
    return np.random.default_rng(count).uniform(-1, 1, (1, count)).astype(np.float32)


@pytest.mark.parametrize("reach", [0, 5, 10, 30])
@pytest.mark.parametrize("count", [1, 7, SMALLEST_FIRST, 47, 48, 49, 200, 1000])
def test_windows_equal_the_whole(reach: int, count: int) -> None:
    session = BlurringSession(reach)
    vocoder = Vocoder(session, "z", rate=22_050)
    assert vocoder.fit(noise(240)) is not None
    session.lengths.clear()
    frames = noise(count)
    parts = list(vocoder.windows(frames))
    (expected,) = BlurringSession(reach).run(None, {"z": frames[np.newaxis]})
    np.testing.assert_allclose(np.concatenate(parts), expected.ravel(), atol=1e-5)
    assert all(len(part) for part in parts)
    if count > SMALLEST_FIRST + SMALLEST + 2 * reach:
        assert len(parts) > 1


def test_a_vocoder_with_too_wide_a_view_does_not_fit() -> None:
    assert Vocoder(BlurringSession(100), "z", rate=22_050).fit(noise(400)) is None


def test_loud_samples_are_compressed_and_not_clipped() -> None:
    samples = np.linspace(-3, 3, 101, dtype=np.float32)
    pressed = limited(samples)
    assert np.abs(pressed).max() <= 1
    quiet = np.abs(samples) <= 0.8
    np.testing.assert_array_equal(pressed[quiet], samples[quiet])
    assert (np.diff(pressed) >= 0).all()


@pytest.mark.real
def test_pipers_parts_equal_the_whole(weights: Weights) -> None:
    model = weights("piper-joe") / "en_US-joe-medium.onnx"
    head, tail, tensor = cut(model.read_bytes(), "/dec/")
    ids = np.arange(1, 60, dtype=np.int64)[np.newaxis] % 40
    feeds = {
        "input": ids,
        "input_lengths": np.array([ids.size], dtype=np.int64),
        # No noise, so that both are equal.
        "scales": np.array([0.0, 1.0, 0.0], dtype=np.float32),
    }
    (expected,) = open_session(model).run(None, feeds)
    (frames,) = _open_part(head).run(None, feeds)
    session = _open_part(tail)
    (samples,) = session.run(None, {tensor: frames})
    np.testing.assert_array_equal(samples, expected)
    vocoder = Vocoder(session, tensor, rate=22_050)
    assert vocoder.fit(frames[0]) is not None
    windows = list(vocoder.windows(frames[0]))
    assert len(windows) > 1
    np.testing.assert_allclose(np.concatenate(windows), expected.ravel(), atol=1 / 32768)


@pytest.mark.real
def test_a_model_of_another_kind_is_not_split(weights: Weights) -> None:
    model = (weights("piper-joe") / "en_US-joe-medium.onnx").read_bytes()
    for prefix in ("/nothing/", "/enc_p/", ""):
        with pytest.raises(CannotCut):
            cut(model, prefix)
    with pytest.raises(CannotCut, match="not an ONNX model"):
        cut(model[: len(model) // 2], "/dec/")
    silero = next(weights("silero-vad").glob("*.onnx"))
    with pytest.raises(CannotCut):
        cut(silero.read_bytes(), "/decoder")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_model_or_an_error(data: bytes) -> None:
    with pytest.raises(CannotCut):
        cut(data, "/dec/")
