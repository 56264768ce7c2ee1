"""Qwen3-TTS through the official ``qwen_tts`` package, frame by frame.

The package only gives whole utterances. Here its ``generate_custom_voice`` runs in steps
(``qwen3_stepping``): a hook of the talker sees the codes of each frame as they are made, others
look before each layer whether to stop, and the codec is run on what is new. Hooks are put in once,
and know by the thread which clause they serve, so an urgent clause may come between two frames of
another one.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import Pcm, from_float
from pipeline.engines.onnx import unreadable
from pipeline.engines.torch_place import Place
from pipeline.engines.tts.qwen3_codes import FRAME_SAMPLES, CodeWatch, chunk_frames
from pipeline.engines.tts.qwen3_stepping import Stepped, current
from pipeline.work import CancelToken

LEFT_FRAMES = 12
"""Frames that the codec's convolutions see again before new ones. They reach back 10: with as many
the pieces are the whole, exactly, with 9 they are not (measured; kernels and strides are the real
model's). Its transformer, which reaches back 72 frames in each of its layers, sees all of the
clause each time. Cutting both to upstream's 25 frames changes 8 % of RMS on random weights
(reference, section 3)."""


@dataclass(frozen=True, slots=True)
class Clause:
    """What is to be said, in the model's own names. ``seed``: of the random numbers; ``None``:
    others each time. ``limit``: frames that it may have."""

    text: str
    voice: str
    language: str
    instruct: str
    limit: int
    seed: int | None


class _Finished(BaseException):
    """The talker is through; the package would now decode all of it once more."""

    def __init__(self, ended: bool) -> None:
        super().__init__()
        self.ended = ended


class Official:
    """One model. Not thread-safe; clauses may take turns."""

    def __init__(self, model: Any, place: Place, first_frames: int, most_frames: int) -> None:
        """``model``: a ``qwen_tts.Qwen3TTSModel`` that has voices."""
        import torch

        self._torch = torch
        self.model = model
        self._place = place
        self._first, self._most = first_frames, most_frames
        self._codec = model.model.speech_tokenizer.model.decoder
        self._end = int(model.model.config.talker_config.codec_eos_token_id)
        talker = model.model.talker
        self.layers = *talker.model.layers, *talker.code_predictor.model.layers
        self._put_hooks_in(talker)

    def say(self, clause: Clause, cancel: CancelToken) -> Generator[Pcm | None, None, None]:
        """int16 mono at 24 kHz; ``None`` after each frame that is not due yet.

        Raises ``Cancelled`` within a layer of the network, and ``NotSpeech``.
        """
        watch = CodeWatch(clause.limit)
        codes: list[Any] = []
        sent = 0
        steps: Stepped[Any] = Stepped(lambda: self._generate(clause), cancel)
        random = _Random(self._torch, self._place, clause)
        try:
            while (frame := self._next(steps, random, watch)) is not None:
                codes.append(frame)
                watch.take(int(frame[0, 0]))
                ready = len(codes) - watch.suspicious
                if ready - sent >= chunk_frames(sent, self._first, self._most):
                    yield self.decode(codes, sent, ready)
                    sent = ready
                else:
                    yield None
        finally:
            steps.close()
        if sent < len(codes):
            yield self.decode(codes, sent, len(codes))

    # -- frames

    def _next(self, steps: Stepped[Any], random: _Random, watch: CodeWatch) -> Any:
        """The codes of the next frame, (1, 16), or ``None`` at the end."""
        try:
            with random:
                return steps.next()
        except _Finished as finished:
            ended = finished.ended
        watch.finish(ended=ended)
        return None

    def _generate(self, clause: Clause) -> None:
        with self._torch.inference_mode():
            self.model.generate_custom_voice(
                clause.text,
                speaker=clause.voice,
                language=clause.language,
                instruct=clause.instruct or None,
                max_new_tokens=clause.limit,
            )

    def _put_hooks_in(self, talker: Any) -> None:
        talker.register_forward_hook(_give_frame)
        for layer in self.layers:
            layer.register_forward_pre_hook(_look)
        generate = talker.generate

        def generate_codes_only(*args: Any, **named: Any) -> Any:
            made = generate(*args, **named)
            if current() is None:
                return made
            raise _Finished(int(made.sequences[0, -1]) == self._end)

        talker.generate = generate_codes_only

    # -- samples

    def decode(self, codes: list[Any], start: int, end: int) -> Pcm:
        """The samples of frames ``start`` to ``end``: int16 at 24 kHz. ``codes``: (1, 16) each."""
        codec, seen = self._codec, max(0, start - LEFT_FRAMES)
        with self._torch.inference_mode():
            frames = self._torch.stack(codes[:end], dim=-1).clamp(min=0)  # (1, 16, frames)
            latent = codec.pre_conv(codec.quantizer.decode(frames)).transpose(1, 2)
            latent = codec.pre_transformer(inputs_embeds=latent).last_hidden_state
            made = latent[:, seen:].transpose(1, 2)
            for layer in (*chain.from_iterable(codec.upsample), *codec.decoder):
                made = layer(made)
            new = made[0, 0, (start - seen) * FRAME_SAMPLES :]
            samples: NDArray[np.float32] = new.float().cpu().numpy()
        return from_float(samples)


def _give_frame(module: Any, arguments: Any, output: Any) -> None:
    """Hook of the talker: each pass but the first gives the codes of the frame before it."""
    steps = current()
    if steps and (codes := output.hidden_states[-1]) is not None:
        steps.give(codes)


def _look(module: Any, arguments: Any) -> None:
    if steps := current():
        steps.look()


class _Random:
    """The random numbers of a clause that has a seed: the same, whoever else draws between its
    frames."""

    def __init__(self, torch: Any, place: Place, clause: Clause) -> None:
        self._torch = torch
        self._seed = clause.seed
        self._gpu = place.device if place.device.startswith("cuda") else ""
        self._state: Any = None

    def __enter__(self) -> None:
        if self._seed is None:
            return
        if self._state is None:
            self._torch.manual_seed(self._seed)
            return
        cpu, gpu = self._state
        self._torch.set_rng_state(cpu)
        if self._gpu:
            self._torch.cuda.set_rng_state(gpu, self._gpu)

    def __exit__(self, *error: object) -> None:
        if self._seed is not None:
            gpu = self._torch.cuda.get_rng_state(self._gpu) if self._gpu else None
            self._state = self._torch.get_rng_state(), gpu


def load(directory: Path, where: Place) -> Any:
    """A ``qwen_tts.Qwen3TTSModel``. Raises ``WeightsError``."""
    from qwen_tts import Qwen3TTSModel

    try:
        model = Qwen3TTSModel.from_pretrained(
            str(directory), device_map=where.device, dtype=where.numbers
        )
    except Exception as error:  # transformers raises many kinds
        raise unreadable(directory, f"{type(error).__name__}: {error}") from error
    # Else it says for each clause that it does this.
    talker = model.model.talker
    talker.generation_config.pad_token_id = talker.config.codec_eos_token_id
    # Its pieces are joined sample by sample: rounded to bf16, each would be another sound.
    model.model.speech_tokenizer.model.decoder.float()
    return model
