"""Finding and loading a Qwen3-TTS model directory. Heavy imports only inside ``load``."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.engines.onnx import model_file, unreadable
from pipeline.errors import EngineError, WeightsError

log = logging.getLogger("reachy_voice.tts")


@dataclass(frozen=True, slots=True)
class Place:
    """Where and in which numbers it runs: ``cpu``, ``cuda:0``..., ``mps``; ``fp32`` or ``bf16``."""

    device: str
    precision: str


def check_directory(directory: Path) -> None:
    """Raise ``WeightsError`` unless it holds a Qwen3-TTS model with voices of its own. Cheap."""
    for name in ("model.safetensors", "speech_tokenizer/model.safetensors"):
        model_file(directory, name)
    path = model_file(directory, "config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        found = str(config.get("model_type")), str(config.get("tts_model_type"))
    except (ValueError, AttributeError) as error:
        raise unreadable(path, error) from error
    if found[0] != "qwen3_tts":
        raise WeightsError(
            f"{directory} is no Qwen3-TTS model",
            why=f"its config.json says {found[0]}",
            fix="Set tts.weights or tts.model_dir to a Qwen3-TTS CustomVoice model",
        )
    if found[1] != "custom_voice":
        raise WeightsError(
            f"The Qwen3-TTS model in {directory} has no voices of its own",
            why=f"it is of the type {found[1]}",
            fix="Use a CustomVoice model, such as Qwen3-TTS-12Hz-1.7B-CustomVoice",
        )


def place(device: str, precision: str) -> Place:
    """What ``auto`` means on this machine. Raises ``EngineError`` for a device that it lacks."""
    _offline()
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    kind, _, index = device.partition(":")
    lacks_gpu = kind == "cuda" and int(index or 0) >= gpus
    if lacks_gpu or (kind == "mps" and not torch.backends.mps.is_available()):
        raise EngineError(
            f"There is no device for tts.device {device!r}",
            why=f"torch {torch.__version__} finds {gpus} GPUs of NVIDIA",
            fix="Set tts.device to cpu, or install a driver and a torch that fit (see doctor)",
        )
    if device == "auto":
        device = "cuda:0" if gpus else "cpu"
    elif device == "cuda":
        device = "cuda:0"
    if precision == "auto":
        precision = "bf16" if _computes_bf16(device) else "fp32"
    return Place(device, precision)


def _computes_bf16(device: str) -> bool:
    import torch

    if device.startswith("cuda"):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    able = torch.cpu.get_capabilities() if device == "cpu" else {}
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def load(directory: Path, where: Place, threads: int) -> Any:
    """A ``qwen_tts.Qwen3TTSModel``. ``threads``: on a CPU. Raises ``WeightsError``."""
    import torch

    if where.device == "cpu":
        torch.set_num_threads(threads)
    from qwen_tts import Qwen3TTSModel

    numbers = torch.bfloat16 if where.precision == "bf16" else torch.float32
    try:
        model = Qwen3TTSModel.from_pretrained(
            str(directory), device_map=where.device, dtype=numbers
        )
    except Exception as error:  # transformers raises many kinds
        raise unreadable(directory, f"{type(error).__name__}: {error}") from error
    # Else it says for each clause that it does this.
    talker = model.model.talker
    talker.generation_config.pad_token_id = talker.config.codec_eos_token_id
    # Its pieces are joined sample by sample: rounded to bf16, each would be another sound.
    model.model.speech_tokenizer.model.decoder.float()
    return model


def _offline() -> None:
    """Before torch and transformers are imported: nothing is looked up in the network, and threads
    that wait do not spin on cores that other engines need. Both are read once."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # They tell of defaults, and of a program that these models never use.
    logging.getLogger("qwen_tts").setLevel(logging.WARNING)
    logging.getLogger("sox").disabled = True
