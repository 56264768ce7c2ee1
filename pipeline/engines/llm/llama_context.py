"""One llama.cpp context: the KV cells of several sequences over one set of weights."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.llm.abort import AbortSwitch
from pipeline.engines.llm.llama_adapters import use_adapters
from pipeline.engines.llm.llama_api import library, multimodal, recent_problems
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.llama_options import KvType
from pipeline.engines.llm.vision import Media
from pipeline.errors import EngineError
from pipeline.work import CancelToken

_GGML_TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}
"""``enum ggml_type``."""
_PREEMPTIBLE_TOKENS = 8
"""Shorter computations end before preemption would pay off."""


class DecodeOutcome(Enum):
    """How a computation ended. Only ``DONE`` leaves its tokens in the cells."""

    DONE = auto()
    ABORTED = auto()
    FULL = auto()
    """Too few cells are free."""


@dataclass(frozen=True, slots=True)
class ContextShape:
    cells: int
    """KV cells, shared by all sequences; also limits the prompt, in tokens."""
    sequences: int
    slice_tokens: int
    """The most that one ``decode`` takes."""
    batch_tokens: int
    """The most that one computation holds: a slice, or a whole picture."""
    threads: int
    kv_type: KvType
    flash: bool | None
    """``None`` lets llama.cpp choose."""
    swa_full: bool = True
    """Whether layers with a sliding window keep all cells. If not, only the newest few tokens can
    be removed."""


class LlamaContext:
    """KV cells and computations on them. Not thread-safe, except for aborting.

    ``forgets_partly`` is False for models with recurrent state: their sequences can grow or be
    dropped, but not be shortened or copied in part.
    """

    def __init__(self, model: Model, shape: ContextShape) -> None:
        self._api = library()
        self._model = model  # must outlive the C context
        self._handle = self._open(model, shape)
        use_adapters(self._handle, model.adapters)
        self._memory = self._api.llama_get_memory(self._handle)
        self._batch = _Batch(shape.slice_tokens)
        self._batch_tokens = shape.batch_tokens
        self._abort = AbortSwitch(self._handle)
        self.slice_tokens = shape.slice_tokens
        self.forgets_partly = model.forgets_partly
        self._window_tokens = model.window_tokens
        self.tokens = min(int(self._api.llama_n_ctx(self._handle)), model.trained_tokens)
        """The maximum length of one sequence."""

    def _open(self, model: Model, shape: ContextShape) -> Any:
        recent_problems()
        handle = self._api.llama_init_from_model(model.handle, _parameters(self._api, shape))
        if not handle:
            raise EngineError(
                "The language model's context cannot be created",
                why=recent_problems() or "llama.cpp refused it, perhaps for lack of memory",
                fix="Lower llm.context_tokens or llm.gpu_layers, or set llm.kv_type to q8_0",
            )
        self._free = weakref.finalize(self, _free_context, self._api, handle, model)
        self._free.atexit = False
        return handle

    # --- computing

    def decode(
        self,
        tokens: Sequence[int],
        position: int,
        sequence: int,
        *,
        logits: bool,
        by: CancelToken,
        preemptible: bool = True,
        probe: int | None = None,
    ) -> DecodeOutcome:
        """Compute ``tokens`` of one sequence, which holds ``position`` tokens so far.

        ``logits``: keep those of the last token; ``probe``: also keep those of the token at this
        index. ``by`` aborts the computation when cancelled and, if ``preemptible``, when preempted
        (only on a CPU: llama.cpp does not check on a GPU, where slices are short).
        """
        self._batch.fill(tokens, position, sequence, logits, probe)
        preemptible &= self.forgets_partly and len(tokens) > _PREEMPTIBLE_TOKENS
        with self._abort.watching(by, preemptible=preemptible):
            result = self._api.llama_decode(self._handle, self._batch.c_batch)
        return self._outcome(result, position, sequence)

    def decode_media(
        self, media: Media, position: int, sequence: int, *, by: CancelToken, preemptible: bool
    ) -> DecodeOutcome:
        """Like ``decode``, for a part of a picture, which takes ``media.positions`` positions.

        Raises ``EngineError``, and ``VisionFailed`` if the projector failed.
        """
        api = multimodal()
        data = media.embeddings.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        end = ctypes.c_int32()
        no_callback = api.mtmd_helper_post_decode_callback()
        preemptible &= self.forgets_partly
        with self._abort.watching(by, preemptible=preemptible):
            result = api.mtmd_helper_decode_image_chunk(
                *(media.projector.handle, self._handle, media.chunk, data, position, sequence),
                *(self._batch_tokens, ctypes.byref(end), no_callback, None),
            )
        return self._outcome(result, position, sequence)

    def _outcome(self, result: int, position: int, sequence: int) -> DecodeOutcome:
        if result == 0:
            return DecodeOutcome.DONE
        self.remove(sequence, position)
        if result in (1, 2):
            return DecodeOutcome.FULL if result == 1 else DecodeOutcome.ABORTED
        why = recent_problems() or f"llama_decode returned {result}"
        raise EngineError("The language model failed during a computation", why=why)

    def logits(self, at: int = -1) -> NDArray[np.float32]:
        """Logits of the last token of the last ``decode``, or of the token at index ``at`` (its
        probe). A view, valid until the next ``decode``. Float32, shape (vocabulary,)."""
        pointer = self._api.llama_get_logits_ith(self._handle, at)
        return np.ctypeslib.as_array(pointer, shape=(self._model.vocab_tokens,))

    # --- cells

    def remove(self, sequence: int, start: int) -> bool:
        """Free a sequence's cells from position ``start`` on. Returns whether that worked."""
        return bool(self._api.llama_memory_seq_rm(self._memory, sequence, start, -1))

    def copy(self, source: int, target: int, count: int) -> None:
        """Let ``target`` share the cells of the first ``count`` tokens of ``source``."""
        self._api.llama_memory_seq_cp(self._memory, source, target, 0, count)

    def reaches(self, sequence: int, count: int) -> bool:
        """Whether a sequence can continue after its first ``count`` tokens.

        Layers with a sliding window may have lost the cells that this needs: llama.cpp does not
        save them, and may reuse them even with ``swa_full``. It reports the first position that is
        intact in all layers.
        """
        if not self._window_tokens or not count:
            return True
        first = self._api.llama_memory_seq_pos_min(self._memory, sequence)
        return bool(0 <= first <= max(0, count + 1 - self._window_tokens))

    def state(self, sequence: int) -> memoryview:
        """A copy of the contents of a sequence's cells."""
        size = self._api.llama_state_seq_get_size(self._handle, sequence)
        buffer = (ctypes.c_uint8 * size)()
        length = self._api.llama_state_seq_get_data(self._handle, buffer, size, sequence)
        return memoryview(buffer)[:length]

    def restore(self, sequence: int, state: bytearray) -> bool:
        """Load a ``state`` into an empty sequence. False if there is no room or it is not from this
        model."""
        buffer = (ctypes.c_uint8 * len(state)).from_buffer(state)
        size = len(state)
        return bool(self._api.llama_state_seq_set_data(self._handle, buffer, size, sequence))


