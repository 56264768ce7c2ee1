"""Small engines behind entry points, for tests of whole assistants; the output tells them apart."""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import (
    Delta,
    Embedding,
    Finished,
    Partial,
    TextDelta,
    Transcript,
    Warmed,
)
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.errors import EngineError
from pipeline.messages import LlmRequest, SpeechRequest, Usage
from pipeline.work import CancelToken

GATE = threading.Event()


class SmallOptions(EngineOptions):
    engine: str = "small"
    name: str = "one"
    """What a recogniser hears, and what a model says."""
    level: int = 1000
    """Level of a voice's sound."""
    rate: int = 16_000
    window_samples: int = 512
    waits: bool = False
    """Building it waits for ``GATE``."""
    fails: bool = False
    """Building it fails."""
    model_file: str | None = None
    """A safetensors file of one tensor: the name, or the text that replaces all else a model
    says."""
    updates: str | None = None


class LevelVad:
    least_movement_db = 0.0

    def __init__(self, options: SmallOptions) -> None:
        self.window_samples = options.window_samples

    def open(self) -> LevelVad:
        return self

    def score(self, pcm: Pcm) -> float:
        return 0.99 if np.abs(pcm).max(initial=0) > 1500 else 0.01

    def close(self) -> None:
        pass


class SureTurn:
    history_seconds = 8.0

    def score(self, pcm: Pcm, text: str) -> float:
        return 0.99


class NameStt:
    streams = False
    languages: Sequence[str] = ()

    def __init__(self, options: SmallOptions) -> None:
        self.name = options.name

    def open(self, language: str, partials: bool) -> NameUtterance:
        return NameUtterance(self.name)


class NameUtterance:
    def __init__(self, name: str) -> None:
        self.name = name
        self.samples = 0

    def feed(self, pcm: Pcm) -> Partial:
        self.samples += len(pcm)
        return Partial()

    def finish(self, cancel: CancelToken) -> Transcript:
        return Transcript(self.name, self.samples / LISTEN_RATE)

    def close(self) -> None:
        pass


class NameLlm:
    context_tokens = 4096

    def __init__(self, options: SmallOptions) -> None:
        self.name, self.says = options.name, ""
        if options.model_file:
            data = Path(options.model_file).read_bytes()
            text = data[8 + int.from_bytes(data[:8], "little") :].decode().strip()
            self.name, _, self.says = text.partition(":")
            if self.name == "heavy" and not GATE.is_set():
                raise MemoryError
            if self.name == "broken":
                raise EngineError("The weights have no legs", fix="Give them some")

    def open(self) -> NameLlm:
        return self

    def warm(self, request: LlmRequest, cancel: CancelToken) -> Iterator[Warmed | None]:
        yield Warmed()

    def reply(self, request: LlmRequest, cancel: CancelToken) -> Iterator[Delta | None]:
        if self.says:
            yield TextDelta(self.says)
        else:
            yield TextDelta(f"This is {self.name}. ")
            yield TextDelta("It is a nice day today.")
        yield Finished("stop", Usage())

    def close(self) -> None:
        pass


class LevelTts:
    voices = ("joe",)
    languages: Sequence[str] = ()

    def __init__(self, options: SmallOptions) -> None:
        self.rate = options.rate
        self._level = options.level

    def synthesize(self, request: SpeechRequest, cancel: CancelToken) -> Iterator[Pcm | None]:
        for _ in request.text.split():
            yield np.full(self.rate // 20, self._level, np.int16)


class LevelSpeaker:
    def embed(self, pcm: Pcm, cancel: CancelToken) -> Embedding:
        level = int(np.percentile(np.abs(pcm.astype(int)), 90)) // 1000
        return np.asarray(np.eye(33)[level], np.float32)


_ENGINES: dict[Kind, Any] = {
    Kind.VAD: LevelVad,
    Kind.TURN: lambda options: SureTurn(),
    Kind.STT: NameStt,
    Kind.LLM: NameLlm,
    Kind.TTS: LevelTts,
    Kind.SPEAKER: lambda options: LevelSpeaker(),
}


def _build(kind: Kind, options: SmallOptions, weights: Path | None) -> Any:
    if options.waits:
        GATE.wait()
    if options.fails:
        raise EngineError(f"The {options.name} engine has no legs", fix="Give it some")
    return _ENGINES[kind](options)


class _Point:
    name = value = "small"

    def __init__(self, kind: Kind, run_in: Literal["inline", "thread", "process"]) -> None:
        self.spec = EngineSpec("small", kind, SmallOptions, partial(_build, kind), run_in=run_in)

    def load(self) -> EngineSpec:
        return self.spec


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register an engine ``small`` of each kind."""
    theirs = importlib.metadata.entry_points

    def entry_points(**wanted: str) -> Any:
        group = wanted.get("group", "")
        kind = group.removeprefix("reachy_voice.")
        if kind not in set(map(str, Kind)):
            return theirs(**wanted)
        points = [_Point(Kind(kind), "thread")]
        return points if wanted.get("name", "small") == "small" else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
