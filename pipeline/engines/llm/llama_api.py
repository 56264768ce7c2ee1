"""llama.cpp's C functions, through the thin ctypes layer of llama-cpp-python.

Loads the library once, keeps its log out of the terminal, and turns its messages into errors that
users can act on.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.errors import EngineError

_WARN, _ERROR, _CONTINUED = 3, 4, 5
"""``enum ggml_log_level`` of ggml.h: warning, error, and a continuation of the previous line."""

_LOG_LINES = 8

_log: deque[str] = deque(maxlen=_LOG_LINES)
_kept_alive: list[Any] = []
"""ctypes callbacks that C holds pointers to; freeing one would crash the process."""


@functools.cache
def library() -> Any:
    """The module with the C functions. The first call loads it (a few 100 ms)."""
    # OpenMP reads this when it loads. By default its idle threads spin and starve all other
    # threads on a machine with few cores: 126 tokens/s became 1.8.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    api: Any = importlib.import_module("llama_cpp.llama_cpp")
    _capture_log(api)
    _load_backends(api)
    api.llama_backend_init()
    return api


@functools.cache
def multimodal() -> Any:
    """The module with the C functions for pictures. Raises ``EngineError`` if it was not built."""
    library()
    try:
        return importlib.import_module("llama_cpp.mtmd_cpp")
    except (OSError, RuntimeError) as problem:
        raise EngineError(
            "The language model cannot see pictures here",
            why=f"llama.cpp was built without its library mtmd ({problem})",
            fix="Run reachy-voice setup, which builds it, or set llm.mmproj to null",
        ) from problem


def version() -> str:
    """The version of llama-cpp-python, which determines the llama.cpp inside it."""
    return str(importlib.import_module("llama_cpp").__version__)


def recent_problems() -> str:
    """Return llama.cpp's latest warnings and errors, on one line, and clear them."""
    lines = [line.strip() for line in "".join(_log).splitlines()]
    _log.clear()
    return "; ".join(line for line in lines if line)


def keep_log(set_callback: Callable[[Any, Any], None]) -> None:
    """Also keep the warnings of another library of llama.cpp."""
    set_callback(_kept_alive[0], ctypes.c_void_p(0))


def _load_backends(api: Any) -> None:
    """A portable build (app/setup/llama.py) has one library per kind of processor: load the best of
    them."""
    # Through libllama's handle, as opening libggml.so by name would load it a second time.
    ggml = api._lib
    if not ggml.ggml_backend_reg_count():
        folder = Path(api.__file__).parent / "lib"
        ggml.ggml_backend_load_all_from_path(os.fsencode(folder))


def _capture_log(api: Any) -> None:
    level = 0

    def keep(new_level: int, text: bytes, _data: Any) -> None:
        nonlocal level
        level = level if new_level == _CONTINUED else new_level
        if level in (_WARN, _ERROR):
            _log.append(text.decode("utf-8", "replace"))

    callback = api.llama_log_callback(keep)
    _kept_alive.append(callback)
    api.llama_log_set(callback, ctypes.c_void_p(0))
