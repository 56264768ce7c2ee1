"""Small safetensors files, written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = Mapping[str, tuple[str, NDArray[Any]]]
"""Name -> dtype of the file, values."""


def write_safetensors(
    path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None
) -> Path:
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, (dtype, values) in tensors.items():
        place = [at, at + values.nbytes]
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": place}
        at += values.nbytes
    return write_raw(path, header, b"".join(values.tobytes() for _, values in tensors.values()))


def write_raw(path: Path, header: Any, data: bytes) -> Path:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def model(seed: int = 0, rows: int = 300) -> dict[str, tuple[str, NDArray[Any]]]:
    """Tensors of several dtypes; bfloat16 as its bits."""
    draw = np.random.default_rng(seed)
    return {
        "embed": ("BF16", draw.integers(0, 1 << 16, (rows, 64), np.uint16)),
        "layer.0.weight": ("F32", draw.standard_normal((rows, 16)).astype(np.float32)),
        "layer.0.bias": ("F16", draw.standard_normal(rows).astype(np.float16)),
        "layer.1.weight": ("I8", draw.integers(-9, 9, (rows, 32), np.int8)),
        "layer.1.steps": ("I64", draw.integers(0, 9, rows, np.int64)),
    }


def retrained(tensors: Tensors, share: float, seed: int = 1) -> dict[str, tuple[str, NDArray[Any]]]:
    """With this share of the numbers changed in their lowest bit."""
    draw, found = np.random.default_rng(seed), {}
    for name, (dtype, values) in tensors.items():
        bits = values.copy().reshape(-1).view(f"u{values.itemsize}")
        bits[draw.random(bits.size) < share] ^= 1
        found[name] = (dtype, bits.view(values.dtype).reshape(values.shape))
    return found
