"""Caches model results on disk: models hear a corpus once, and a sweep of policies takes seconds.

A result is keyed by the engine, its options, the content of its weights, the versions of its
libraries, its source, and the exact samples. A VAD has state, so it scores a scene as a whole.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from app.models.weights import WeightsCache, open_cache
from app.settings.model import Settings
from pipeline.audio import Pcm
from pipeline.engines.registry import (
    EngineOptions,
    EngineSpec,
    Kind,
    UrlEngineSpec,
    engine_spec,
    require_modules,
)
from pipeline.engines.stt.moonshine import Moonshine, MoonshineOptions, MoonshineRecogniser
from pipeline.errors import ConfigError
from pipeline.messages import LlmRequest, Message
from pipeline.work import NEVER

_UNSAVED = 200
"""New results that may be lost if the program is killed."""
_HELD_BY_OTHERS_S = 60.0
"""How long to wait for another process to finish writing."""


class Memo:
    """Small JSON values by key, in one SQLite file. Several processes may share the file."""

    def __init__(self, path: Path | None) -> None:
        """``None``: in memory only. Reads the whole file at once; later reads are free."""
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._file = sqlite3.connect(path or ":memory:", timeout=_HELD_BY_OTHERS_S)
        self._file.execute("CREATE TABLE IF NOT EXISTS memo (key BLOB PRIMARY KEY, value TEXT)")
        self._values: dict[bytes, Any] = dict(self._file.execute("SELECT key, value FROM memo"))
        self._new: list[tuple[bytes, str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.save()
        self._file.close()

    def get(self, key: bytes, compute: Callable[[], Any]) -> Any:
        """The value of ``key``; computed and stored if new."""
        if key not in self._values:
            text = json.dumps(compute())
            self._values[key] = text
            self._new.append((key, text))
            if len(self._new) >= _UNSAVED:
                self.save()
        return json.loads(self._values[key])

    def save(self) -> None:
        """Write the new results to the file."""
        with self._file:
            self._file.executemany("INSERT OR IGNORE INTO memo VALUES (?, ?)", self._new)
        self._new.clear()


def key_of(engine: bytes, pcm: Pcm) -> bytes:
    """The key of the result of ``engine`` (``engine_digest``) for 16 kHz samples."""
    return hashlib.sha256(engine + np.ascontiguousarray(pcm, dtype="<i2").tobytes()).digest()


def engine_digest(spec: EngineSpec, options: EngineOptions, weights: Path | None) -> bytes:
    """A digest of everything that may change an engine's answer, except the machine."""
    modules = sorted(_modules_of(spec.build.__module__))
    description = {
        "engine": f"{spec.kind}/{spec.name}",
        "options": options.model_dump(mode="json", exclude={"run_in", "words"}),
        "packages": {name: _version(name) for name in spec.modules},
        "source": [_file_digest(Path(importlib.import_module(m).__file__ or "")) for m in modules],
        "weights": {p.name: _file_digest(p) for p in sorted(weights.iterdir())} if weights else {},
    }
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).digest()


def _modules_of(module: str) -> set[str]:
    """``module`` and everything that it imports from its own package, directly or not."""
    package, modules, unread = module.rpartition(".")[0] + ".", {module}, [module]
    while unread:
        values = vars(importlib.import_module(unread.pop())).values()
        homes = {getattr(value, "__module__", None) for value in values}
        new = {home for home in homes if isinstance(home, str) and home.startswith(package)}
        unread += new - modules
        modules |= new
    return modules


