"""Errors of a step after which an engine cannot be trusted with the next one. Pure.

Known by names and texts, so that no engine's libraries are needed here.
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
    "uncorrectable ecc error",
    "has fallen off the bus",
    "cuda error: unknown error",
    "hardware stack error",
    "cudaerrorassert",
)
"""Texts of CUDA errors that stay with the process: "To continue using CUDA, the process must be
terminated and relaunched" (CUDA Runtime API, error codes 700 to 720), lower-case."""

_OUT_OF_MEMORY = (
    "memoryerror",
    "out of memory",
    "bad_alloc",
    "failed to allocate",
    "cannot allocate memory",
)
"""What Python, torch, C++, ggml and the system write, lower-case."""


def lost_its_device(error: BaseException) -> bool:
    """Whether no call of this process to the GPU will succeed any more."""
    return any(part in _text(error) for part in _DEVICE_IS_LOST)


def is_out_of_memory(error: BaseException) -> bool:
    return any(part in _text(error) for part in _OUT_OF_MEMORY)


def _text(error: BaseException | None) -> str:
    """Of the error and of what caused it, lower-case."""
    texts = []
    while error:
        texts.append(f"{type(error).__name__}: {error}")
        error = error.__cause__
    return "\n".join(texts).lower()
