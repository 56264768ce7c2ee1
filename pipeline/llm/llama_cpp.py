"""Language models as GGUF files, in this process, through llama.cpp.

One set of weights and one context serve all conversations. Each has a KV sequence of its own,
prompts are read in slices, and whatever a prompt shares with an earlier one is not read again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.engines import (
    EngineOptions,
    EngineSpec,
    Kind,
    LlmSession,
    Message,
    Sampling,
    ToolChoice,
)
from pipeline.errors import WeightsError
from pipeline.llm.kv_cache import KvCache
from pipeline.llm.llama_context import Context, ContextShape, KvType
from pipeline.llm.llama_model import Model
from pipeline.llm.llama_session import LlamaSession, Parts, prompt_limit
from pipeline.llm.prompts import Prompts
from pipeline.llm.run import Shared
from pipeline.llm.saved_prefixes import SavedPrefixes

_CPU_SLICE_TOKENS = 64
"""As fast as 256 on one core (SmolLM2-135M, AVX-512: 198 and 200 tokens/s over 3,072 tokens), and
little is lost when a slice is aborted."""
_GPU_SLICE_TOKENS = 512
"""A GPU needs long slices to be busy, and cannot be aborted: one takes some 10 ms."""
_Q8_0_BLOCK = 32
"""Numbers that share one scale in llama.cpp's q8_0; a head must hold whole blocks."""


class LlamaCppOptions(EngineOptions):
    engine: Literal["llama-cpp"] = "llama-cpp"
    weights: str | None = "smollm2-135m-instruct"
    """Catalogue entry with a GGUF; null if ``model_file`` is a whole path."""
    model_file: str | None = None
    """Which ``*.gguf``, where the weights have several; or the absolute path of your own."""
    context_tokens: int = Field(default=8192, ge=512)
    """KV cells of all conversations together, and so the longest prompt and answer."""
    threads: int | None = Field(default=None, ge=1)
    """CPU threads; null: one less than there are cores."""
    gpu_layers: int = Field(default=0, ge=-1)
    """Layers on the GPU; -1: all."""
    sequences: int = Field(default=8, ge=1, le=64)
    """Conversations whose tokens are kept at the same time; more are served, but re-read."""
    batch_tokens: int | None = Field(default=None, ge=8, le=4096)
    """Prompt tokens per slice; null: 64 on a CPU, 512 on a GPU."""
    flash_attention: bool | None = None
    """null: only on a GPU (on a CPU it takes twice the time, measured at 2,500 tokens)."""
    kv_type: KvType | None = None
    """``q8_0`` halves the cells of keys, and with flash attention those of values too; null: that
    where the model's heads allow it, else ``f16``."""
    lookup_tokens: int = Field(default=0, ge=0, le=16)
    """Tokens that are guessed from what was said before, and checked in one pass; 0: none."""
    requantize: bool = True
    """Convert small Q4_1 weights to Q8_0 at start: twice the speed, for some memory."""
    template_arguments: dict[str, bool | int | float | str] = Field(
        default={"enable_thinking": False}
    )
    """Further variables for the model's chat template."""
    saved_prefix_mb: int = Field(default=1024, ge=0)
    """Disk space for instructions and tools that were read before; 0: save none."""
    saved_prefix_dir: Path | None = None
    """Where; null: in the cache directory."""


class LlamaCpp:
    """An ``Llm`` on one GGUF."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.context_tokens = parts.shared.context.tokens

    def open(self) -> LlmSession:
        """A conversation. Costs nothing until it is used."""
        return LlamaSession(self._parts)


def build(options: LlamaCppOptions, weights: Path | None) -> LlamaCpp:
    """Load the model and compute a first token. Raises ``WeightsError``, ``EngineError``."""
    path = _model_path(options, weights)
    model = Model(path, options.gpu_layers, requantize=options.requantize)
    # One sequence more than conversations, to copy prefixes through when they are saved.
    shape = _shape(options, model)
    context = Context(model, shape)
    cache = KvCache(context, options.sequences)
    shared = Shared(context, cache, _saved(options, model, shape), scratch=options.sequences)
    prompts = Prompts(model, options.template_arguments, prompt_limit(context.tokens))
    engine = LlamaCpp(Parts(model, prompts, shared, options.lookup_tokens))
    _warm_up(engine)
    return engine


def _shape(options: LlamaCppOptions, model: Model) -> ContextShape:
    on_gpu = options.gpu_layers != 0
    slice_tokens = options.batch_tokens or (_GPU_SLICE_TOKENS if on_gpu else _CPU_SLICE_TOKENS)
    flash = options.flash_attention
    return ContextShape(
        cells=options.context_tokens,
        sequences=options.sequences + 1,
        slice_tokens=slice_tokens,
        threads=options.threads or max(1, _cores() - 1),
        kv_type=options.kv_type or ("f16" if model.head_size % _Q8_0_BLOCK else "q8_0"),
        flash=False if flash is None and not on_gpu else flash,
        guesses=options.lookup_tokens,
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # what a container may use; not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _saved(options: LlamaCppOptions, model: Model, shape: ContextShape) -> SavedPrefixes | None:
    if options.saved_prefix_dir is None or options.saved_prefix_mb == 0:
        return None
    identity = model.identity + f"{shape.kv_type} {shape.flash}".encode()
    return SavedPrefixes(options.saved_prefix_dir, options.saved_prefix_mb * 2**20, identity)


def _model_path(options: LlamaCppOptions, weights: Path | None) -> Path:
    if options.model_file and Path(options.model_file).is_absolute():
        return Path(options.model_file)
    found = sorted(weights.glob("*.gguf")) if weights else []
    if options.model_file:
        found = [path for path in found if path.name == options.model_file]
    if not found:
        wanted = options.model_file or "*.gguf"
        raise WeightsError(
            "The language model is missing",
            why=f"there is no {wanted} in {weights}" if weights else "llm.weights names none",
            fix="Run: reachy-voice models pull, or set llm.model_file to the path of a GGUF",
        )
    if len(found) > 1 and "-00001-of-" not in found[0].name:
        names = ", ".join(path.name for path in found)
        raise WeightsError(
            "It is not clear which language model to load",
            why=f"{weights} has {names}",
            fix="Set llm.model_file to one of them",
        )
    return found[0]


def _warm_up(engine: LlamaCpp) -> None:
    """Touch every part once, so that the first reply is as fast as any other."""
    session = engine.open()
    messages = [Message("user", "Hello")]
    for _ in session.reply(messages, [], ToolChoice(), Sampling(max_tokens=2), _Never()):
        pass
    session.close()


class _Never:
    """A ``CancelToken`` that nobody pulls."""

    cancelled = False
    preempted = False


SPEC = EngineSpec(
    name="llama-cpp",
    kind=Kind.LLM,
    options=LlamaCppOptions,
    build=build,
    summary="GGUF models in this process, on the CPU or a GPU (llama.cpp)",
    extra="embedded",
    modules=("llama_cpp", "jinja2"),
    run_in="thread",
)
