"""The section ``llm`` of the YAML for the engine ``llama-cpp``."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pipeline.engines.registry import EngineOptions

KvType = Literal["f16", "q8_0", "q4_0"]


class LoraAdapter(BaseModel):
    """What a model has learnt on top of its weights: a LoRA adapter, as a GGUF."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    path: Path
    scale: float = Field(default=1.0, ge=-10, le=10)
    """How much of it is added to the weights: 0.5 is half."""
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """Its digest, checked whenever it is loaded; null: not checked."""


class LlamaCppOptions(EngineOptions):
    retired: ClassVar = ("lookup_tokens", "batch_tokens")

    engine: Literal["llama-cpp"] = "llama-cpp"
    weights: str | None = "smollm2-135m-instruct"
    """Catalogue entry with a GGUF; null if ``model_file`` is a whole path."""
    model_file: str | None = None
    """Which ``*.gguf``, if the weights have several; or the path of any GGUF."""
    updates: str | None = None
    """Folder or URL with updates of the weights (docs/updates.md), used while people talk."""
    adapters: tuple[LoraAdapter, ...] = ()
    """LoRA adapters for these weights, all in use at once."""
    mmproj: str | None = None
    """The GGUF that lets the model see pictures (its name mostly begins with mmproj): a file in the
    weights, or a path. null: the model does not see pictures."""
    image_tokens: int = Field(default=512, ge=16, le=4096)
    """Most tokens per picture, for models that see large pictures in more detail. Higher is slower
    and leaves less room for words."""
    context_tokens: int = Field(default=8192, ge=512, le=2**24)
    """KV cells of all conversations together, which also limits each prompt and answer. A single
    conversation cannot exceed the length that the model was trained for."""
    threads: int | None = Field(default=None, ge=1, le=512)
    """CPU threads; null: one fewer than cores. llama.cpp takes at most 512 (``GGML_MAX_N_THREADS``
    in ggml.h)."""
    gpu_layers: int = Field(default=0, ge=-1)
    """Layers on the GPU; -1: all."""
    main_gpu: int = Field(default=0, ge=0)
    """The GPU to use if ``split_mode`` is none, counted from 0."""
    split_mode: Literal["none", "layer", "row"] = "layer"
    """How several GPUs share the model: not at all, by layers, or by rows of each matrix."""
    tensor_split: tuple[float, ...] | None = None
    """How much each GPU takes: ``[3, 1]`` gives the first one three quarters. null: by memory."""
    sequences: int = Field(default=8, ge=1, le=64)
    """Conversations kept in the cache at once; more can be served, but are re-read."""
    flash_attention: bool | None = None
    """null: only on a GPU (on a CPU it takes twice the time, measured at 2,500 tokens), or if
    ``kv_type`` needs it."""
    kv_type: KvType | None = None
    """``q8_0`` halves the memory of keys, and with flash attention of values too. ``q4_0`` quarters
    it, is less exact, and needs flash attention. null: ``q8_0`` if the model's heads allow it,
    else ``f16``."""
    swa_full: bool = True
    """Keep the cells of layers with a sliding window (Gemma) for the whole context. false: only for
    the window, in a fraction of the memory; but then after an interruption, or with several
    conversations, a whole prompt may have to be read again."""
    requantize: bool = True
    """Convert small Q4_1 weights to Q8_0 at startup: twice the speed for some memory."""
    template_arguments: dict[str, bool | int | float | str] = Field(
        default={"enable_thinking": False}
    )
    """Further variables for the model's chat template. With ``enable_thinking: false``, a thought
    that the template always begins is closed at once."""
    examples: tuple[tuple[str, str], ...] = ()
    """Example turns, each a user message and a good answer, placed between the instructions and the
    conversation: a tiny model imitates better than it obeys. They belong to ``weights``."""
    saved_prefix_mb: int = Field(default=1024, ge=0)
    """Disk space for saved states of instructions and tools; 0 saves nothing."""
    saved_prefix_dir: Path | None = None
    """Directory for saved states; null: in the cache directory."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.kv_type == "q4_0" and self.flash_attention is False:
            raise ValueError(
                "kv_type q4_0 needs flash attention: set flash_attention to true or null, "
                "or kv_type to q8_0"
            )
        if self.tensor_split is not None and self.gpu_layers == 0:
            raise ValueError("tensor_split is for GPUs: also set gpu_layers (-1: all layers)")
        if self.tensor_split is not None and not _is_split(self.tensor_split):
            raise ValueError("tensor_split takes numbers of at least 0, one of them above 0")
        return self


def _is_split(parts: tuple[float, ...]) -> bool:
    return all(part >= 0 for part in parts) and any(parts)
