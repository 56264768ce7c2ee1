"""GGUF files made while a test runs: real architectures, random weights, the tokenizer of SmolLM2.

They test code paths of llama.cpp (sliding windows, drafts, pictures), never a model's words. The
format is llama.cpp's ``docs/gguf``: a header, metadata, descriptions of tensors, and their data.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT = 32
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
"""``enum gguf_type``, except strings and arrays."""
_BOOL, _TEXT, _LIST, _U32, _F32 = 7, 8, 9, 4, 6
_I32 = 5
_TENSOR_TYPES = {np.dtype(np.float32): 0, np.dtype(np.float16): 1}
"""``enum ggml_type``."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A tensor as stored in a file."""

    shape: tuple[int, ...]
    """The contiguous axis first."""
    kind: int
    """Its number in ``enum ggml_type``."""
    data: bytes


Tensors = Mapping[str, "NDArray[Any] | Raw"]


def metadata(path: Path) -> dict[str, Any]:
    """All of a GGUF's metadata."""
    with path.open("rb") as file:
        assert file.read(4) == b"GGUF"
        _, _, count = struct.unpack("<IQQ", file.read(20))
        return {_read(file, _TEXT): _read(file, _unpack(file, "I")) for _ in range(count)}


def write(path: Path, data: Mapping[str, Any], tensors: Tensors) -> Path:
    """Write a GGUF of float32 and float16 ``tensors``, whose last axis is contiguous, or of raw
    ones."""
    raw = {name: one if isinstance(one, Raw) else _raw(one) for name, one in tensors.items()}
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(data)))
        for key, value in data.items():
            _write_text(file, key)
            _write(file, value)
        offset = 0
        for name, tensor in raw.items():
            _write_text(file, name)
            file.write(struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape))
            file.write(struct.pack("<IQ", tensor.kind, offset))
            offset += _aligned(len(tensor.data))
        file.write(bytes(_aligned(file.tell()) - file.tell()))
        for tensor in raw.values():
            file.write(tensor.data)
            file.write(bytes(_aligned(len(tensor.data)) - len(tensor.data)))
    return path


def _raw(tensor: NDArray[Any]) -> Raw:
    return Raw(tensor.shape[::-1], _TENSOR_TYPES[tensor.dtype], tensor.tobytes())


def tokenizer(path: Path) -> dict[str, Any]:
    """The GGUF metadata of the vocabulary and the chat template."""
    return {key: value for key, value in metadata(path).items() if key.startswith("tokenizer.")}


# --- language models ---------------------------------------------------------------------------

WIDTH, HEADS, LAYERS = 64, 2, 3


def language_model(
    path: Path,
    vocabulary: Mapping[str, Any],
    architecture: str = "llama",
    *,
    trained_tokens: int = 65_536,
    window_tokens: int = 0,
    head: int = WIDTH // HEADS,
    seed: int = 0,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """A random model of ``architecture`` (llama, gemma3 or qwen2vl), about 7 MB.

    ``window_tokens``: how far the first two of its three layers look back (gemma3). ``head``:
    numbers in the key of one attention head.
    """
    size = len(vocabulary["tokenizer.ggml.tokens"])
    numbers = {
        "context_length": trained_tokens,
        "embedding_length": WIDTH,
        "feed_forward_length": 2 * WIDTH,
        "block_count": LAYERS,
        "attention.head_count": HEADS,
        "attention.head_count_kv": 1,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 10_000.0,
        **({"rope.dimension_count": head} if architecture == "llama" else {}),
        **(_window(window_tokens) if window_tokens else {}),
        **(extra or {}),
    }
    data = {
        "general.architecture": architecture,
        "general.name": "tiny",
        **{f"{architecture}.{key}": value for key, value in numbers.items()},
        **vocabulary,
    }

    return write(path, data, _language_tensors(architecture, size, head, seed))


def _language_tensors(architecture: str, size: int, head: int, seed: int) -> Tensors:
    draw = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, scale: float = 1.0) -> NDArray[np.float16]:
        drawn = draw.standard_normal((rows, columns)) * scale / columns**0.5
        return np.asarray(drawn, np.float16)

    ones, zeros = np.ones, np.zeros
    tensors: dict[str, NDArray[Any]] = {
        "token_embd.weight": matrix(size, WIDTH),
        "output_norm.weight": ones(WIDTH, np.float32),
    }
    for number in range(LAYERS):
        layer: dict[str, NDArray[Any]] = {
            "attn_norm.weight": ones(WIDTH, np.float32),
            "attn_q.weight": matrix(HEADS * head, WIDTH),
            "attn_k.weight": matrix(head, WIDTH),
            "attn_v.weight": matrix(head, WIDTH),
            # Large, so that earlier tokens matter.
            "attn_output.weight": matrix(WIDTH, HEADS * head, 8.0),
            "ffn_norm.weight": ones(WIDTH, np.float32),
            "ffn_gate.weight": matrix(2 * WIDTH, WIDTH),
            "ffn_up.weight": matrix(2 * WIDTH, WIDTH),
            "ffn_down.weight": matrix(WIDTH, 2 * WIDTH),
        }
        if architecture == "gemma3":
            layer |= {f"attn_{one}_norm.weight": ones(head, np.float32) for one in "qk"}
            layer["post_attention_norm.weight"] = ones(WIDTH, np.float32)
            layer["post_ffw_norm.weight"] = ones(WIDTH, np.float32)
        if architecture == "qwen2vl":
            layer["attn_q.bias"] = zeros(HEADS * head, np.float32)
            layer |= {f"attn_{one}.bias": zeros(head, np.float32) for one in "kv"}
        tensors |= {f"blk.{number}.{name}": tensor for name, tensor in layer.items()}
    return tensors


