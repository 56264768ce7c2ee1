"""The decoder layers of Qwen3-TTS, for several clauses at once, with caches of a fixed size.

The layers of ``qwen_tts`` do one clause at a time and allocate their cache as it grows; this is the
same arithmetic on the same weights, in shapes that never change, so that a CUDA graph can replay
it. Import torch only where it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class Stack:
    """All layers of one model, the final norm included.

    Its cache has ``rows`` rows of ``length`` positions; a call reads and writes some of them.
    """

    def __init__(self, model: Any, rows: int, length: int, look: Callable[[], None]) -> None:
        """``model``: a talker's or a code predictor's ``.model``. ``look``: called before each
        layer; what it raises ends the pass."""
        config = model.config
        self._layers = [_Layer(layer) for layer in model.layers]
        self._norm = _norm(model.norm)
        self._look = look
        self._window: int | None = getattr(config, "sliding_window", None)
        weight = self._layers[0].qkv
        shape = rows, config.num_key_value_heads, length, self._layers[0].head
        self._keys = [weight.new_zeros(shape) for _ in self._layers]
        self._values = [weight.new_zeros(shape) for _ in self._layers]
        self._places = torch.arange(length, device=weight.device)
        turns = torch.outer(self._places.float(), model.rotary_emb.inv_freq.float())
        scale = float(model.rotary_emb.attention_scaling)
        sine = turns.sin()
        self._cosine = (torch.cat((turns, turns), -1).cos() * scale).to(weight.dtype)
        self._sine = (torch.cat((-sine, sine), -1) * scale).to(weight.dtype)
        """Its first half is negative: ``roll`` then turns a vector as ``rotate_half`` does."""

    def forward(self, x: Tensor, rows: slice, positions: Tensor) -> Tensor:
        """``x``: (b, t, hidden), for b rows of the cache; ``positions``: (b, t). Returns (b, t,
        hidden). A row sees what it wrote at positions up to its own."""
        b, t, width = x.shape
        seen = self._places <= positions[..., None]
        if self._window:
            seen &= self._places > positions[..., None] - self._window
        mask = torch.zeros_like(seen, dtype=x.dtype).masked_fill_(~seen, float("-inf"))
        cosine, sine = self._cosine[positions, None], self._sine[positions, None]
        lines = torch.arange(b, device=x.device)[:, None]
        x = x.reshape(b * t, width)
        for layer, keys, values in zip(self._layers, self._keys, self._values, strict=True):
            self._look()
            query, key, value = layer.project(x, (b, t), cosine, sine)
            keys, values = keys[rows], values[rows]
            keys[lines, :, positions] = key
            values[lines, :, positions] = value
            x = layer.finish(x, layer.attend(query, keys, values, mask))
        return self._norm(x).view(b, t, width)


class _Layer:
    """One layer. Weights that multiply the same input lie in one matrix; those of the package's
    own module become views of it, so that they take no memory twice."""

    def __init__(self, layer: Any) -> None:
        attention = layer.self_attn
        self.head = int(attention.head_dim)
        self._before = _norm(layer.input_layernorm)
        self._between = _norm(layer.post_attention_layernorm)
        self._act = layer.mlp.act_fn
        parts = attention.q_proj, attention.k_proj, attention.v_proj
        self.qkv, self._bias = _joined(parts)
        queries, keys = (part.out_features // self.head for part in parts[:2])
        self._queries, self._groups = queries, keys
        self._heads = torch.cat(
            (
                attention.q_norm.weight.expand(queries, -1),
                attention.k_norm.weight.expand(keys, -1),
            )
        )
        self._epsilon = float(attention.q_norm.variance_epsilon)
        self._out = attention.o_proj
        self._up, _ = _joined((layer.mlp.gate_proj, layer.mlp.up_proj))
        self._down = layer.mlp.down_proj

    def project(
        self, x: Tensor, shape: tuple[int, int], cosine: Tensor, sine: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (b, t, heads, head) each, the first two in their places."""
        turned = self._queries + self._groups
        made = functional.linear(self._before(x), self.qkv, self._bias)
        made = made.view(*shape, -1, self.head)
        both = functional.rms_norm(made[:, :, :turned], (self.head,), None, self._epsilon)
        both = both * self._heads
        both = torch.addcmul(both * cosine, both.roll(self.head // 2, -1), sine)
        return both[:, :, : self._queries], both[:, :, self._queries :], made[:, :, turned:]

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """(b · t, heads · head). The queries that share a key are lines of one small matrix."""
        b, t = query.shape[:2]
        each = self._queries // self._groups
        grouped = query.view(b, t, self._groups, each, self.head).permute(0, 2, 3, 1, 4)
        lines = grouped.reshape(b, self._groups, each * t, self.head)
        masks = mask[:, None, None].expand(b, 1, each, t, -1).reshape(b, 1, each * t, -1)
        made = functional.scaled_dot_product_attention(lines, keys, values, attn_mask=masks)
        made = made.view(b, self._groups, each, t, self.head).permute(0, 3, 1, 2, 4)
        return made.reshape(b * t, -1)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        x = _added(x, attended, self._out)
        gate, up = functional.linear(self._between(x), self._up).chunk(2, -1)
        return _added(x, self._act(gate) * up, self._down)


def _norm(module: Any) -> Callable[[Tensor], Tensor]:
    """An RMS norm of the package, which is six kernels, in one."""
    weight, epsilon = module.weight, float(module.variance_epsilon)
    return lambda x: functional.rms_norm(x, weight.shape, weight, epsilon)


def _joined(parts: tuple[Any, ...]) -> tuple[Tensor, Tensor | None]:
    """The weights and biases of linear layers, one below the other."""
    weight = torch.cat([part.weight.data for part in parts])
    sizes = [part.out_features for part in parts]
    for part, view in zip(parts, weight.split(sizes), strict=True):
        part.weight.data = view
    if parts[0].bias is None:
        return weight, None
    return weight, torch.cat([part.bias.data for part in parts])


def _added(x: Tensor, y: Tensor, linear: Any) -> Tensor:
    """``x + linear(y)``, in one kernel."""
    made = torch.addmm(x, y, linear.weight.T)
    return made if linear.bias is None else made + linear.bias