def _version(module: str) -> str:
    packages = _distributions().get(module, [])
    return ",".join(importlib.metadata.version(name) for name in packages)


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Slow: it reads the files of every installed package."""
    return importlib.metadata.packages_distributions()


def _file_digest(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Ears:
    """The models of some settings, with cached results.

    Models are loaded when the first result is missing. All audio is int16 mono at 16 kHz.
    """

    def __init__(self, settings: Settings, weights: WeightsCache, memo: Memo) -> None:
        """Raises ``ConfigError`` for a recogniser other than Moonshine, ``WeightsError``."""
        if not isinstance(settings.stt, MoonshineOptions):
            raise ConfigError(
                f"The turns cannot be scored with the recogniser {settings.stt.engine!r}",
                why="the cost of a pass is known for moonshine only",
                fix="Leave stt.engine at moonshine",
            )
        self._settings = settings
        self._weights = weights
        self.memo = memo
        self.passes: list[float] = []
        """Seconds of audio of each requested recognition pass, cached or not."""
        self._digests: dict[Kind, bytes] = {}
        self.stt = Moonshine(cast(MoonshineRecogniser, self), settings.stt, Path())
        """The engine's own code, using cached results."""

    def speech_scores(self, pcm: Pcm) -> NDArray[np.float64]:
        """Probability of speech in each whole window of a stream that begins with ``pcm``."""

        def compute() -> list[float]:
            stream, size = self._vad.open(), self._vad.window_samples
            windows = range(0, len(pcm) - size + 1, size)
            return [round(stream.score(pcm[at : at + size]), 6) for at in windows]

        return np.array(self.memo.get(key_of(self._digest(Kind.VAD), pcm), compute))

    def turn_over(self, pcm: Pcm) -> float:
        """The turn detector's probability that the speaker is done; the newest 8 s count."""
        key = key_of(self._digest(Kind.TURN), pcm)
        return float(self.memo.get(key, lambda: round(self._turn.score(pcm, ""), 6)))

    def transcribe(self, pcm: Pcm) -> str:
        """The text of ``pcm``, from one pass."""
        self.passes.append(len(pcm) / 16_000)
        key = key_of(self._digest(Kind.STT), pcm)
        return str(self.memo.get(key, lambda: self._recogniser.transcribe(pcm)))

    def words_complete(self, messages: Sequence[Message]) -> float | None:
        """The language model's probability that the user's last words are complete; ``None`` if it
        cannot tell."""

        def compute() -> float | None:
            *_, result = self._conversation.warm(LlmRequest(messages), NEVER)
            probability = result.end_probability
            return None if probability is None else round(float(probability), 6)

        text = json.dumps([asdict(message) for message in messages], sort_keys=True)
        key = hashlib.sha256(self._digest(Kind.LLM) + text.encode()).digest()
        probability = self.memo.get(key, compute)
        return None if probability is None else float(probability)

    # -- the models

    @cached_property
    def _vad(self) -> Any:
        return self._build(Kind.VAD)

    @cached_property
    def _turn(self) -> Any:
        return self._build(Kind.TURN)

    @cached_property
    def _recogniser(self) -> MoonshineRecogniser:
        options = self._settings.stt
        assert isinstance(options, MoonshineOptions)
        return MoonshineRecogniser(self._weights.path(options.weights), options)

    @cached_property
    def _conversation(self) -> Any:
        return self._build(Kind.LLM).open()

    def _build(self, kind: Kind) -> Any:
        spec, options, weights = self._parts(kind)
        require_modules(spec)
        return spec.build(options, weights)

    def _digest(self, kind: Kind) -> bytes:
        if kind not in self._digests:
            self._digests[kind] = engine_digest(*self._parts(kind))
        return self._digests[kind]

    def _parts(self, kind: Kind) -> tuple[EngineSpec, EngineOptions, Path | None]:
        options = self._settings.engine(kind)
        if hasattr(options, "saved_prefix_mb"):
            # Never write to the server's own files.
            options = options.model_copy(update={"saved_prefix_mb": 0})
        spec = engine_spec(kind, options.engine)
        if isinstance(spec, UrlEngineSpec):
            raise ValueError(f"{kind} {options.engine} has no digest of its own")
        return spec, options, self._weights.of(options)


def open_memo(settings: Settings) -> Memo:
    """The results stored in these settings' cache directory."""
    return Memo(settings.paths.cache(os.environ) / "benchmarks" / "turns.sqlite")


def ears_of(settings: Settings, memo: Memo) -> Ears:
    return Ears(settings, open_cache(settings), memo)
