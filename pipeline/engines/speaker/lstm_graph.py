"""Writes a stack of LSTMs and a linear layer as an ONNX model, without the ``onnx`` package.

A model file is a protobuf message; its field numbers are from
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.speaker.checkpoint import Tensors

_IR_VERSION, _OPSET = 8, 14
_FLOAT, _INT64, _INT = 1, 7, 2


def lstm_graph(weights: Tensors, layers: int) -> bytes:
    """An ONNX model of ``weights``, named as in PyTorch (``lstm.weight_ih_l0``, ``linear.bias``).

    Input ``frames``: float32, shape ``(time, batch, size)``. Output ``voice``: the linear layer and
    a ReLU applied to the last state, shape ``(batch, size)``.
    """
    parts = [_tensor("first", np.array([0])), _tensor("second", np.array([1]))]
    frames = "frames"
    for n in range(layers):
        inner, outer, *biases = (
            _gates(weights[f"lstm.{name}_l{n}"])
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        names = [f"inner{n}", f"outer{n}", f"bias{n}"]
        parts += map(_tensor, names, (inner[None], outer[None], np.concatenate(biases)[None]))
        results, hidden_size = [f"states{n}", f"last{n}"], outer.shape[1]
        parts.append(_node("LSTM", [frames, *names], results, hidden_size=hidden_size))
        # Drop the axis of directions, as there is only one.
        frames = f"frames{n}"
        parts.append(_node("Squeeze", [f"states{n}", "second"], [frames]))
    parts += [_tensor("linear", weights["linear.weight"]), _tensor("bias", weights["linear.bias"])]
    parts += [
        _node("Squeeze", [f"last{layers - 1}", "first"], ["last"]),
        _node("Gemm", ["last", "linear", "bias"], ["signed"], transB=1),
        _node("Relu", ["signed"], ["voice"]),
        _value(11, "frames"),
        _value(12, "voice"),
        _field(2, b"lstm"),
    ]
    opset = _number(2, _OPSET)
    return _number(1, _IR_VERSION) + _field(7, b"".join(parts)) + _field(8, opset)


def _gates(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Reorder the gates of PyTorch as ONNX expects them."""
    input_, forget, cell, output = np.split(rows, 4)
    return np.concatenate([input_, output, forget, cell])


# --- protobuf ----------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(high) if high else bytes([low])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **numbers: int) -> bytes:
    named = [_field(1, each.encode()) for each in inputs]
    named += [_field(2, each.encode()) for each in outputs]
    for name, value in numbers.items():
        attribute = _field(1, name.encode()) + _number(3, value) + _number(20, _INT)
        named.append(_field(5, attribute))
    return _field(1, b"".join(named) + _field(4, operator.encode()))


def _tensor(name: str, array: NDArray[np.float32] | NDArray[np.int64]) -> bytes:
    kind = _INT64 if array.dtype == np.int64 else _FLOAT
    shape = b"".join(_number(1, size) for size in array.shape)
    content = _field(8, name.encode()) + _field(9, array.tobytes())
    return _field(5, shape + _number(2, kind) + content)


def _value(field: int, name: str) -> bytes:
    """Declares an input or output: a float tensor of any shape."""
    kind = _field(2, _field(1, _number(1, _FLOAT)))
    return _field(field, _field(1, name.encode()) + kind)
