"""Pictures for a language model, through llama.cpp's mtmd library and a second GGUF.

A picture becomes a few ordinary tokens (marks around it) and cells that match no token. Token lists
hold these cells as negative numbers derived from a digest of the picture, so that comparing prompts
token by token tells pictures apart.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import weakref
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.llm.llama_api import keep_log, library, multimodal, recent_problems
from pipeline.engines.llm.llama_model import Model, check_magic
from pipeline.engines.llm.pictures import data_of, pixels
from pipeline.errors import EngineError, WeightsError

log = logging.getLogger("reachy_voice.llm")

_MOST_PIXELS = 7680 * 4320
"""8K UHD. Scaling a picture takes eight bytes per pixel."""
_DIGEST_BYTES = 12
_MOST_CELLS = 2**20
"""Limit per picture, for numbering its cells."""
_IMAGE = 1
"""``enum mtmd_input_chunk_type``."""


class VisionFailed(EngineError):
    """The projector failed on a readable picture; later prompts say so."""


class Media:
    """One part of a picture."""

    def __init__(self, vision: VisionProjector, chunk: Any) -> None:
        api = multimodal()
        self.chunk = api.mtmd_input_chunk_copy(chunk)
        weakref.finalize(self, api.mtmd_input_chunk_free, self.chunk).atexit = False
        self.cells = int(api.mtmd_input_chunk_get_n_tokens(chunk))
        """How many KV cells it takes."""
        self.positions = int(api.mtmd_input_chunk_get_n_pos(chunk))
        """How many token positions it takes; fewer than cells if these are placed in two dimensions
        (M-RoPE)."""
        self.projector = vision
        self._job: Future[NDArray[np.float32]] | None = None

    def looked_at(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` for the embedding; whether it is ready. It is computed once,
        however many runs wait for it."""
        if self._job is None:
            self._job = self.projector.look(self)
        wait([self._job], timeout_s)
        return self._job.done()

    @property
    def embeddings(self) -> NDArray[np.float32]:
        """Valid once ``looked_at``. Shape (cells, inputs of the model). Raises ``VisionFailed``."""
        assert self._job
        return self._job.result()

    @property
    def failed(self) -> bool:
        """Whether the projector failed on it."""
        return self._job is not None and self._job.done() and self._job.exception() is not None


@dataclass(frozen=True, slots=True)
class Picture:
    tokens: tuple[int, ...]
    """Its tokens in a prompt."""
    media: Mapping[int, Media]
    """Its parts, by their first tokens."""

    @property
    def failed(self) -> bool:
        return any(part.failed for part in self.media.values())

    @property
    def more_cells(self) -> int:
        """How many more cells than tokens it takes."""
        return sum(part.cells - part.positions for part in self.media.values())


