"""Errors of a step after which an engine cannot be trusted with the next one. Pure.

Told by names and texts, so that no engine's libraries are needed here.
"""

from __future__ import annotations

_DEVICE_IS_LOST = (
    *(
        "device-side assert",
        "illegal memory access",
        "cudaerrorillegaladdress",
        "misaligned address",
    ),
    *(
        "unspecified launch failure",
        "illegal instruction was encountered",
        "cudaerrorlaunchfailure",
    ),
    *("uncorrectable ecc error", "has fallen off the bus", "cuda error: unknown error"),
    *("hardware stack error", "cudaerrorassert"),
)
"""Texts of CUDA errors that stay with the process: "To continue using CUDA, the process must be
terminated and relaunched" (CUDA Runtime API, error codes 700 to 720), lower-case."""

_OUT_OF_MEMORY = ("out of memory", "bad_alloc", "failed to allocate", "cannot allocate memory")
"""What torch, C++, ggml and the system write, lower-case."""


class FatalErrors:
    """One engine's. Memory that is short once may be there for the next, smaller piece of work;
    twice in a row, it is not given back, and only a new process gets it back."""

    def __init__(self) -> None:
        self._short = False

    def succeeded(self) -> None:
        """A job ended well."""
        self._short = False

    def of(self, error: BaseException) -> str | None:
        """Why the engine must be built anew after ``error``; ``None``: it need not."""
        text = _text(error)
        if any(part in text for part in _DEVICE_IS_LOST):
            return "its device is lost to this process"
        if "memoryerror" not in text and not any(part in text for part in _OUT_OF_MEMORY):
            return None
        again, self._short = self._short, True
        return "it ran out of memory twice in a row" if again else None


def _text(error: BaseException | None) -> str:
    """Of the error and of what caused it, lower-case."""
    texts = []
    while error:
        texts.append(f"{type(error).__name__}: {error}")
        error = error.__cause__
    return "\n".join(texts).lower()