# --- vision ------------------------------------------------------------------------------------

_EYE_WIDTH, _EYE_LAYERS, _PATCH = 32, 2, 4


def projector(path: Path, kind: str, *, width: int = WIDTH) -> Path:
    """A random vision projector for a language model that is ``width`` wide.

    ``kind`` gemma3: every picture as 32 x 32 pixels, in 16 tokens; qwen2vl_merger: in its own size,
    a token for 8 x 8 pixels; idefics3: in tiles of 32 x 32, 16 tokens each.
    """
    numbers = {
        "image_size": 32,
        "patch_size": _PATCH,
        "embedding_length": _EYE_WIDTH,
        "feed_forward_length": 2 * _EYE_WIDTH,
        "block_count": _EYE_LAYERS,
        "projection_dim": width,
        "attention.head_count": 2,
        "attention.layer_norm_epsilon": 1e-6,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "projector.scale_factor": 2,
        "spatial_merge_size": 2,
        **({"preproc_image_size": 64} if kind == "idefics3" else {}),
    }
    data = {
        "general.architecture": "clip",
        "clip.has_vision_encoder": True,
        "clip.projector_type": kind,
        "clip.use_gelu": True,
        **{f"clip.vision.{key}": value for key, value in numbers.items()},
    }
    return write(path, data, _eye_tensors(kind, width))


def _eye_tensors(kind: str, width: int) -> Tensors:
    draw = np.random.default_rng(0)

    def matrix(*shape: int) -> NDArray[np.float32]:
        drawn = draw.standard_normal(shape) / int(np.prod(shape[1:])) ** 0.5
        return np.asarray(drawn, np.float32)

    def norm(name: str) -> dict[str, NDArray[Any]]:
        ones = np.ones(_EYE_WIDTH, np.float32)
        return {f"{name}.weight": ones, f"{name}.bias": np.zeros(_EYE_WIDTH, np.float32)}

    def linear(name: str, rows: int, columns: int) -> dict[str, NDArray[Any]]:
        bias = np.zeros(rows, np.float32)
        return {f"{name}.weight": matrix(rows, columns), f"{name}.bias": bias}

    patch = (_EYE_WIDTH, 3, _PATCH, _PATCH)
    tensors: dict[str, NDArray[Any]] = {"v.patch_embd.weight": matrix(*patch), **norm("v.post_ln")}
    for number in range(_EYE_LAYERS):
        at = f"v.blk.{number}."
        tensors |= norm(f"{at}ln1") | norm(f"{at}ln2")
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            tensors |= linear(at + name, _EYE_WIDTH, _EYE_WIDTH)
        tensors |= linear(f"{at}ffn_up", 2 * _EYE_WIDTH, _EYE_WIDTH)
        tensors |= linear(f"{at}ffn_down", _EYE_WIDTH, 2 * _EYE_WIDTH)
    if kind == "qwen2vl_merger":
        tensors["v.patch_embd.weight.1"] = matrix(*patch)
        tensors |= linear("mm.0", 4 * _EYE_WIDTH, 4 * _EYE_WIDTH)
        tensors |= linear("mm.2", width, 4 * _EYE_WIDTH)
    else:
        tensors["v.patch_embd.bias"] = np.zeros(_EYE_WIDTH, np.float32)
        tensors["v.position_embd.weight"] = matrix((32 // _PATCH) ** 2, _EYE_WIDTH)
    if kind == "gemma3":
        tensors["mm.input_projection.weight"] = matrix(_EYE_WIDTH, width)
        tensors["mm.soft_emb_norm.weight"] = np.ones(_EYE_WIDTH, np.float32)
    if kind == "idefics3":
        tensors["mm.model.fc.weight"] = matrix(width, 4 * _EYE_WIDTH)
    return tensors


def _window(tokens: int) -> dict[str, Any]:
    pattern = [number < LAYERS - 1 for number in range(LAYERS)]
    return {"attention.sliding_window": tokens, "attention.sliding_window_pattern": pattern}


# --- the format --------------------------------------------------------------------------------


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _unpack(file: BinaryIO, kind: str) -> Any:
    return struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))[0]


def _read(file: BinaryIO, kind: int) -> Any:
    if kind == _TEXT:
        return file.read(_unpack(file, "Q")).decode()
    if kind == _LIST:
        inner, count = _unpack(file, "I"), _unpack(file, "Q")
        return [_read(file, inner) for _ in range(count)]
    return _unpack(file, _SCALARS[kind])


def _write_text(file: BinaryIO, text: str) -> None:
    data = text.encode()
    file.write(struct.pack("<Q", len(data)) + data)


def _write(file: BinaryIO, value: Any) -> None:
    kind = _kind(value)
    file.write(struct.pack("<I", kind))
    if kind == _LIST:
        inner = _kind(value[0], signed=True)
        file.write(struct.pack("<IQ", inner, len(value)))
        for one in value:
            _write_one(file, inner, one)
    else:
        _write_one(file, kind, value)


def _write_one(file: BinaryIO, kind: int, value: Any) -> None:
    if kind == _TEXT:
        _write_text(file, value)
    else:
        file.write(struct.pack(f"<{_SCALARS[kind]}", value))


def _kind(value: Any, *, signed: bool = False) -> int:
    if isinstance(value, list | tuple):
        return _LIST
    if isinstance(value, str):
        return _TEXT
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, float):
        return _F32
    return _I32 if signed else _U32
