"""What one choice of engines takes: of the machine's memory, and of each GPU's.

The only place that counts it: doctor, setup, the profiles' headers and fitness, and whether there
is room for one more engine. MB are 10^6 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from app.models.catalogue import Catalogue, Entry
from app.models.gpu import GPU_SHARE, Gpu
from app.settings.model import Settings
from pipeline.engines.registry import EngineOptions, EngineSpec, engine_spec

GpuKind = Literal["nvidia", "apple"]

STACK_EXTRAS = frozenset({"nemo", "qwen"})
"""Extras of engines that come with torch."""
SERVER_MB = 200
"""What the server takes besides its models: the interpreter, numpy and onnxruntime."""
TORCH_WORKER_MB = 800
"""Of the machine's memory, in a process that imports NeMo or qwen-tts (735, 590 MB measured)."""
CONTEXT_MB = 400
"""Of the GPU's memory, for each process that uses CUDA. An estimate, not measured here."""
MOST_VALUES, BYTES_FOR_VALUE = 100_000, 20_000
"""Numbers that a model of one's own keeps for each token of context, guessed by its file: of the
catalogue's, 57,000 (1.1 GB) and 74,000 (2.5 GB and more)."""
CONTEXT_BYTES = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""Of a number in llama.cpp: the smaller ones are blocks of 32 with a scale of two bytes."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something that takes memory: weights (by their name in the catalogue), context, a process.

    ``gpu``: which one, as CUDA counts them; ``None``: llama.cpp spreads it over all there are.
    """

    name: str
    on_gpu: bool
    memory_mb: int
    licence: str = ""
    gpu: int | None = 0


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """What one GPU has to hold. ``gpu`` is ``None`` where there is none of this number; ``spread``:
    all GPUs together, because one alone is too small."""

    number: int
    gpu: Gpu | None
    needed_mb: int
    spread: bool = False

    @property
    def memory_mb(self) -> int:
        """0 where it is not known, or the machine's."""
        return self.gpu.memory_mb if self.gpu else 0


@dataclass(frozen=True, slots=True)
class Demand:
    """What one choice of engines takes."""

    parts: tuple[Part, ...]

    @property
    def memory_mb(self) -> int:
        """Main memory, beside a GPU with memory of its own."""
        return sum(part.memory_mb for part in self.parts if not part.on_gpu)

    @property
    def gpu_mb(self) -> int:
        """Memory of the GPU, or of all together."""
        return sum(part.memory_mb for part in self.parts if part.on_gpu)

    def main_mb(self, gpus: Sequence[Gpu], kind: GpuKind | None) -> int:
        """Main memory on a machine whose GPU may share it."""
        shared = kind == "apple" or (gpus and not gpus[0].memory_mb)
        return self.memory_mb + (self.gpu_mb if shared else 0)

    def loads(self, gpus: Sequence[Gpu]) -> tuple[GpuLoad, ...]:
        """What falls on each GPU that is used. ``gpus``: in CUDA's order.

        What llama.cpp would spread over several is counted on the first where that holds it all: it
        can be told to stay there, ``split_mode: none``. Else it is counted on all of them together.
        """
        fixed: dict[int, int] = {}
        for part in self.parts:
            if part.on_gpu and part.gpu is not None:
                fixed[part.gpu] = fixed.get(part.gpu, 0) + part.memory_mb
        spread_mb = sum(p.memory_mb for p in self.parts if p.on_gpu and p.gpu is None)
        on_first = fixed.get(0, 0) + spread_mb
        whole_mb = sum(gpu.memory_mb for gpu in gpus)
        loads = []
        if spread_mb and len(gpus) > 1 and on_first > GPU_SHARE * gpus[0].memory_mb > 0:
            all_mb = spread_mb + sum(fixed.values())
            together = Gpu(f"{len(gpus)} GPUs", whole_mb, gpus[0].driver, gpus[0].capability)
            loads = [GpuLoad(0, together, all_mb, spread=True)]
        elif on_first:
            fixed[0] = on_first
        return (
            *loads,
            *(
                GpuLoad(number, gpus[number] if number < len(gpus) else None, needed_mb)
                for number, needed_mb in sorted(fixed.items())
            ),
        )


