"""microWakeWord: a small network per call, through ``pymicro-wakeword``, which brings TensorFlow
Lite and four calls. It processes each 10 ms once: 0.4 % of a core for one call.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.audio import Pcm, pcm_to_bytes
from pipeline.engines.registry import require_package
from pipeline.errors import ConfigError, WeightsError

PACKAGE = "pymicro_wakeword"
DEFAULT_CALLS = ("okay_nabu",)
MOST_WINDOW = 1000
"""Results that are averaged; the models' own are 5 to 10."""
FEATURES = 40
"""Frequency bands per 10 ms of a network's input (``MicroFrontend``)."""


class MicroStream:
    """Listens to one stream for all calls."""

    def __init__(self, configs: Sequence[Path]) -> None:
        from pymicro_wakeword import MicroWakeWord, MicroWakeWordFeatures

        self._features = MicroWakeWordFeatures()
        self._models = [MicroWakeWord.from_config(config) for config in configs]

    def called(self, pcm: Pcm) -> bool:
        """Whether one of the calls ends in ``pcm``, give or take 0.3 s."""
        features = list(self._features.process_streaming(pcm_to_bytes(pcm)))
        found = [model.process_streaming(each) for each in features for model in self._models]
        return any(found)


class MicroWakeWord:
    """The chosen calls."""

    def __init__(self, configs: Sequence[Path], calls: Sequence[str]) -> None:
        self.calls = calls
        self._configs = configs

    def open(self) -> MicroStream:
        return MicroStream(self._configs)


def load(words: Sequence[str] | None) -> MicroWakeWord:
    """Load and check a model for each of ``words``: names of calls in the package, or absolute
    paths of JSON files beside their models; ``None``: ``DEFAULT_CALLS``.

    Raises ``MissingExtra``, ``ConfigError`` for an unknown name, ``WeightsError`` for a file that
    is not a model of a call."""
    require_package(PACKAGE, "wake.engine: micro-wakeword")
    configs = [_config(word) for word in words or DEFAULT_CALLS]
    return MicroWakeWord(configs, [_check(config) for config in configs])


def _config(word: str) -> Path:
    from pymicro_wakeword.const import Model
    from pymicro_wakeword.microwakeword import _MODELS_DIR

    path = Path(word).expanduser()
    if path.suffix == ".json" and path.is_absolute():
        return path
    names = [model.value for model in Model]
    if word not in names:
        raise ConfigError(
            f"wake.words: micro-wakeword has no call {word!r}",
            why=f"it has {', '.join(names)}",
            fix="Name one of them, or the absolute path of the JSON file beside your own model; or "
            "set wake.engine to phrase, which takes any words",
        )
    return Path(_MODELS_DIR) / f"{word}.json"


def _check(config: Path) -> str:
    """The call that the model listens for. Raises ``WeightsError`` if it is unusable."""
    try:
        described = json.loads(config.read_text())
        call, micro = described["wake_word"], described["micro"]
        cutoff, window = micro["probability_cutoff"], micro["sliding_window_size"]
        if not (isinstance(window, int) and 1 <= window <= MOST_WINDOW and 0 < cutoff < 1):
            raise ValueError(f"probability_cutoff is {cutoff}, sliding_window_size {window}")
        if not (isinstance(call, str) and call.strip()):
            raise ValueError("wake_word must be the words of the call")
        model = (config.parent / described["model"]).resolve(strict=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unusable(config, f"{type(error).__name__}: {error}") from error
    if problem := _problem(model):
        raise _unusable(config, f"{model.name}: {problem}")
    return call


def _problem(model: Path) -> str:
    """Why the file is not a network for a call; empty if it is one. Checks TensorFlow Lite's return
    values, as the package does not, and a null pointer would crash the process."""
    from pymicro_wakeword.microwakeword import _MODULE_LIB_DIR
    from pymicro_wakeword.wakeword import TfLiteWakeWord

    lib: Any = TfLiteWakeWord(next(_MODULE_LIB_DIR.glob("*tensorflowlite_c.*"))).lib
    loaded = lib.TfLiteModelCreateFromFile(str(model).encode())
    if not loaded:
        return "it is no TensorFlow Lite model"
    interpreter = lib.TfLiteInterpreterCreate(loaded, None)
    try:
        if not interpreter or lib.TfLiteInterpreterAllocateTensors(interpreter):
            return "TensorFlow Lite cannot run it"
        taken = lib.TfLiteInterpreterGetInputTensor(interpreter, 0)
        given = lib.TfLiteInterpreterGetOutputTensor(interpreter, 0)
        steps = lib.TfLiteTensorDim(taken, 1)
        sizes = lib.TfLiteTensorByteSize(taken), lib.TfLiteTensorByteSize(given)
        return "" if sizes == (steps * FEATURES, 1) else "it is no network for a call"
    finally:
        if interpreter:
            lib.TfLiteInterpreterDelete(interpreter)
        lib.TfLiteModelDelete(loaded)


def _unusable(config: Path, why: str) -> WeightsError:
    return WeightsError(
        f"wake.words: {config} cannot be used",
        why=why,
        fix="It must be the JSON file of a microWakeWord model, version 2, beside its .tflite",
    )
