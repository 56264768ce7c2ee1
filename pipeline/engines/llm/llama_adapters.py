"""LoRA adapters: separate files with what a model has learnt on top of its weights."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.llm.llama_api import library, recent_problems
from pipeline.engines.llm.llama_options import LoraAdapter
from pipeline.engines.tensor_file import FileSegment, pieces_of
from pipeline.errors import EngineError, WeightsError

_A, _B = ".lora_a", ".lora_b"
_FLOATS: Mapping[str, np.dtype[Any]] = {"0": np.dtype("<f4"), "1": np.dtype("<f2")}
_Q8_0 = "8"
"""``enum ggml_type``."""
_BLOCK = np.dtype([("scale", "<f2"), ("numbers", "i1", 32)])
"""One block of a tensor in Q8_0."""
_MOST = 127
_ROWS = 32
_WITHOUT = "set llm.adapters to []"


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """An adapter in memory. llama.cpp frees it with its model."""

    handle: Any
    path: Path
    scale: float
    digest: str

    @property
    def alpha(self) -> float:
        """LoRA's alpha: the effective scale is ``scale * alpha / rank``, or ``scale`` if this is
        0."""
        buffer = ctypes.create_string_buffer(32)
        key = b"adapter.lora.alpha"
        length = library().llama_adapter_meta_val_str(self.handle, key, buffer, len(buffer))
        return float(buffer.value) if length > 0 else 0.0


def load_adapters(
    model: Any, model_path: Path, adapters: Sequence[LoraAdapter]
) -> list[LoadedAdapter]:
    """Load the adapters of the llama.cpp ``model``. Raises ``WeightsError``, ``EngineError``."""
    return [_load(model, model_path, adapter) for adapter in adapters]


def _load(model: Any, model_path: Path, adapter: LoraAdapter) -> LoadedAdapter:
    path = adapter.path
    digest = _digest(path, adapter.sha256)
    recent_problems()
    handle = library().llama_adapter_lora_init(model, os.fsencode(path))
    if not handle:
        raise EngineError(
            f"The adapter {path.name} does not fit the language model {model_path.name}",
            why=recent_problems() or "llama.cpp refused it",
            fix=f"Use it with the weights that it was made for, or {_WITHOUT}",
        )
    return LoadedAdapter(handle, path, adapter.scale, digest)


def _digest(path: Path, expected: str | None) -> str:
    """The file's SHA-256, checked against ``expected``. Raises ``WeightsError``."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as problem:
        raise WeightsError(
            f"The adapter {path} cannot be read",
            why=problem.strerror or str(problem),
            fix=f"Correct its path in llm.adapters, or {_WITHOUT}",
        ) from problem
    if expected not in (None, digest):
        raise WeightsError(
            f"The adapter {path.name} is not the one that llm.adapters describes",
            why=f"its SHA-256 is {digest}, not {expected}",
            fix=f"Fetch it again (install reachy-voice again if it came with it), or {_WITHOUT}",
        )
    return digest


def use_adapters(context: Any, adapters: Sequence[LoadedAdapter]) -> None:
    """Make a llama.cpp ``context`` apply all ``adapters``. Raises ``EngineError``."""
    api = library()
    count = len(adapters)
    handles = (api.llama_adapter_lora_p_ctypes * count)(*(each.handle for each in adapters))
    scales = (ctypes.c_float * count)(*(each.scale for each in adapters))
    if count and api.llama_set_adapters_lora(context, handles, count, scales):
        raise EngineError(
            "The adapters of the language model cannot be used together",
            why=recent_problems() or "llama.cpp refused them",
            fix=f"Try each alone, or {_WITHOUT}",
        )


# --- merging -----------------------------------------------------------------------------------


def merge(adapters: Sequence[LoadedAdapter], model: Path) -> bool:
    """Add all ``adapters`` to the weights of a GGUF in Q8_0. Returns False and changes nothing if
    one of their tensors has an unsupported type."""
    weights = _tensors(model)
    learnt = [(adapter, _tensors(adapter.path)) for adapter in adapters]
    if not all(_mergeable(tensors, weights) for _, tensors in learnt):
        return False
    data = np.memmap(model, np.uint8, "r+")
    for adapter, tensors in learnt:
        source = np.memmap(adapter.path, np.uint8, "r")
        for name in (name.removesuffix(_A) for name in tensors if name.endswith(_A)):
            a, b = (_numbers(source, tensors[name + end]) for end in (_A, _B))
            scale = adapter.scale * (adapter.alpha / len(a) if adapter.alpha else 1.0)
            _add(data, weights[name], scale * b, a)
    data.flush()
    return True


def _tensors(path: Path) -> dict[str, FileSegment]:
    return {piece.name: piece for piece in pieces_of(path) if not piece.name.startswith("@")}


def _mergeable(tensors: Mapping[str, FileSegment], weights: Mapping[str, FileSegment]) -> bool:
    bases = [weights.get(name.removesuffix(_A).removesuffix(_B)) for name in tensors]
    floats = all(_type(piece) in _FLOATS for piece in tensors.values())
    # Only blocks: embeddings are stored transposed.
    matrices = all(base and base.name.startswith("blk.") and _type(base) == _Q8_0 for base in bases)
    return floats and matrices


def _type(piece: FileSegment) -> str:
    return piece.kind.split(" ")[0]


def _numbers(source: NDArray[np.uint8], piece: FileSegment) -> NDArray[np.float32]:
    """A matrix of floats."""
    floats = source[piece.start : piece.start + piece.size].view(_FLOATS[_type(piece)])
    return np.asarray(floats, np.float32).reshape(-1, piece.shape[0])


def _add(data: NDArray[np.uint8], piece: FileSegment, b: NDArray[Any], a: NDArray[Any]) -> None:
    """Add ``b @ a`` to a tensor in Q8_0, with llama.cpp's rounding. A few rows at a time, as
    allocating whole tensors takes several times as long as the arithmetic."""
    rows = data[piece.start : piece.start + piece.size].view(_BLOCK).reshape(len(b), -1)
    for start in range(0, len(b), _ROWS):
        blocks = rows[start : start + _ROWS]
        numbers = blocks["numbers"] * blocks["scale"][..., None].astype(np.float32)
        numbers += (b[start : start + _ROWS] @ a).reshape(numbers.shape)
        scales = np.abs(numbers).max(axis=-1) / _MOST
        blocks["scale"] = scales
        numbers /= np.where(scales, scales, 1.0)[..., None]
        blocks["numbers"] = np.rint(numbers)
