"""Language models as GGUF files, in this process, through llama.cpp.

One set of weights and one context serve all conversations. Each conversation has its own KV
sequence, prompts are read in slices, and a prefix shared with an earlier prompt is not re-read.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from pipeline.engines.contract import LlmSession
from pipeline.engines.llm.kv_cache import KvCache
from pipeline.engines.llm.llama_api import library
from pipeline.engines.llm.llama_context import ContextShape, LlamaContext
from pipeline.engines.llm.llama_files import model_path, projector_path
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.llama_options import KvType, LlamaCppOptions
from pipeline.engines.llm.llama_session import LlamaSession, prompt_limit
from pipeline.engines.llm.prompts import Prompts
from pipeline.engines.llm.run import SharedParts
from pipeline.engines.llm.saved_prefixes import SavedPrefixes
from pipeline.engines.llm.vision import VisionProjector
from pipeline.engines.registry import EngineSpec, Kind
from pipeline.errors import EngineError
from pipeline.messages import LlmRequest, Message, Sampling
from pipeline.work import NEVER

__all__ = ["SPEC", "LlamaCpp", "LlamaCppOptions", "build"]

log = logging.getLogger("reachy_voice.llm")

_CPU_SLICE_TOKENS = 64
"""As fast as 256 on one core (SmolLM2-135M, AVX-512: 198 against 200 tokens/s over 3,072 tokens),
and aborting a slice wastes little."""
_GPU_SLICE_TOKENS = 512
"""A GPU needs long slices to stay busy. It cannot be aborted, but a slice takes only some 10 ms."""
_PICTURE_TOKENS = 256
"""Tokens of a picture for Gemma 3, which has one picture size and reads it in one pass."""
_BLOCK = 32
"""Numbers that share one scale in llama.cpp's q8_0 and q4_0; a head must hold whole blocks."""


class LlamaCpp:
    """An ``Llm`` on one GGUF."""

    def __init__(self, parts: SharedParts) -> None:
        self._parts = parts
        self.context_tokens = parts.context.tokens

    def open(self) -> LlmSession:
        """A conversation. Costs nothing until it is used."""
        return LlamaSession(self._parts)


def build(options: LlamaCppOptions, weights: Path | None) -> LlamaCpp:
    """Load the model and warm it up. Raises ``WeightsError``, ``EngineError``."""
    path = model_path(options, weights)
    projector = projector_path(options.mmproj, weights) if options.mmproj else None
    if options.gpu_layers and not library().llama_supports_gpu_offload():
        log.warning(
            "llm.gpu_layers is %s, but this llama.cpp finds no GPU, or was built without GPUs: "
            "the model runs on the CPU, slowly. Run reachy-voice doctor for details",
            options.gpu_layers,
        )
        none = {"gpu_layers": 0, "main_gpu": 0, "split_mode": "layer", "tensor_split": None}
        options = options.model_copy(update=none)
    model = Model(path, options)
    shape = _shape(options, model)
    if options.context_tokens > model.trained_tokens:
        log.warning(
            "%s was trained for %s tokens: one conversation cannot be longer. llm.context_tokens "
            "(%s) is shared by all conversations",
            *(path.name, model.trained_tokens, options.context_tokens),
        )
    context = LlamaContext(model, shape)
    cache = KvCache(context, options.sequences)
    vision = _vision(options, projector, model, shape) if projector else None
    most_tokens = prompt_limit(context.tokens)
    prompts = Prompts(model, options.template_arguments, most_tokens, vision, options.examples)
    store = _store(options, model, shape)
    engine = LlamaCpp(SharedParts(model, prompts, context, cache, store, scratch=options.sequences))
    _warm_up(engine)
    return engine


def _shape(options: LlamaCppOptions, model: Model) -> ContextShape:
    on_gpu = options.gpu_layers != 0
    slice_tokens = _GPU_SLICE_TOKENS if on_gpu else _CPU_SLICE_TOKENS
    flash = options.flash_attention
    if flash is None and options.kv_type == "q4_0":
        flash = True
    # Some families read a picture in one pass.
    picture_tokens = max(options.image_tokens, _PICTURE_TOKENS) if options.mmproj else 0
    return ContextShape(
        # ``sequences``: one extra, to which a prefix is copied before it is saved.
        cells=options.context_tokens,
        sequences=options.sequences + 1,
        slice_tokens=slice_tokens,
        threads=options.threads or max(1, _cores() - 1),
        kv_type=_kv_type(options.kv_type, model),
        flash=False if flash is None and not on_gpu else flash,
        batch_tokens=max(slice_tokens, picture_tokens),
        swa_full=options.swa_full,
    )


def _vision(
    options: LlamaCppOptions, path: Path, model: Model, shape: ContextShape
) -> VisionProjector:
    """Raises ``WeightsError``, ``EngineError``."""
    return VisionProjector(
        path,
        model,
        threads=shape.threads,
        on_gpu=options.gpu_layers != 0,
        most_tokens=options.image_tokens,
        room_tokens=shape.batch_tokens,
    )


def _kv_type(kv_type: KvType | None, model: Model) -> KvType:
    """Raises ``EngineError`` if the model's heads do not divide into blocks."""
    if kv_type and not _fits(kv_type, model):
        raise EngineError(
            f"The context of {model.path.name} cannot be kept as {kv_type}",
            why=f"its attention heads have {min(model.head_sizes)} numbers, and {_BLOCK} share one "
            "scale",
            fix="Set llm.kv_type to f16, or to null",
        )
    return kv_type or ("q8_0" if _fits("q8_0", model) else "f16")


def _fits(kv_type: KvType, model: Model) -> bool:
    return kv_type == "f16" or not any(size % _BLOCK for size in model.head_sizes)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # respects container limits; not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _store(options: LlamaCppOptions, model: Model, shape: ContextShape) -> SavedPrefixes | None:
    if options.saved_prefix_dir is None or options.saved_prefix_mb == 0:
        return None
    identity = model.identity + f"{shape.kv_type} {shape.flash} {shape.swa_full}".encode()
    return SavedPrefixes(options.saved_prefix_dir, options.saved_prefix_mb * 2**20, identity)


def _warm_up(engine: LlamaCpp) -> None:
    """Touch every part once, so that the first reply is as fast as any other."""
    session = engine.open()
    messages = [Message("user", "Hello")]
    for _ in session.reply(LlmRequest(messages, sampling=Sampling(max_tokens=2)), NEVER):
        pass
    session.close()


SPEC = EngineSpec(
    name="llama-cpp",
    kind=Kind.LLM,
    options=LlamaCppOptions,
    build=build,
    summary="GGUF models in this process, on the CPU or a GPU (llama.cpp)",
    extra="embedded",
    modules=("llama_cpp", "jinja2", "llguidance"),
    run_in="thread",
)
