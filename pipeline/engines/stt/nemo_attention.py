"""Full and local attention on one set of weights of a NeMo FastConformer.

NeMo's ``change_attention_model`` copies every attention weight each time, in float32. Here the
second set of layers shares the parameters of the first, so a change is a matter of references.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class _Attention:
    """What an encoder has one of for each kind of attention."""

    kind: str
    context: list[int]
    positions: Any
    layers: Sequence[Any]


class Attention:
    """Chooses the attention of an encoder. The one it is loaded with is in use at first."""

    def __init__(self, encoder: Any, context_frames: int) -> None:
        """``context_frames``: how far local attention sees to each side."""
        self._encoder = encoder
        self._context_frames = context_frames
        self._max_lengths: dict[str, int] = {}
        self._full = _Attention(
            encoder.self_attention_model,
            encoder.att_context_size,
            encoder.pos_enc,
            [layer.self_attn for layer in encoder.layers],
        )
        self._local: _Attention | None = None

    @contextmanager
    def local(self) -> Iterator[None]:
        """Each frame sees only those near it: the cost grows with the length, not its square."""
        if self._local is None:
            self._local = self._make_local()
        self._use(self._local)
        try:
            yield
        finally:
            self._use(self._full)

    def _use(self, attention: _Attention) -> None:
        encoder = self._encoder
        self._max_lengths[encoder.self_attention_model] = encoder.max_audio_length
        encoder.self_attention_model = attention.kind
        encoder.att_context_size = attention.context
        encoder.pos_enc = attention.positions
        # The length that the position codes of this kind are made for.
        encoder.max_audio_length = self._max_lengths.get(attention.kind, encoder.pos_emb_max_len)
        for layer, module in zip(encoder.layers, attention.layers, strict=True):
            layer.self_attn = module
            layer.self_attention_model = attention.kind

    def _make_local(self) -> _Attention:
        import torch
        from nemo.collections.asr.parts.submodules.multi_head_attention import (
            LocalAttRelPositionalEncoding,
            RelPositionMultiHeadAttentionLongformer,
        )

        encoder = self._encoder
        context = [self._context_frames, self._context_frames]
        weight = next(encoder.parameters())
        positions = LocalAttRelPositionalEncoding(
            att_context_size=context,
            d_model=encoder.d_model,
            dropout_rate=0.0,
            max_len=encoder.pos_emb_max_len,
            xscale=encoder.xscale,
        )
        positions.extend_pe(encoder.pos_emb_max_len, weight.device, weight.dtype)
        layers = []
        for full in self._full.layers:
            with torch.device("meta"):
                local = RelPositionMultiHeadAttentionLongformer(
                    n_head=full.h,
                    n_feat=full.h * full.d_k,
                    dropout_rate=0.0,
                    pos_bias_u=None,
                    pos_bias_v=None,
                    att_context_size=context,
                    use_bias=full.linear_q.bias is not None,
                )
            for name, child in full.named_children():
                setattr(local, name, child)
            for name, parameter in full.named_parameters(recurse=False):
                setattr(local, name, parameter)
            layers.append(local.eval())
        return _Attention("rel_pos_local_attn", context, positions.eval(), layers)
