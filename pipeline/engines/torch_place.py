"""Which device torch runs an engine on, and with what precision. Imports torch only when needed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from pipeline.errors import EngineError


@dataclass(frozen=True, slots=True)
class TorchPlace:
    device: str
    """``cpu``, ``cuda:0``..., ``mps``."""
    precision: str
    """``fp32`` or ``bf16``."""

    @property
    def numbers(self) -> Any:
        """The ``torch.dtype``."""
        import torch

        return torch.bfloat16 if self.precision == "bf16" else torch.float32


def place(kind: str, device: str, precision: str, threads: int) -> TorchPlace:
    """Resolve ``auto`` on this machine. ``kind``: the engine's section of the settings.
    ``threads``: CPU threads. Raises ``EngineError`` for a device that the machine lacks."""
    # Idle OpenMP threads must not spin on cores that others need. Read when OpenMP loads.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    name, _, index = device.partition(":")
    lacks_gpu = name == "cuda" and int(index or 0) >= gpus
    if lacks_gpu or (name == "mps" and not torch.backends.mps.is_available()):
        raise EngineError(
            f"There is no device for {kind}.device {device!r}",
            why=f"torch {torch.__version__} finds {gpus} NVIDIA GPUs",
            fix=f"Set {kind}.device to cpu, or install a matching driver and torch (see doctor)",
        )
    if device == "auto":
        device = "cuda:0" if gpus else "cpu"
    elif device == "cuda":
        device = "cuda:0"
    if device == "cpu":
        torch.set_num_threads(threads)
    if precision == "auto":
        precision = "bf16" if _computes_bf16(device) else "fp32"
    return TorchPlace(device, precision)


def _computes_bf16(device: str) -> bool:
    import torch

    if device.startswith("cuda"):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    able = torch.cpu.get_capabilities() if device == "cpu" else {}
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))
