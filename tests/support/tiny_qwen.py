"""The tiny Qwen3-TTS of the tests (``tests/support/tiny_models/qwen3_tts.py``), made once for all
tests."""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio import EMPTY, Pcm
from pipeline.engines.tts.qwen3_tts import Qwen3Tts, Qwen3TtsOptions, build
from tests.support.tiny_models.qwen3_tts import make

needs_qwen = pytest.mark.skipif(
    importlib.util.find_spec("qwen_tts") is None,
    reason="qwen-tts is absent; run: script/test --workstation",
)

TEXT = "Hello there, how are you?"


@cache
def directory(size: str = "1b7") -> Path:
    path = Path(tempfile.mkdtemp(prefix="tiny-qwen-"))
    atexit.register(shutil.rmtree, path)
    make(path, size)
    return path


def options(**changed: Any) -> Qwen3TtsOptions:
    """Options of an engine on the tiny model, in float32."""
    plain = {"weights": None, "model_dir": str(directory()), "precision": "fp32"}
    return Qwen3TtsOptions.model_validate(plain | changed)


@cache
def engine(**changed: Any) -> Qwen3Tts:
    """Built once for each set of options."""
    return build(options(**changed), None)


def joined(chunks: Iterable[Pcm | None]) -> Pcm:
    return np.concatenate((EMPTY, *(chunk for chunk in chunks if chunk is not None)))
