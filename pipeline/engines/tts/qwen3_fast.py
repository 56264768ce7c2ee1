"""Qwen3-TTS through ``faster_qwen3_tts``: the same model as CUDA graphs, some three times faster.

NOT YET RUN: it needs a CUDA GPU, and was written without one, after the source of
faster-qwen3-tts 0.5.4 (``FasterQwen3TTS.from_pretrained``, ``warmup`` and
``generate_custom_voice_streaming``). What to know of that:

- It gives samples and no codes, so only the sound is watched (``pipeline.speaking.clause_watch``).
- Its graphs have one key-value cache, so a clause that was begun is finished before the next one:
  an urgent clause waits for what is left of it.
- It looks whether to stop between chunks of two frames.
- ``qwen-tts-hf``, which it needs, is installed in the place of ``qwen-tts``: same import name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.audio import Pcm, from_float
from pipeline.engines.contract import NotSpeech
from pipeline.engines.onnx import unreadable
from pipeline.engines.torch_place import Place
from pipeline.engines.tts.qwen3_codes import FRAME_SAMPLES, FRAMES_PER_S, RATE
from pipeline.engines.tts.qwen3_official import Clause
from pipeline.errors import EngineError
from pipeline.work import Cancelled, CancelToken

_CHUNK_FRAMES = 2
_PROMPT_TOKENS = 100
"""Length of the prompt that the graphs are captured with; upstream's own value."""


class Fast:
    """One model. Not thread-safe; clauses are synthesised one after the other."""

    def __init__(self, model: Any) -> None:
        """``model``: a ``faster_qwen3_tts.FasterQwen3TTS``."""
        self._model = model
        self._finish: Callable[[], None] = _nothing
        """Synthesises the rest of the clause that was begun last: the next needs its cache."""

    def say(self, clause: Clause, cancel: CancelToken) -> Generator[Pcm | None, None, None]:
        """int16 mono at 24 kHz. Raises ``Cancelled`` and ``NotSpeech``."""
        self._finish()
        chunks = self._chunks(clause)
        made: deque[Pcm] = deque()

        def finish() -> None:
            while not cancel.cancelled and (pcm := next(chunks, None)) is not None:
                made.append(pcm)
            chunks.close()

        self._finish = finish
        frames = 0
        try:
            while True:
                if cancel.cancelled:
                    raise Cancelled
                pcm = made.popleft() if made else next(chunks, None)
                if pcm is None:
                    break
                frames += len(pcm) // FRAME_SAMPLES
                yield pcm
        finally:
            chunks.close()
        # Ended by the limit, or by the model in the very last frame, which is as odd.
        if frames >= clause.limit:
            raise NotSpeech("runaway", frames / FRAMES_PER_S)

    def _chunks(self, clause: Clause) -> Generator[Pcm, None, None]:
        if clause.seed is not None:
            import torch

            torch.manual_seed(clause.seed)
        made = self._model.generate_custom_voice_streaming(
            text=clause.text,
            speaker=clause.voice,
            language=clause.language,
            instruct=clause.instruct or None,
            max_new_tokens=clause.limit,
            chunk_size=_CHUNK_FRAMES,
        )
        for samples, rate, _ in made:
            if rate != RATE:
                raise EngineError(f"Qwen3-TTS gave {rate} Hz instead of {RATE}")
            yield from_float(np.asarray(samples, np.float32))


def _nothing() -> None:
    pass


def load_fast(directory: Path, where: Place) -> Any:
    """A ``FasterQwen3TTS`` with its graphs captured. Returns it as it is, so that it can be asked
    for voices (``.model``). Raises ``WeightsError``."""
    from faster_qwen3_tts import FasterQwen3TTS

    try:
        model = FasterQwen3TTS.from_pretrained(
            str(directory), device=where.device, dtype=where.numbers, local_files_only=True
        )
        model.warmup(prefill_len=_PROMPT_TOKENS)
    except Exception as error:  # transformers and torch raise many kinds
        raise unreadable(directory, f"{type(error).__name__}: {error}") from error
    return model
