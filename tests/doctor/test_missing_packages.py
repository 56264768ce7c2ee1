"""What is told where an engine's packages are not installed: a command of ours, and no name of a
package that is not ours."""

from __future__ import annotations

import importlib.util

import pytest

from pipeline.engines.registry import (
    AnyEngineSpec,
    EngineOptions,
    EngineSpec,
    Kind,
    require_modules,
)
from pipeline.engines.registry import engine_spec as find_spec
from pipeline.errors import MissingExtra
from tests.support.places import ROOT


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def fix_of(spec: AnyEngineSpec) -> str:
    with pytest.raises(MissingExtra) as caught:
        require_modules(spec)
    return caught.value.fix


@pytest.mark.parametrize(
    ("kind", "name"), [(Kind.STT, "parakeet"), (Kind.TTS, "qwen3-tts"), (Kind.LLM, "llama-cpp")]
)
def test_setup_installs_what_an_engine_of_ours_needs(kind: Kind, name: str) -> None:
    fix = fix_of(find_spec(kind, name))
    assert fix.startswith(f"Run: reachy-voice setup --set {kind}.engine={name} ")


def test_setup_knows_nothing_of_the_engines_of_others() -> None:
    spec = EngineSpec("theirs", Kind.TTS, EngineOptions, print, modules=("their_module",))
    assert "its makers" in fix_of(spec)


def test_packages_on_no_index_are_not_suggested() -> None:
    """A stranger who takes the name there would be installed."""
    told = [
        path
        for folder in ("app", "hardware", "pipeline", "script")
        for path in (ROOT / folder).rglob("*.py")
        if "pip install 'reachy-voice" in path.read_text()
    ]
    assert told == []
