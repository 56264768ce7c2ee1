"""The codec of Qwen3-TTS: turns a frame's codes into 80 ms of sound, for several clauses at once.

The package decodes a whole clause. Its network is causal, so here each convolution keeps the end of
its input, and the transformer its keys and values, which gives the same sound frame by frame.
Imports torch: use it only where the engine runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pipeline.engines.tts.qwen3_network import Rows, Stack


class Codec:
    """The decoder of one speech tokenizer, in float32."""

    def __init__(self, decoder: Any, rows: int, positions: int, look: Callable[[], None]) -> None:
        """``decoder``: the package's; its convolutions are changed to work frame by frame.
        ``positions``: most frames in a clause. ``look``: see ``Stack``."""
        decoder.float()
        self._decoder = decoder
        self._table, self._offsets = _codebooks(decoder.quantizer)
        self._states: list[Tensor] = []
        self._rows: Rows = slice(0, rows)
        for module in decoder.modules():
            if hasattr(module, "right_pad"):
                up = int(module.conv.stride[0])
                left = math.ceil(int(module.conv.kernel_size[0]) / up) - 1
                self._make_streaming(module, rows, left, up)
            elif hasattr(module, "conv"):
                self._make_streaming(module, rows, int(module.padding))
            elif hasattr(module, "no_div_by_zero"):
                _simplify_snake(module)
        transformer = decoder.pre_transformer
        self._into, self._out_of = transformer.input_proj, transformer.output_proj
        self._layers = Stack(transformer, rows, positions, look)

    def reset(self, rows: Tensor) -> None:
        """Forget the input of these ``rows``, (b,)."""
        for state in self._states:
            state.index_fill_(0, rows, 0.0)

    def forward(self, codes: Tensor, rows: slice, frames: Tensor) -> Tensor:
        """Decode one frame. ``codes``: (b, 16); ``frames``: (b,), how many came before. Returns
        (b, 1920), 24 kHz, float32, perhaps outside [-1, 1]."""
        self._rows = rows
        x = functional.embedding(codes.clamp(min=0) + self._offsets, self._table).sum(1)
        x = self._decoder.pre_conv(x[..., None])
        x = self._into(x.transpose(1, 2))
        x = self._out_of(self._layers.forward(x, rows, frames[:, None])).transpose(1, 2)
        for layer in (*chain.from_iterable(self._decoder.upsample), *self._decoder.decoder):
            x = layer(x)
        sound: Tensor = x[:, 0]
        return sound

    def _make_streaming(self, module: Any, rows: int, left: int, up: int = 1) -> None:
        """Make a convolution work frame by frame. ``left``: how many earlier inputs it needs;
        ``up``: outputs per input."""
        conv = module.conv
        if not left:
            module.forward = conv
            return
        state: Tensor = conv.weight.new_zeros(rows, conv.in_channels, left)
        self._states.append(state)

        def forward(x: Tensor) -> Tensor:
            whole = torch.cat((state[self._rows], x), -1)
            state[self._rows] = whole[..., -left:]
            y: Tensor = conv(whole)
            return y if up == 1 else y[..., left * up : whole.shape[-1] * up]

        module.forward = forward


def _codebooks(quantizer: Any) -> tuple[Tensor, Tensor]:
    """All codebooks, multiplied by the projections that follow them, (16 · codes, channels), and
    the row at which each begins, (16,)."""
    tables = []
    with torch.no_grad():
        for part in (quantizer.rvq_first, quantizer.rvq_rest):
            for layer in part.vq.layers:
                book = layer._codebook
                codes = torch.arange(len(book.cluster_usage), device=book.cluster_usage.device)
                tables.append(part.output_proj(layer.decode(codes[None]))[0].T)
    offsets = torch.arange(len(tables), device=tables[0].device) * len(tables[0])
    return torch.cat(tables).contiguous(), offsets


def _simplify_snake(module: Any) -> None:
    """x + sin²(a x) / b, with the constants computed once."""
    a = module.alpha.data.exp()[:, None]
    b = 1.0 / (module.beta.data.exp()[:, None] + module.no_div_by_zero)
    module.forward = lambda x: torch.addcmul(x, b, (x * a).sin().square())