class _Batch:
    """Arrays that ``llama_decode`` reads tokens from."""

    def __init__(self, room: int) -> None:
        api = library()
        self.c_batch = api.llama_batch_init(room, 0, 1)
        weakref.finalize(self, api.llama_batch_free, self.c_batch).atexit = False
        self._tokens = np.ctypeslib.as_array(self.c_batch.token, (room,))
        self._positions = np.ctypeslib.as_array(self.c_batch.pos, (room,))
        self._logits = np.ctypeslib.as_array(self.c_batch.logits, (room,))
        for i in range(room):
            self.c_batch.n_seq_id[i] = 1

    def fill(
        self,
        tokens: Sequence[int],
        position: int,
        sequence: int,
        logits: bool,
        probe: int | None,
    ) -> None:
        count = len(tokens)
        self.c_batch.n_tokens = count
        self._tokens[:count] = tokens
        self._positions[:count] = np.arange(position, position + count)
        self._logits[:count] = 0
        self._logits[count - 1] = logits
        if probe is not None:
            self._logits[probe] = 1
        for i in range(count):
            self.c_batch.seq_id[i][0] = sequence


def _parameters(api: Any, shape: ContextShape) -> Any:
    params = api.llama_context_default_params()
    params.n_ctx = shape.cells
    params.n_batch = params.n_ubatch = shape.batch_tokens
    params.n_seq_max = shape.sequences
    # The default reserves logits for a whole batch: 100 MB that are never read.
    params.n_outputs_max = max(shape.sequences, 2)
    params.n_threads = params.n_threads_batch = shape.threads
    params.kv_unified = True
    params.swa_full = shape.swa_full
    params.flash_attn_type = -1 if shape.flash is None else int(shape.flash)
    params.type_k = _GGML_TYPES[shape.kv_type]
    # llama.cpp can read quantized values (unlike keys) only with flash attention.
    params.type_v = _GGML_TYPES["f16" if shape.flash is False else shape.kv_type]
    params.no_perf = True
    return params


def _free_context(api: Any, handle: Any, _model: Model) -> None:
    """Free a context. The reference to ``_model`` makes sure that the weights are freed later."""
    api.llama_free(handle)