class VisionProjector:
    """The projector of one language model."""

    def __init__(
        self,
        path: Path,
        model: Model,
        *,
        threads: int,
        on_gpu: bool,
        most_tokens: int,
        room_tokens: int,
    ) -> None:
        """``most_tokens`` is the limit per picture, if the model family scales pictures;
        ``room_tokens`` is the most tokens per computation of the model. Raises ``WeightsError``,
        ``EngineError``."""
        check_magic(path)
        api = multimodal()
        keep_log(api.mtmd_helper_log_set)
        recent_problems()
        params = api.mtmd_context_params_default()
        params.use_gpu = on_gpu
        params.n_threads = threads
        params.print_timings = False
        params.image_max_tokens = most_tokens
        self.handle = api.mtmd_init_from_file(os.fsencode(path), model.handle, params)
        if not self.handle or not api.mtmd_support_vision(self.handle):
            raise WeightsError(
                f"The model cannot see with {path.name}",
                why=recent_problems() or "it does not support pictures",
                fix="Set llm.mmproj to the file that belongs to this model, or to null",
            )
        self._model = model  # must outlive the C object
        weakref.finalize(self, api.mtmd_free, self.handle).atexit = False
        self._inputs = int(library().llama_model_n_embd_inp(model.handle))
        self._executor = ThreadPoolExecutor(1, "llama-vision")
        # A part in progress keeps this object alive, so the thread is idle by then.
        weakref.finalize(self, self._executor.shutdown, wait=False).atexit = False
        self.needs_whole = bool(api.mtmd_decode_use_non_causal(self.handle, None))
        """Whether a picture must be read in one pass, because its cells also see later ones."""
        self._room_tokens = room_tokens

    def picture(self, url: str) -> Picture | None:
        """The picture in a data URL. If it cannot be read, log why and return ``None``."""
        data = data_of(url)
        size = pixels(data) if data else None
        if data is None or size is None:
            _leave_out("it is neither PNG nor JPEG")
            return None
        if size[0] * size[1] > _MOST_PIXELS:
            _leave_out(f"it has {size[0]} x {size[1]} pixels, more than {_MOST_PIXELS}")
            return None
        chunks = self._chunks(data)
        if chunks is None:
            _leave_out(recent_problems() or "it is broken")
            return None
        return self._assemble(chunks, data)

    def look(self, media: Media) -> Future[NDArray[np.float32]]:
        """Start embedding one part in a separate thread, which keeps ``media``, and so the C
        objects, alive until it is done."""
        return self._executor.submit(self._look, media)

    def _look(self, media: Media) -> NDArray[np.float32]:
        api = multimodal()
        recent_problems()
        if api.mtmd_encode_chunk(self.handle, media.chunk) != 0:
            raise VisionFailed("The model could not look at a picture", why=recent_problems())
        shape = (media.cells, self._inputs)
        return np.array(np.ctypeslib.as_array(api.mtmd_get_output_embd(self.handle), shape=shape))

    def _chunks(self, data: bytes) -> Any | None:
        api = multimodal()
        recent_problems()
        buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
        bitmap = api.mtmd_helper_bitmap_init_from_buf(self.handle, buffer, len(data), False)
        if not bitmap:
            return None
        marker = api.mtmd_default_marker()
        text = api.mtmd_input_text()
        text.text, text.text_len = marker, len(marker)
        text.add_special, text.parse_special = False, True
        chunks = api.mtmd_input_chunks_init()
        bitmaps = (ctypes.c_void_p * 1)(bitmap)
        result = api.mtmd_tokenize(self.handle, chunks, ctypes.byref(text), bitmaps, 1)
        api.mtmd_bitmap_free(bitmap)
        if result == 0:
            return chunks
        api.mtmd_input_chunks_free(chunks)
        return None

    def _assemble(self, chunks: Any, data: bytes) -> Picture | None:
        api = multimodal()
        digest = int.from_bytes(hashlib.sha256(data).digest()[:_DIGEST_BYTES])
        next_cell = -1 - digest * _MOST_CELLS
        tokens: list[int] = []
        media: dict[int, Media] = {}
        too_many = False
        for number in range(api.mtmd_input_chunks_size(chunks)):
            chunk = api.mtmd_input_chunks_get(chunks, number)
            if api.mtmd_input_chunk_get_type(chunk) == _IMAGE:
                part = Media(self, chunk)
                too_many |= self.needs_whole and part.cells > self._room_tokens
                media[next_cell] = part
                tokens += range(next_cell, next_cell - part.positions, -1)
                next_cell -= part.positions
            else:
                count = ctypes.c_size_t()
                text_tokens = api.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(count))
                # mtmd gives -1 for a mark that the vocabulary lacks.
                tokens += [token for token in text_tokens[: count.value] if token >= 0]
        api.mtmd_input_chunks_free(chunks)
        if too_many:
            _leave_out(f"it takes more than {self._room_tokens} cells at once")
            return None
        return Picture(tuple(tokens), media)


def _leave_out(why: str) -> None:
    log.warning("Leaving out a picture that cannot be read: %s", why)
