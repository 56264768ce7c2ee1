"""The tiny Parakeet of the tests (``tests/support/tiny_models/parakeet.py``) and speech that it
knows."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.stt.parakeet import Parakeet, ParakeetOptions, build
from tests.support.tiny_models.parakeet import (
    FILE,
    PHRASES,
    PIECES,
    TINY,
    espeak,
    new_model,
    save,
    tokenizer,
)

needs_nemo = pytest.mark.skipif(
    importlib.util.find_spec("nemo") is None,
    reason="NeMo is absent; run: script/test --workstation",
)

GAP = np.zeros(LISTEN_RATE * 4 // 10, dtype=np.int16)


def options(**changed: Any) -> ParakeetOptions:
    """Options of an engine on the tiny model: partials, float32."""
    return ParakeetOptions.model_validate(
        {"weights": None, "model_file": str(FILE), "partials": True, "precision": "fp32"} | changed
    )


@cache
def engine(**changed: Any) -> Parakeet:
    """Built once for each set of options."""
    return build(options(**changed), None)


@cache
def reference() -> Any:
    """The same model, run by NeMo itself."""
    from nemo.collections.asr.models import ASRModel

    return ASRModel.restore_from(str(FILE), map_location="cpu").eval()


def random_model(folder: Path) -> Path:
    """A file of the same kind with random weights."""
    model = new_model(tokenizer(folder, PHRASES * 20, PIECES), TINY)
    save(model, folder / "other.nemo")
    return folder / "other.nemo"


@cache
def say(phrase: str, voice: str = "en-us", words_per_minute: int = 160) -> Pcm:
    """One of ``PHRASES`` by espeak-ng, at 16 kHz."""
    samples = espeak(phrase, voice, words_per_minute, 50)
    return (np.clip(samples, -1, 1) * 32767).astype(np.int16)


def talk(*phrases: str, voice: str = "en-us+m3") -> tuple[Pcm, str]:
    """Phrases with pauses around them, and the text."""
    pieces = [GAP, *(part for phrase in phrases for part in (say(phrase, voice), GAP))]
    return np.concatenate(pieces), " ".join(phrases)
