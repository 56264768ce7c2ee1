"""How llama.cpp's libraries are loaded."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pipeline.engines.llm.llama_api import _load_backends


@pytest.mark.parametrize(("backends", "loaded"), [(0, [b"/site/llama_cpp/lib"]), (1, [])])
def test_a_portable_build_gets_its_library_for_this_processor(
    backends: int, loaded: list[bytes]
) -> None:
    called: list[bytes] = []
    library = SimpleNamespace(
        ggml_backend_reg_count=lambda: backends, ggml_backend_load_all_from_path=called.append
    )
    _load_backends(SimpleNamespace(_lib=library, __file__="/site/llama_cpp/llama_cpp.py"))
    assert called == loaded
