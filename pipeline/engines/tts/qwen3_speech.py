"""Speech from Qwen3-TTS: codes frame by frame (``qwen3_talker``), and what they sound like.

The first 80 ms are sent as soon as they are made. Clauses of several conversations are made
together; an urgent one waits for the frame that is being made, not for a clause.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.audio import Pcm, from_float
from pipeline.engines.onnx import unreadable
from pipeline.engines.torch_place import Place
from pipeline.engines.tts.qwen3_codes import FRAME_SAMPLES, Clause, CodeWatch, chunk_frames
from pipeline.engines.tts.qwen3_talker import Row, Talker, looking
from pipeline.work import Cancelled, CancelToken

_LEFT_FRAMES = 12
"""Frames that the codec's convolutions see again before new ones. They reach back 10: with as many
the pieces are the whole, exactly, with 9 they are not (measured; kernels and strides are the real
model's)."""
_LEFT_CODES = 2
"""Codes that its first convolution, of 3, sees again."""


class Speaker:
    """One model. Not thread-safe; clauses may take turns."""

    def __init__(self, package: Any, place: Place, first_frames: int, most_frames: int) -> None:
        """``package``: a ``qwen_tts.Qwen3TTSModel`` that has voices."""
        self.package = package
        self.talker = Talker(package, together=place.device.startswith("cuda"))
        self._codec = package.model.speech_tokenizer.model.decoder
        self._first, self._most = first_frames, most_frames

    def say(self, clause: Clause, cancel: CancelToken) -> Generator[Pcm | None, None, None]:
        """int16 mono at 24 kHz; ``None`` after each frame that is not due yet.

        Raises ``Cancelled`` within a layer of the network, or a frame where graphs make them, and
        ``NotSpeech``.
        """
        while (row := self._begin(clause, cancel)) is None:
            yield None
        sound, watch = Decoder(self._codec), CodeWatch(row.limit)
        codes: list[Tensor] = []
        sent = 0
        try:
            while (frame := self._next(row, cancel)) is not None:
                first, all_of_it = frame
                codes.append(all_of_it)
                watch.take(first)
                ready = len(codes) - watch.suspicious
                if ready - sent >= chunk_frames(sent, self._first, self._most):
                    yield sound.decode(codes[sent:ready])
                    sent = ready
                else:
                    yield None
            watch.finish(ended=row.ended)
        finally:
            self.talker.close(row)
        if sent < len(codes):
            yield sound.decode(codes[sent:])

    def _begin(self, clause: Clause, cancel: CancelToken) -> Row | None:
        """A row for a clause; if none is free, the others are made, so that one ends."""
        with looking(self.talker, _look(cancel)):
            row = self.talker.begin(clause)
            if row is None:
                self.talker.advance(None)
        return row

    def _next(self, row: Row, cancel: CancelToken) -> tuple[int, Tensor] | None:
        """The next frame of a row; ``None`` at its end."""
        look = _look(cancel)
        look()
        if not row.codes:
            if row.closed:
                return None
            with looking(self.talker, look):
                self.talker.advance(row)
        return row.codes.popleft()


class Decoder:
    """Codes of one clause to sound, piece by piece: exactly what all of them at once become."""

    def __init__(self, codec: Any) -> None:
        """``codec``: the decoder of the package's speech tokenizer."""
        from transformers import DynamicCache

        self._codec = codec
        self._cache = DynamicCache(config=codec.pre_transformer.config)
        self._codes: list[Tensor] = []
        self._latent: Tensor | None = None

    def decode(self, codes: list[Tensor]) -> Pcm:
        """The samples of the next frames, int16 at 24 kHz. ``codes``: (1, 16) each."""
        with torch.inference_mode():
            left = len(self._codes)
            self._codes += codes
            frames = torch.stack(self._codes, dim=-1).clamp(min=0)  # (1, 16, frames)
            self._codes = self._codes[-_LEFT_CODES:]
            new = self._codec.pre_conv(self._codec.quantizer.decode(frames))[..., left:]
            new = self._codec.pre_transformer(
                inputs_embeds=new.transpose(1, 2), past_key_values=self._cache, use_cache=True
            ).last_hidden_state.transpose(1, 2)
            seen = 0 if self._latent is None else self._latent.shape[-1]
            made = new if self._latent is None else torch.cat((self._latent, new), -1)
            self._latent = made[..., -_LEFT_FRAMES:]
            for layer in (*chain.from_iterable(self._codec.upsample), *self._codec.decoder):
                made = layer(made)
            samples: NDArray[np.float32] = made[0, 0, seen * FRAME_SAMPLES :].float().cpu().numpy()
        return from_float(samples)


def _look(cancel: CancelToken) -> Callable[[], None]:
    def look() -> None:
        if cancel.cancelled:
            raise Cancelled

    return look


def load(directory: Path, where: Place) -> Any:
    """A ``qwen_tts.Qwen3TTSModel``. Raises ``WeightsError``."""
    from qwen_tts import Qwen3TTSModel

    try:
        model = Qwen3TTSModel.from_pretrained(
            str(directory), device_map=where.device, dtype=where.numbers
        )
    except Exception as error:  # transformers raises many kinds
        raise unreadable(directory, f"{type(error).__name__}: {error}") from error
    # Its pieces are joined sample by sample: rounded to bf16, each would be another sound.
    model.model.speech_tokenizer.model.decoder.float()
    return model
