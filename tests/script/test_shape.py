"""``script/shape --check``: no folder outgrows its number unnoticed, no class name occurs twice."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.quick

FILE = Path(__file__).parents[2] / "script" / "shape"


@pytest.fixture
def shape(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = spec_from_loader("shape", SourceFileLoader("shape", str(FILE)))
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    spec.loader.exec_module(module)
    limits = {"app": 10, "tests": 20, "classes": 3}
    monkeypatch.setattr(module, "settings", lambda: {"reachy-voice": {"shape": limits}})
    return module


@pytest.mark.parametrize(
    ("sizes", "messages"),
    [
        ({"app": 10, "tests": 20, "classes": 3}, []),
        ({"app": 11, "tests": 20}, ["app: 11, at most 10"]),
        ({"tests": 20, "classes": 4}, ["classes: 4, at most 3"]),
        ({"app": 1, "app/new": 1}, ["app/new has no number"]),
    ],
)
def test_growth(
    shape: ModuleType, monkeypatch: pytest.MonkeyPatch, sizes: dict[str, int], messages: list[str]
) -> None:
    monkeypatch.setattr(shape, "sizes", lambda: sizes)
    assert shape.oversized() == messages


def test_files_count_for_the_nearest_folder_of_the_table(
    shape: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shape, "ROOT", tmp_path)
    for name in ("app/a.py", "app/cli/b.py", "pipeline/engines/llm/c.py", "tests/x/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("class A:\n    def f(): ...\n")
    found = shape.sizes()
    assert found == {"app": 2, "app/cli": 2, "pipeline/engines": 2, "tests": 2, "classes": 3}


def test_a_public_class_name_occurs_once(
    shape: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shape, "ROOT", tmp_path)
    for name in ("app/a.py", "benchmarks/b.py", "tests/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(
            f"class Sound: ...\nclass _Own: ...\nclass {name[-4:-3]}: ...\n"
        )
    (message,) = shape.duplicate_names()
    assert message.startswith("2 classes are called Sound: app/a.py, benchmarks/b.py.")
