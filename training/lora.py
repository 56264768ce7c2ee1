"""A LoRA adapter for a Llama-shaped network: its layers for torch, and its file for llama.cpp.

Its own layers instead of a library's take twenty lines, and keep the base weights in 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, GGUFWriter
from numpy.typing import NDArray
from torch import Tensor, nn

PROJECTIONS: Mapping[str, str] = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""The names of a layer's matrices in transformers and in llama.cpp."""


class LoraLinear(nn.Module):  # type: ignore[misc]
    """A frozen matrix plus the low-rank ``b @ a``, which starts at zero."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float, dropout: float) -> None:
        super().__init__()
        self.base = base
        self.scale = alpha / rank
        self.dropout = nn.Dropout(dropout)
        self.a = nn.Parameter(torch.empty(rank, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.a, a=5**0.5)

    def own_state(self) -> dict[str, Tensor]:
        return {"a": self.a.data, "b": self.b.data}

    def forward(self, x: Tensor) -> Tensor:
        # Dropout on the inputs, as is usual, would take longer than the matrices themselves.
        low = self.dropout(nn.functional.linear(x, self.a.to(x.dtype))) * self.scale
        result: Tensor = self.base(x)
        return result + nn.functional.linear(low, self.b.to(x.dtype))


def attach(network: Any, rank: int, alpha: float, dropout: float) -> dict[str, LoraLinear]:
    """Freeze ``network``, put an adapter on every projection; returns them by llama.cpp's names."""
    network.requires_grad_(False)
    adapters = {}
    for number, layer in enumerate(network.model.layers):
        for path, name in PROJECTIONS.items():
            parent_name, child = path.split(".")
            parent = getattr(layer, parent_name)
            lora = LoraLinear(getattr(parent, child), rank, alpha, dropout)
            setattr(parent, child, lora)
            adapters[f"blk.{number}.{name}.weight"] = lora
    return adapters


def permute(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """The rows of a query or key matrix in llama.cpp's order: its rotary embedding pairs adjacent
    rows, that of transformers the two halves of a head."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def restore_order(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """The inverse of ``permute``."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def read(path: Path, adapters: Mapping[str, LoraLinear], *, heads: int, kv_heads: int) -> None:
    """Load ``adapters`` from a file of ``write``."""
    tensors = {
        tensor.name: np.array(tensor.data, np.float32) for tensor in GGUFReader(path).tensors
    }
    for name, lora in adapters.items():
        a, b = tensors[f"{name}.lora_a"], tensors[f"{name}.lora_b"]
        if turned := _heads(name, heads, kv_heads):
            b = restore_order(b, turned)
        lora.a.data.copy_(torch.from_numpy(a))
        lora.b.data.copy_(torch.from_numpy(b))


def write(
    path: Path,
    adapters: Mapping[str, LoraLinear],
    *,
    heads: int,
    kv_heads: int,
    alpha: float,
    notes: Mapping[str, str],
) -> None:
    """Write the adapter as a GGUF in 16 bits. ``notes``: further metadata."""
    writer = GGUFWriter(path, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for key, text in notes.items():
        writer.add_string(key, text)
    for name, tensor in _tensors(adapters, heads, kv_heads):
        writer.add_tensor(name, np.ascontiguousarray(tensor, np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(
    adapters: Mapping[str, LoraLinear], heads: int, kv_heads: int
) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, lora in adapters.items():
        a, b = (each.detach().float().numpy() for each in (lora.a, lora.b))
        if turned := _heads(name, heads, kv_heads):
            b = permute(b, turned)
        yield f"{name}.lora_a", a
        yield f"{name}.lora_b", b


def _heads(name: str, heads: int, kv_heads: int) -> int:
    """How many heads of this matrix llama.cpp orders differently; 0 if it orders none."""
    return heads if "attn_q" in name else kv_heads if "attn_k" in name else 0
