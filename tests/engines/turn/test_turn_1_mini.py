"""turn-1-mini against a fabricated graph with its published interface: names, steps and states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.engines.registry import Kind, engine_spec
from pipeline.engines.turn.turn_1_mini import (
    FRAME_SAMPLES,
    STEP_SAMPLES,
    Turn1Mini,
    Turn1MiniOptions,
)
from pipeline.errors import WeightsError

pytestmark = pytest.mark.quick

SPEC = engine_spec(Kind.TURN, "turn-1-mini")
STATES = {
    "audio": (1, 512),
    "conv1": (1, 4, 2),
    "conv2": (1, 4, 2),
    "k": (2, 1, 8, 4),
    "v": (2, 1, 8, 4),
    "k_valid": (1, 8),
    "h6": (1, 1),
}


def graph(path: Path) -> Path:
    """Probability of a frame: its mean level plus ``h6``, which holds earlier steps. ``h6`` becomes
    half of itself plus the step's mean; all other states pass through."""
    inputs = [helper.make_tensor_value_info("audio", TensorProto.FLOAT, [1, STEP_SAMPLES])]
    outputs = [helper.make_tensor_value_info("probs", TensorProto.FLOAT, [8])]
    nodes = [
        helper.make_node("Abs", ["audio"], ["loud"]),
        helper.make_node("Reshape", ["loud", "frames"], ["framed"]),
        helper.make_node("ReduceMean", ["framed", "axis"], ["means"], keepdims=0),
        helper.make_node("Reshape", ["state_h6", "one"], ["before"]),
        helper.make_node("Add", ["means", "before"], ["probs"]),
        helper.make_node("ReduceMean", ["loud"], ["mean"], keepdims=1),
        helper.make_node("Mul", ["state_h6", "half"], ["old"]),
        helper.make_node("Add", ["old", "mean"], ["new_state_h6"]),
    ]
    for name, shape in STATES.items():
        inputs.append(helper.make_tensor_value_info(f"state_{name}", TensorProto.FLOAT, shape))
        outputs.append(helper.make_tensor_value_info(f"new_state_{name}", TensorProto.FLOAT, shape))
        if name != "h6":
            nodes.append(helper.make_node("Identity", [f"state_{name}"], [f"new_state_{name}"]))
    constants = {
        "frames": np.array([8, FRAME_SAMPLES]),
        "axis": np.array([1]),
        "one": np.array([1]),
        "half": np.array(0.5, dtype=np.float32),
    }
    initial = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "step", inputs, outputs, initial),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def expected(pcm: Pcm) -> float:
    loud = np.abs(to_float(pcm))
    before = score = 0.0
    for start in range(0, len(pcm), STEP_SAMPLES):
        step = loud[start : start + STEP_SAMPLES]
        frames = len(step) // FRAME_SAMPLES
        if frames:
            score = before + step[(frames - 1) * FRAME_SAMPLES : frames * FRAME_SAMPLES].mean()
        before = before / 2 + step.mean()
    return float(score)


class Counting:
    def __init__(self, session: Any) -> None:
        self._session = session
        self.runs = 0

    def get_inputs(self) -> Any:
        return self._session.get_inputs()

    def run(self, *arguments: Any) -> Any:
        self.runs += 1
        return self._session.run(*arguments)


@pytest.fixture
def detector(tmp_path: Path) -> Turn1Mini:
    path = graph(tmp_path / "step.onnx")
    built: Turn1Mini = SPEC.build(Turn1MiniOptions(model_file=str(path)), None)
    return built


def speech(seconds: float, seed: int = 1) -> Pcm:
    noise = np.random.default_rng(seed).standard_normal(int(seconds * LISTEN_RATE))
    return (noise * 3000).astype(np.int16)


@pytest.mark.parametrize(
    "samples",
    [0, 1, FRAME_SAMPLES, STEP_SAMPLES - 1, STEP_SAMPLES, STEP_SAMPLES + 700, 3 * STEP_SAMPLES],
)
def test_the_last_whole_frame_gives_the_score(detector: Turn1Mini, samples: int) -> None:
    pcm = speech(2)[:samples]
    assert detector.score(pcm, "") == pytest.approx(expected(pcm), rel=1e-4)


def test_a_later_pause_of_a_turn_processes_only_new_audio(detector: Turn1Mini) -> None:
    counting = Counting(detector._session)
    detector = Turn1Mini(counting)
    pcm = speech(4)
    detector.score(pcm[: 10 * STEP_SAMPLES + 500], "")
    assert counting.runs == 11
    assert detector.score(pcm[: 12 * STEP_SAMPLES], "") == pytest.approx(
        expected(pcm[: 12 * STEP_SAMPLES]), rel=1e-4
    )
    assert counting.runs == 13


def test_another_turn_begins_without_a_state(detector: Turn1Mini) -> None:
    detector.score(speech(3), "")
    for pcm in (speech(2, seed=2), speech(3)[: 5 * STEP_SAMPLES]):
        assert detector.score(pcm, "") == pytest.approx(expected(pcm), rel=1e-4)


def test_only_the_last_seconds_of_a_long_turn_count(detector: Turn1Mini) -> None:
    pcm = speech(30)
    assert detector.score(pcm, "") == pytest.approx(expected(pcm[-16 * LISTEN_RATE :]), rel=1e-4)


def test_a_missing_or_different_graph_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "step.onnx"
    with pytest.raises(WeightsError, match=r"step\.onnx is missing(.|\n)*huggingface"):
        SPEC.build(Turn1MiniOptions(model_file=str(path)), None)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    node = helper.make_node("Identity", ["x"], ["y"])
    other = helper.make_model(
        helper.make_graph([node], "other", [value], [out]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    onnx.save(other, path)
    with pytest.raises(WeightsError, match="cannot be loaded"):
        SPEC.build(Turn1MiniOptions(model_file=str(path)), None)
