"""Finds the GGUF files that the options of ``llama-cpp`` name."""

from __future__ import annotations

from pathlib import Path

from pipeline.engines.llm.llama_options import LlamaCppOptions
from pipeline.errors import WeightsError


def model_path(options: LlamaCppOptions, weights: Path | None) -> Path:
    """The language model's file, or its first part. Raises ``WeightsError``."""
    if options.model_file and Path(options.model_file).is_absolute():
        return Path(options.model_file)
    paths = sorted(weights.glob("*.gguf")) if weights else []
    if options.model_file:
        paths = [path for path in paths if path.name == options.model_file]
    else:
        paths = [path for path in paths if not _is_projector(path.name, options)]
    if not paths:
        pattern = options.model_file or "*.gguf"
        raise WeightsError(
            "The language model is missing",
            why=f"there is no {pattern} in {weights}" if weights else "llm.weights is not set",
            fix="Run: reachy-voice models pull, or set llm.model_file to the path of a GGUF",
        )
    if len(paths) > 1 and "-00001-of-" not in paths[0].name:
        names = ", ".join(path.name for path in paths)
        raise WeightsError(
            "It is not clear which language model to load",
            why=f"{weights} has {names}",
            fix="Set llm.model_file to one of them",
        )
    return paths[0]


def projector_path(name: str, weights: Path | None) -> Path:
    """Path of the file that llm.mmproj names. Raises ``WeightsError``."""
    path = Path(name) if Path(name).is_absolute() or weights is None else weights / name
    if path.is_absolute() and path.is_file():
        return path
    raise WeightsError(
        "The file of llm.mmproj is missing",
        why=f"there is no {path}",
        fix="Run: reachy-voice models pull, or set llm.mmproj to the path of a GGUF, or to null",
    )


def _is_projector(name: str, options: LlamaCppOptions) -> bool:
    """Whether the file lets a model see pictures (llama.cpp's name for such a file is mmproj)."""
    return name == options.mmproj or name.startswith("mmproj")
