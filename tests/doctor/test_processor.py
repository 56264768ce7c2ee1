"""Whether the engines run on this processor."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.doctor import processor
from app.doctor.processor import check_compiled_for, check_trials
from app.models.catalogue import Catalogue
from app.models.weights import WeightsCache
from app.setup.llama import PROCESSOR_STAMP
from app.setup.place import Stamps
from pipeline.engines.registry import EngineSpec, Kind
from tests.support.toy_engine import Options, build, build_broken, build_for_another_processor


def test_instructions_that_are_gone_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "own_instructions", lambda: "avx avx2 sse4_2")
    assert not list(check_compiled_for("setup", tmp_path)), "nothing is known"
    stamps = Stamps(tmp_path / ".setup")
    stamps.write(PROCESSOR_STAMP, "avx avx2")
    assert not list(check_compiled_for("setup", tmp_path))
    stamps.write(PROCESSOR_STAMP, "avx avx2 avx512bw avx512f")
    (check,) = check_compiled_for("reachy-voice setup --config x", tmp_path)
    assert check.state == "warn"
    assert "avx512bw, avx512f" in check.detail
    assert "reachy-voice setup --config x" in check.fix


@pytest.mark.parametrize(
    ("builder", "findings"),
    [(build_for_another_processor, ["fail"]), (build_broken, []), (build, [])],
)
def test_an_engine_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, builder: Any, findings: list[str]
) -> None:
    spec = EngineSpec("toy", Kind.TTS, Options, builder, modules=("json",))
    monkeypatch.setattr(processor, "engine_spec", lambda kind, name: spec)
    monkeypatch.setattr(processor, "has_room", lambda *which: True)
    settings: Any = SimpleNamespace(engines=lambda: [(Kind.TTS, Options())])
    cache = WeightsCache(tmp_path, Catalogue({}))
    checks = list(check_trials(settings, cache))
    assert [check.state for check in checks] == findings
    if checks:
        assert "tts toy engine does not run on this processor" in checks[0].detail
        assert "Set up again" in checks[0].fix
    assert (spec in processor.EnginesRan(tmp_path)) == (builder is build)
