"""Which builds have run on this processor, and which must be tried again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from app.setup import ran_here
from app.setup.ran_here import RanHere

pytestmark = pytest.mark.quick


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "packages" / "compiled_thing"
    (folder / "lib").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "lib" / "libthing.so").write_bytes(b"one")
    monkeypatch.syspath_prepend(folder.parent)
    return folder.name


def test_it_is_known_until_something_changes(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, library = RanHere(tmp_path), tmp_path / "packages" / package / "lib" / "libthing.so"
    assert not ran.has("llm", [package])
    ran.add("llm", [package])
    assert ran.has("llm", [package])
    assert not ran.has("stt", [package])
    with monkeypatch.context() as other:
        other.setattr(ran_here, "processor", lambda: "an older one")
        assert not ran.has("llm", [package])
    with monkeypatch.context() as other:
        other.setattr(sys, "prefix", "/another/environment")
        assert not ran.has("llm", [package])
    library.write_bytes(b"two")
    os.utime(library, ns=(1, 1))
    assert not ran.has("llm", [package])


def test_without_a_cache_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "ran-here").write_text("a file")
    ran = RanHere(tmp_path)
    ran.add("llm", ["json"])
    assert not ran.has("llm", ["json"])
    assert ran.has("llm", [])
