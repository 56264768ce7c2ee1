"""Parakeet's options and files; NeMo need not be installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.catalogue import Catalogue
from pipeline.engines.stt.nemo_streaming import ContextSize
from pipeline.engines.stt.parakeet import ParakeetOptions, _context, build
from pipeline.errors import WeightsError

pytestmark = pytest.mark.quick


def test_its_weights_are_in_the_catalogue() -> None:
    name = ParakeetOptions().weights
    assert name is not None
    entry = Catalogue.load()[name]
    assert entry.kind == "stt"
    assert entry.hub
    assert [file.local_name for file in entry.files] == ["parakeet-tdt-0.6b-v3.nemo"]


def test_lengths_are_whole_frames() -> None:
    chosen = ParakeetOptions(left_s=2, chunk_s=0.3, right_s=0.5)
    assert _context(chosen, 1280) == ContextSize(left=25, chunk=4, right=6, most=250)
    assert _context(ParakeetOptions(chunk_s=0.08), 2560).chunk == 1


def test_absent_files_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="models pull"):
        build(ParakeetOptions(), tmp_path)
    with pytest.raises(WeightsError, match="no weights were given"):
        build(ParakeetOptions(weights=None), None)
    with pytest.raises(WeightsError, match=r"no\.nemo is missing"):
        build(ParakeetOptions(model_file="no.nemo"), tmp_path)
    for name in ("a.nemo", "b.nemo"):
        (tmp_path / name).touch()
    with pytest.raises(WeightsError, match="model_file"):
        build(ParakeetOptions(), tmp_path)
