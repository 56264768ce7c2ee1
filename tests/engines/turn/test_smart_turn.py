"""Smart Turn and its log-mel front end: against pipecat's own features, and on people's speech."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio import LISTEN_RATE, Framer, Pcm, to_float
from pipeline.engines.contract import TurnDetector
from pipeline.engines.registry import Kind, engine_spec
from pipeline.engines.turn import silence, smart_turn
from pipeline.engines.vad import silero
from pipeline.errors import WeightsError
from tests.support.places import Weights
from tests.support.recordings import Recording, real_recordings, recording

pytestmark = pytest.mark.engines

HISTORY_SAMPLES = int(smart_turn.HISTORY_SECONDS * LISTEN_RATE)


@pytest.fixture(scope="module")
def pipecat_features(weights: Weights) -> dict[str, Any]:
    """The feature module deployed with Smart Turn, from the wheel that carries the network."""
    return runpy.run_path(str(weights("smart-turn-features-reference") / "_whisper_features.py"))


@pytest.fixture(scope="module")
def detector(weights: Weights) -> smart_turn.SmartTurn:
    return smart_turn.build(smart_turn.SmartTurnOptions(), weights("smart-turn-v3.2"))


SYNTHETIC = {
    "noise": (np.random.default_rng(3).standard_normal(80_000) * 3000).astype(np.int16),
    "full-scale square": np.where(np.arange(40_000) // 40 % 2, 32767, -32768).astype(np.int16),
    "silence": np.zeros(LISTEN_RATE, dtype=np.int16),
    "one sample": np.array([1000], dtype=np.int16),
    "nothing": np.zeros(0, dtype=np.int16),
}
SPOKEN_SECONDS = {"short speech": 2.5, "exactly 8 s": 8.0, "more than 8 s": 14.0}


def sound(name: str) -> Pcm:
    if name in SYNTHETIC:
        return SYNTHETIC[name]
    return np.resize(recording("librivox-0870").pcm, int(SPOKEN_SECONDS[name] * LISTEN_RATE))


@pytest.mark.real
@pytest.mark.parametrize("name", [*SPOKEN_SECONDS, *SYNTHETIC])
def test_features_equal_pipecats(pipecat_features: dict[str, Any], name: str) -> None:
    pcm = sound(name)
    heard = to_float(pcm[-HISTORY_SAMPLES:])
    padded = np.pad(heard, (HISTORY_SAMPLES - len(heard), 0))
    compute = pipecat_features["compute_whisper_log_mel_features"]
    expected = compute(padded, do_normalize=True)
    found = smart_turn.features(pcm)
    assert found.shape == (80, 800)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=2e-4)


def speech_bounds(vad: silero.SileroVad, clip: Recording) -> tuple[int, int]:
    """Sample indexes where speech begins and ends."""
    stream = vad.open()
    frames = Framer(silero.WINDOW_SAMPLES).feed(clip.pcm)
    speech = [frame for frame in frames if stream.score(frame.pcm) >= 0.5]
    return speech[0].index, speech[-1].end


@pytest.mark.real
def test_complete_recordings_are_over_and_their_first_45_percent_are_not(
    detector: smart_turn.SmartTurn, vad: silero.SileroVad
) -> None:
    """Cuts of one-second commands may be complete ("four queen"), so only sentences must hold."""
    complete, cut = {}, {}
    for clip in real_recordings():
        start, end = speech_bounds(vad, clip)
        complete[clip.name] = detector.score(clip.pcm[: end + LISTEN_RATE // 10], "")
        cut[clip.name] = detector.score(clip.pcm[: start + int(0.45 * (end - start))], "")
    over = [name for name, score in complete.items() if score >= 0.5]
    assert len(over) >= 0.8 * len(complete), complete
    sentences = {name: cut[name] for name in cut if name.startswith(("librivox", "two_cities"))}
    assert max(sentences.values()) < 0.5, sentences
    assert np.mean(list(complete.values())) - np.mean(list(cut.values())) > 0.25


def test_absent_weights_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"smart-turn-v3\.2-cpu\.onnx is missing"):
        smart_turn.build(smart_turn.SmartTurnOptions(), tmp_path)


@pytest.mark.parametrize("probability", [0.0, 0.6, 1.0])
def test_silence_always_scores_the_same(probability: float) -> None:
    spec = engine_spec(Kind.TURN, "silence")
    detector: TurnDetector = spec.build(silence.SilenceOptions(probability=probability), None)
    assert detector.score(np.zeros(0, dtype=np.int16), "") == probability
    assert detector.score(np.ones(99, dtype=np.int16), "wait, and") == probability
