"""The decoder layers of Qwen3-TTS, for several clauses at once, with caches of a fixed size.

The layers of ``qwen_tts`` do one clause at a time and allocate their cache as it grows. This does
the same arithmetic on the same weights, in shapes that never change, so that a CUDA graph can
replay it. Imports torch: use it only where the engine runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

Rows: TypeAlias = slice | Tensor
"""Rows of a cache: a slice, or their numbers, (b,)."""


class Stack:
    """All layers of one model, including the final norm.

    Its cache has ``rows`` rows of ``positions`` positions each, or of the model's sliding window if
    that is shorter; the newest positions then replace the oldest.
    """

    def __init__(self, model: Any, rows: int, positions: int, look: Callable[[], None]) -> None:
        """``model``: the transformer of a talker, a code predictor or the codec. ``look``: called
        before each layer; an exception from it ends the pass."""
        config = model.config
        self._layers = [_Layer(layer) for layer in model.layers]
        self._norm = _norm(model.norm)
        self._look = look
        weight = self._layers[0].qkv
        self._length = min(positions, getattr(config, "sliding_window", None) or positions)
        shape = rows, config.num_key_value_heads, self._length, self._layers[0].head
        self._keys = [weight.new_zeros(shape) for _ in self._layers]
        self._values = [weight.new_zeros(shape) for _ in self._layers]
        self._numbers = torch.arange(rows, device=weight.device)
        self._places = torch.arange(self._length, device=weight.device)
        steps = torch.arange(positions, device=weight.device, dtype=torch.float32)
        turns = torch.outer(steps, model.rotary_emb.inv_freq.float().to(weight.device))
        scale = float(model.rotary_emb.attention_scaling)
        sine = turns.sin()
        self._cosine = (torch.cat((turns, turns), -1).cos() * scale).to(weight.dtype)
        self._sine = (torch.cat((-sine, sine), -1) * scale).to(weight.dtype)
        """Its first half is negative: ``roll`` then turns a vector as ``rotate_half`` does."""

    def forward(self, x: Tensor, rows: Rows, positions: Tensor) -> Tensor:
        """``x``: (b, t, hidden), for b rows of the cache; ``positions``: (b, t), with t > 1 only
        from position 0 on. Returns (b, t, hidden). Each position sees its row up to itself."""
        b, t, width = x.shape
        visible = self._places <= positions[..., None]
        mask = torch.zeros_like(visible, dtype=x.dtype).masked_fill_(~visible, float("-inf"))
        cosine, sine = self._cosine[positions, None], self._sine[positions, None]
        lines, places = self._numbers[rows][:, None], positions % self._length
        x = x.reshape(b * t, width)
        for layer, keys, values in zip(self._layers, self._keys, self._values, strict=True):
            self._look()
            query, key, value = layer.project(x, (b, t), cosine, sine)
            keys[lines, :, places] = key
            values[lines, :, places] = value
            x = layer.finish(x, layer.attend(query, keys[rows], values[rows], mask))
        return self._norm(x).view(b, t, width)


class _Layer:
    """One layer. Weights that multiply the same input are joined in one matrix; the package's own
    module gets views of it, so that they do not take memory twice."""

    def __init__(self, layer: Any) -> None:
        attention = layer.self_attn
        self.head = int(attention.head_dim)
        self._before = _norm(layer.input_layernorm)
        self._between = _norm(layer.post_attention_layernorm)
        self._act = layer.mlp.act_fn
        parts = attention.q_proj, attention.k_proj, attention.v_proj
        self.qkv, self._bias = _joined(parts)
        self._queries, self._groups = (part.out_features // self.head for part in parts[:2])
        self._heads: Tensor | None = None
        if hasattr(attention.q_norm, "weight"):
            self._epsilon = float(attention.q_norm.variance_epsilon)
            norms = (attention.q_norm, self._queries), (attention.k_norm, self._groups)
            self._heads = torch.cat([norm.weight.expand(n, -1) for norm, n in norms])
        self._out = _scaled(attention.o_proj, getattr(layer, "self_attn_layer_scale", None))
        self._up, _ = _joined((layer.mlp.gate_proj, layer.mlp.up_proj))
        self._down = _scaled(layer.mlp.down_proj, getattr(layer, "mlp_layer_scale", None))

    def project(
        self, x: Tensor, shape: tuple[int, int], cosine: Tensor, sine: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (b, t, heads, head) each; the first two are rotated to their
        positions."""
        rotary = self._queries + self._groups
        projection = functional.linear(self._before(x), self.qkv, self._bias)
        projection = projection.view(*shape, -1, self.head)
        both = projection[:, :, :rotary]
        if self._heads is not None:
            both = functional.rms_norm(both, (self.head,), None, self._epsilon) * self._heads
        both = torch.addcmul(both * cosine, both.roll(self.head // 2, -1), sine)
        return both[:, :, : self._queries], both[:, :, self._queries :], projection[:, :, rotary:]

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Attention, (b · t, heads · head). Queries that share a key are rows of one small
        matrix."""
        b, t = query.shape[:2]
        each = self._queries // self._groups
        groups = query.view(b, t, self._groups, each, self.head).permute(0, 2, 3, 1, 4)
        lines = groups.reshape(b, self._groups, each * t, self.head)
        masks = mask[:, None, None].expand(b, 1, each, t, -1).reshape(b, 1, each * t, -1)
        attention = functional.scaled_dot_product_attention(lines, keys, values, attn_mask=masks)
        attention = attention.view(b, self._groups, each, t, self.head).permute(0, 3, 1, 2, 4)
        return attention.reshape(b * t, -1)

    def finish(self, x: Tensor, attention: Tensor) -> Tensor:
        x = _added(x, attention, self._out)
        gate, up = functional.linear(self._between(x), self._up).chunk(2, -1)
        return _added(x, self._act(gate) * up, self._down)


def _norm(module: Any) -> Callable[[Tensor], Tensor]:
    """The package's RMS norm, in one kernel instead of six."""
    weight, epsilon = module.weight, float(module.variance_epsilon)
    return lambda x: functional.rms_norm(x, weight.shape, weight, epsilon)


def _joined(parts: tuple[Any, ...]) -> tuple[Tensor, Tensor | None]:
    """The weights and biases of linear layers, concatenated."""
    weight = torch.cat([part.weight.data for part in parts])
    sizes = [part.out_features for part in parts]
    for part, view in zip(parts, weight.split(sizes), strict=True):
        part.weight.data = view
    if parts[0].bias is None:
        return weight, None
    return weight, torch.cat([part.bias.data for part in parts])


def _scaled(linear: Any, scale: Any) -> Any:
    """A linear layer multiplied by the factors that follow it, which are set to 1."""
    if scale is not None:
        linear.weight.data = linear.weight.data * scale.scale.data[:, None]
        scale.scale.data.fill_(1.0)
    return linear


def _added(x: Tensor, y: Tensor, linear: Any) -> Tensor:
    """``x + linear(y)``, in one kernel."""
    product = torch.addmm(x, y, linear.weight.T)
    return product if linear.bias is None else product + linear.bias