def demand(settings: Settings, catalogue: Catalogue, gpu: GpuKind | None = "nvidia") -> Demand:
    """Of all engines that run here, and the server. Raises ``WeightsError``.

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
    """One engine that runs here."""

    def __init__(
        self, spec: EngineSpec, options: EngineOptions, catalogue: Catalogue, gpu: GpuKind | None
    ) -> None:
        self.spec = spec
        self.options: Any = options
        self.gpu = gpu
        name = getattr(options, "weights", None)
        self.entry: Entry | None = catalogue[name] if name else None
        self.name = self._own.name if self._own else name or spec.name

    @property
    def in_torch(self) -> bool:
        return self.spec.extra in STACK_EXTRAS

    @property
    def wants_gpu(self) -> bool:
        """Engines of others say it the same way, or are taken to run on the CPU."""
        return self._device not in ("", "cpu") or self._layers != 0

    @property
    def only_cuda(self) -> bool:
        """Whether it refuses to run without one of NVIDIA's."""
        return self._device.startswith("cuda")

    @property
    def device_setting(self) -> str:
        return f"{self.spec.kind}.device"

    @property
    def on_gpu(self) -> bool:
        """Whether it goes to a GPU of the kind that is here. Apple's is used by llama.cpp, and by
        torch where ``device`` says ``mps``."""
        if self.gpu == "apple":
            return self._layers != 0 or self._device == "mps"
        return self.gpu == "nvidia" and (
            self._layers != 0 or self._device not in ("", "cpu", "mps")
        )

    @property
    def _device(self) -> str:
        return str(getattr(self.options, "device", ""))

    @property
    def _layers(self) -> int:
        return int(getattr(self.options, "gpu_layers", 0))

    @property
    def number(self) -> int | None:
        """Which GPU, as CUDA counts; ``None``: llama.cpp spreads itself over all."""
        if self._layers and not self.in_torch:
            alone = getattr(self.options, "split_mode", "none") == "none"
            return int(getattr(self.options, "main_gpu", 0)) if alone else None
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
        own = getattr(self.options, "model_file", None) or getattr(self.options, "model_dir", None)
        return Path(own) if own and (self.entry is None or Path(own).is_absolute()) else None

    @property
    def on_way_mb(self) -> int:
        """What torch reads into main memory before it is on the GPU: one engine's at a time, as a
        rule. llama.cpp maps its files, which takes none that the system cannot have back."""
        return self.weights_mb if self.on_gpu and self.in_torch else 0

    def parts(self) -> Iterator[Part]:
        licence = self.entry.licence if self.entry and self._own is None else ""
        yield self._part(self.name, self._model_mb, licence)
        if projector_mb := self._projector_bytes // 10**6:
            yield self._part("mmproj", projector_mb)
        if values := self._context_values:
            tokens = self.options.context_tokens
            megabytes = context_mb(self.options, values, self.on_gpu)
            yield self._part(f"context, {tokens:,} tokens", megabytes)
        if self.in_torch:
            yield Part(f"the process of {self.spec.name}", False, TORCH_WORKER_MB)
        if self.on_gpu and self.gpu == "nvidia":
            yield self._part(f"CUDA for {self.spec.name}", CONTEXT_MB)

    def _part(self, name: str, megabytes: int, licence: str = "") -> Part:
        return Part(name, self.on_gpu, megabytes, licence, self.number if self.on_gpu else 0)

    @property
    def _model_mb(self) -> int:
        """By the catalogue; of files that it does not know, their size."""
        if self._own is not None or self.entry is None:
            return self.weights_mb
        return self.entry.memory_mb

    @property
    def _projector_bytes(self) -> int:
        """Of a file of one's own; the catalogue has counted the others."""
        name = getattr(self.options, "mmproj", None)
        return _bytes_of(Path(name)) if name and Path(name).is_absolute() else 0

    @property
    def _context_values(self) -> int:
        if not hasattr(self.options, "context_tokens"):
            return 0
        if self._own is not None:
            return min(MOST_VALUES, _bytes_of(self._own) // BYTES_FOR_VALUE)
        return self.entry.context_values if self.entry is not None else 0


def context_mb(options: Any, values: int, on_gpu: bool) -> int:
    """What a language model keeps of its context. ``values``: numbers for each token.

    Half of the numbers are keys; the other half stays f16 without flash attention.
    """
    kept_as = options.kv_type or "q8_0"
    flash = on_gpu if options.flash_attention is None else options.flash_attention
    key, value = CONTEXT_BYTES[kept_as], CONTEXT_BYTES[kept_as if flash else "f16"]
    tokens: int = options.context_tokens
    return round(tokens * values / 2 * (key + value) / 1e6)


def _bytes_of(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
