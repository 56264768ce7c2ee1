"""Raised by a voice that notices a faulty clause itself, before any of it is heard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pipeline.errors import EngineError, ReachyVoiceError

Wrong = Literal["runaway", "repetition"]
"""Two of ``pipeline.events.FaultKind``: it never ends; it says the same again and again."""


class NotSpeech(EngineError):
    """The clause is no speech from ``since_s`` seconds of its audio on. What is not sent by then
    is dropped, and the rest is said again as take 1."""

    def __init__(self, fault: Wrong, since_s: float) -> None:
        super().__init__(
            "The voice made no speech of a clause",
            why=f"{fault} from {since_s:.2f} s on",
            fix="If it happens often, split long sentences, or try another tts.voice",
        )
        self.fault: Wrong = fault
        self.since_s = since_s

    def __reduce__(self) -> tuple[Callable[..., ReachyVoiceError], tuple[object, ...]]:
        return type(self), (self.fault, self.since_s)
