"""Errors after which an engine cannot be trusted with another step. Pure.

They are recognised by name and text, so that this module needs no engine's libraries.
"""

from __future__ import annotations

_DEVICE_IS_LOST = (
    "device-side assert",
    "illegal memory access",
    "cudaerrorillegaladdress",
    "misaligned address",
    "unspecified launch failure",
    "illegal instruction was encountered",
    "cudaerrorlaunchfailure",
    "launch timed out",
    "uncorrectable ecc error",
    "has fallen off the bus",
    "cuda error: unknown error",
    "hardware stack error",
    "cudaerrorassert",
)
"""Texts, in lower case, of CUDA errors that a process cannot recover from: "To continue using CUDA,
the process must be terminated and relaunched" (CUDA Runtime API, error codes 700 to 720)."""

_OUT_OF_MEMORY = (
    "memoryerror",
    "out of memory",
    "outofmemory",
    "outofdevicememory",
    "insufficient memory",
    "bad_alloc",
    "failed to allocate",
    "unable to allocate",
    "cannot allocate memory",
    "not enough memory",
    "status_alloc_failed",
)
"""How Python, torch, C++, ggml, GPUs and the system report a lack of memory, in lower case."""


def lost_its_device(error: BaseException) -> bool:
    """Whether every further GPU call of this process will fail."""
    return any(part in _text(error) for part in _DEVICE_IS_LOST)


def is_out_of_memory(error: BaseException) -> bool:
    return any(part in _text(error) for part in _OUT_OF_MEMORY)


def _text(error: BaseException | None) -> str:
    """The error and its chain of causes, in lower case."""
    texts = []
    while error:
        texts.append(f"{type(error).__name__}: {error}")
        error = error.__cause__
    return "\n".join(texts).lower()
