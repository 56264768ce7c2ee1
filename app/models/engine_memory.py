"""How much memory a choice of engines takes, on the machine and on each GPU.

The only place that computes it, for doctor, setup, the profiles' headers and fitness, and replacing
engines. MB are 10^6 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.models.catalogue import Catalogue, Entry
from app.models.gpu import GPU_SHARE, Gpu
from app.settings.model import Settings
from pipeline.engines.llm.llama_options import LlamaCppOptions
from pipeline.engines.registry import EngineOptions, EngineSpec, engine_spec

GpuKind = Literal["nvidia", "apple"]

STACK_EXTRAS = frozenset({"nemo", "qwen"})
"""Extras of engines that come with torch."""
SERVER_MB = 224
"""The server without its models: interpreter, numpy, onnxruntime; with them, ``cpu`` took 844."""
TORCH_WORKER_MB, CUDA_WORKER_MB = 800, 2400
"""Main memory of a process that imports NeMo or qwen-tts, without CUDA (735, 590 MB measured) and
with it (2,190, 2,440 MB on a machine with an H100, including CUDA's libraries)."""
CONTEXT_MB = 400
"""GPU memory for each process that uses CUDA. An estimate for cards of 8 to 24 GB: it grows with
the GPU's multiprocessors. On an H100 llama.cpp took 700 in addition to weights and context, and
torch with NeMo and a tiny model 990."""
MOST_VALUES, BYTES_FOR_VALUE = 100_000, 20_000
"""Values that a user's own model keeps per token of context, estimated from its file size. In the
catalogue: 57,000 (1.1 GB) and 74,000 (2.5 GB and more)."""
CONTEXT_BYTES = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""Bytes per value in llama.cpp; quantised values come in blocks of 32 with a two-byte scale."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something that takes memory: weights (by their name in the catalogue), context, a process."""

    name: str
    on_gpu: bool
    memory_mb: int
    licence: str = ""
    gpu: int | None = 0
    """Its number in CUDA's order; ``None``: llama.cpp spreads it over all GPUs."""


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """What one GPU must hold."""

    number: int
    gpu: Gpu | None
    """``None`` if no GPU has this number."""
    needed_mb: int
    spread: bool = False
    """All GPUs together, because one alone is too small."""

    @property
    def memory_mb(self) -> int:
        """0 if unknown or shared with the machine."""
        return self.gpu.memory_mb if self.gpu else 0


@dataclass(frozen=True, slots=True)
class Demand:
    """The memory that a choice of engines takes."""

    parts: tuple[Part, ...]

    @property
    def memory_mb(self) -> int:
        """Main memory, if the GPU has its own memory."""
        return sum(part.memory_mb for part in self.parts if not part.on_gpu)

    @property
    def gpu_mb(self) -> int:
        """GPU memory, all GPUs together."""
        return sum(part.memory_mb for part in self.parts if part.on_gpu)

    def main_mb(self, gpus: Sequence[Gpu], kind: GpuKind | None) -> int:
        """Main memory on a machine whose GPU may share it."""
        shared = kind == "apple" or (gpus and not gpus[0].memory_mb)
        return self.memory_mb + (self.gpu_mb if shared else 0)

    def loads(self, gpus: Sequence[Gpu]) -> tuple[GpuLoad, ...]:
        """The load of each GPU in use. ``gpus``: in CUDA's order.

        The part that llama.cpp would spread counts on the first GPU if it fits there, because
        ``split_mode: none`` would keep it there. Otherwise it counts on all GPUs together.
        """
        by_gpu: dict[int, int] = {}
        for part in self.parts:
            if part.on_gpu and part.gpu is not None:
                by_gpu[part.gpu] = by_gpu.get(part.gpu, 0) + part.memory_mb
        spread_mb = sum(p.memory_mb for p in self.parts if p.on_gpu and p.gpu is None)
        on_first = by_gpu.get(0, 0) + spread_mb
        whole_mb = sum(gpu.memory_mb for gpu in gpus)
        loads = []
        if spread_mb and len(gpus) > 1 and on_first > GPU_SHARE * gpus[0].memory_mb > 0:
            all_mb = spread_mb + sum(by_gpu.values())
            together = Gpu(f"{len(gpus)} GPUs", whole_mb, gpus[0].driver, gpus[0].capability)
            loads = [GpuLoad(0, together, all_mb, spread=True)]
        elif on_first:
            by_gpu[0] = on_first
        return (
            *loads,
            *(
                GpuLoad(number, gpus[number] if number < len(gpus) else None, needed_mb)
                for number, needed_mb in sorted(by_gpu.items())
            ),
        )


def demand(settings: Settings, catalogue: Catalogue, gpu: GpuKind | None = "nvidia") -> Demand:
    """The memory of all engines that run here, and of the server. Raises ``WeightsError``.

    ``gpu``: which kind there is; without one, everything is in main memory."""
    parts: list[Part] = []
    on_way_mb = 0
    for kind, options in settings.engines():
        spec = engine_spec(kind, options.engine)
        if isinstance(spec, EngineSpec):
            engine = EngineMemory(spec, options, catalogue, gpu)
            parts += engine.parts()
            on_way_mb = max(on_way_mb, engine.on_way_mb)
    if on_way_mb:
        parts.append(Part("weights on their way there", False, on_way_mb))
    return Demand((*parts, Part("the server itself", False, SERVER_MB)))


class EngineMemory:
    """The memory of one local engine."""

    def __init__(
        self, spec: EngineSpec, options: EngineOptions, catalogue: Catalogue, gpu: GpuKind | None
    ) -> None:
        self.spec = spec
        self._options = options
        self._llama = options if isinstance(options, LlamaCppOptions) else None
        self.gpu = gpu
        name = options.weights_name
        self.entry: Entry | None = catalogue[name] if name else None
        self.name = self._own.name if self._own else name or spec.name

    @property
    def in_torch(self) -> bool:
        return self.spec.extra in STACK_EXTRAS

    @property
    def wants_gpu(self) -> bool:
        """Whether its options name a GPU. Third-party engines without them count as on the CPU."""
        return self._device not in ("", "cpu") or self._layers != 0

    @property
    def only_cuda(self) -> bool:
        """Whether it refuses to run without an NVIDIA GPU."""
        return self._device.startswith("cuda")

    @property
    def device_setting(self) -> str:
        return f"{self.spec.kind}.device"

    @property
    def on_gpu(self) -> bool:
        """Whether it uses this machine's kind of GPU. torch uses Apple's only if ``device`` is
        ``mps``."""
        if self.gpu == "apple":
            return self._layers != 0 or self._device == "mps"
        return self.gpu == "nvidia" and (
            self._layers != 0 or self._device not in ("", "cpu", "mps")
        )

    @property
    def _device(self) -> str:
        return str(getattr(self._options, "device", ""))

    @property
    def _layers(self) -> int:
        return int(getattr(self._options, "gpu_layers", 0))

    @property
    def number(self) -> int | None:
        """The GPU's number in CUDA's order; ``None``: llama.cpp uses all GPUs."""
        if self._llama and self._layers:
            return self._llama.main_gpu if self._llama.split_mode == "none" else None
        _, _, number = self._device.partition(":")
        return int(number) if number.isdigit() else 0

    @property
    def weights_mb(self) -> int:
        """Size of the files."""
        if self._own is not None:
            return _bytes_of(self._own) // 10**6
        return self.entry.size // 10**6 if self.entry is not None else 0

    @property
    def _own(self) -> Path | None:
        """A file or directory that the catalogue does not know; it wins over ``weights``."""
        options = self._options
        own = getattr(options, "model_file", None) or getattr(options, "model_dir", None)
        return Path(own) if own and (self.entry is None or Path(own).is_absolute()) else None

    @property
    def on_way_mb(self) -> int:
        """Weights that torch reads into main memory before they go to the GPU, usually one engine
        at a time. llama.cpp maps its files, so the system can reclaim that memory."""
        return self.weights_mb if self.on_gpu and self.in_torch else 0

    def parts(self) -> Iterator[Part]:
        licence = self.entry.licence if self.entry and self._own is None else ""
        yield self._part(self.name, self._model_mb, licence)
        if projector_mb := self._projector_bytes // 10**6:
            yield self._part("mmproj", projector_mb)
        if self._llama and (values := self._context_values):
            megabytes = context_mb(self._llama, values, self.on_gpu)
            yield self._part(f"context, {self._llama.context_tokens:,} tokens", megabytes)
        cuda = self.on_gpu and self.gpu == "nvidia"
        if self.in_torch:
            megabytes = CUDA_WORKER_MB if cuda else TORCH_WORKER_MB
            yield Part(f"the process of {self.spec.name}", False, megabytes)
        if cuda:
            yield self._part(f"CUDA for {self.spec.name}", CONTEXT_MB)

    def _part(self, name: str, megabytes: int, licence: str = "") -> Part:
        return Part(name, self.on_gpu, megabytes, licence, self.number if self.on_gpu else 0)

    @property
    def _model_mb(self) -> int:
        """The model's memory by the catalogue, or else the size of its files."""
        if self._own is not None or self.entry is None:
            return self.weights_mb
        return (self.on_gpu and self.entry.gpu_memory_mb) or self.entry.memory_mb

    @property
    def _projector_bytes(self) -> int:
        """Size of a user's own projector; the catalogue's memory figures include the others."""
        name = self._llama.mmproj if self._llama else None
        return _bytes_of(Path(name)) if name and Path(name).is_absolute() else 0

    @property
    def _context_values(self) -> int:
        if self._own is not None:
            return min(MOST_VALUES, _bytes_of(self._own) // BYTES_FOR_VALUE)
        return self.entry.context_values if self.entry is not None else 0


def context_mb(options: LlamaCppOptions, values: int, on_gpu: bool) -> int:
    """Memory for the context of a language model. ``values``: numbers per token.

    Half of them are keys; the other half stays f16 without flash attention.
    """
    kept_as = options.kv_type or "q8_0"
    flash = on_gpu if options.flash_attention is None else options.flash_attention
    key, value = CONTEXT_BYTES[kept_as], CONTEXT_BYTES[kept_as if flash else "f16"]
    return round(options.context_tokens * values / 2 * (key + value) / 1e6)


def _bytes_of(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
