"""Valid settings that will not do what was meant: files and wishes that the weights lack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from app.models.catalogue import Catalogue
from app.settings.model import Settings
from pipeline.engines.registry import Kind

FILES = ("model_file", "mmproj")
"""Options that name a file beside the others of the weights, or anywhere by its whole path."""


def choice_warnings(settings: Settings, catalogue: Catalogue) -> Iterator[str]:
    """One line for each, with what to do; nothing where the catalogue does not know the weights."""
    for kind in Kind:
        yield from _absent_files(settings, kind, catalogue)
    tts = settings.tts
    weights = str(getattr(tts, "weights", None) or "")
    # The engine asks the model itself, which is not loaded here.
    if getattr(tts, "instruct", "") and tts.engine == "qwen3-tts" and "0.6b" in weights:
        yield (
            f"tts.instruct does nothing with {weights}, which takes no instructions: set "
            "tts.weights: qwen3-tts-1.7b-customvoice (2 GB more of the GPU's memory)"
        )


def _absent_files(settings: Settings, kind: Kind, catalogue: Catalogue) -> Iterator[str]:
    options = settings.engine(kind)
    weights = getattr(options, "weights", None)
    entry = catalogue.entries.get(weights) if weights else None
    if entry is None:
        return
    names = [file.local_name for file in entry.files]
    for key in FILES:
        name = getattr(options, key, None)
        if name and not Path(name).is_absolute() and name not in names:
            yield (
                f"{kind}.{key} is {name!r}, which {weights} does not have: loading will fail. It "
                f"has {', '.join(names)}; set it to one of them, to a whole path, or to null"
            )
