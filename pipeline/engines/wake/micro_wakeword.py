"""microWakeWord: a small network per call, through ``pymicro-wakeword``, which brings TensorFlow
Lite and four calls. It processes each 10 ms once: 0.4 % of a core for one call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from ctypes import c_char_p, c_size_t, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.audio import Pcm, pcm_to_bytes
from pipeline.engines.registry import require_package
from pipeline.errors import ConfigError, WeightsError

PACKAGE = "pymicro_wakeword"
DEFAULT_CALLS = ("okay_nabu",)
MOST_WINDOW = 1000
"""Results that are averaged; the models' own are 5 to 10."""
FEATURES = 40
"""Frequency bands per 10 ms of a network's input (``MicroFrontend``)."""


class _Network(NamedTuple):
    """A network in memory, and what else the package needs to know of it. Each sleep opens it anew,
    and a file that is replaced meanwhile may be half written: it would crash the process."""

    data: bytes
    options: Mapping[str, Any]

    def create(self, lib: Any) -> Any:
        """TensorFlow Lite's model; null if it is none."""
        create = lib.TfLiteModelCreate
        create.argtypes, create.restype = [c_char_p, c_size_t], c_void_p
        return create(self.data, len(self.data))

    def open(self) -> Any:
        from pymicro_wakeword import MicroWakeWord

        def load(opened: Any) -> None:
            opened.lib.TfLiteModelCreateFromFile = lambda path: self.create(opened.lib)
            MicroWakeWord._load_model(opened)

        in_memory: Any = type("InMemory", (MicroWakeWord,), {"_load_model": load})
        return in_memory("", trained_languages=[], **self.options)


class MicroStream:
    """Listens to one stream for all calls."""

    def __init__(self, networks: Sequence[_Network]) -> None:
        from pymicro_wakeword import MicroWakeWordFeatures

        self._features = MicroWakeWordFeatures()
        self._models = [each.open() for each in networks]

    def called(self, pcm: Pcm) -> bool:
        """Whether one of the calls ends in ``pcm``, give or take 0.3 s."""
        features = list(self._features.process_streaming(pcm_to_bytes(pcm)))
        found = [model.process_streaming(each) for each in features for model in self._models]
        return any(found)


class MicroWakeWord:
    """The chosen calls."""

    def __init__(self, networks: Sequence[_Network]) -> None:
        self.calls: Sequence[str] = [each.options["wake_word"] for each in networks]
        self._networks = networks

    def open(self) -> MicroStream:
        return MicroStream(self._networks)


def load(words: Sequence[str] | None) -> MicroWakeWord:
    """Load and check a model for each of ``words``: names of calls in the package, or absolute
    paths of JSON files beside their models; ``None``: ``DEFAULT_CALLS``.

    Raises ``MissingExtra``, ``ConfigError`` for an unknown name, ``WeightsError`` for a file that
    is not a model of a call."""
    require_package(PACKAGE, "wake.engine: micro-wakeword")
    return MicroWakeWord([_network(_config(word)) for word in words or DEFAULT_CALLS])


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


def _network(config: Path) -> _Network:
    """The network of a call. Raises ``WeightsError`` if it is unusable."""
    from pymicro_wakeword.microwakeword import _MODULE_LIB_DIR

    try:
        described = json.loads(config.read_text())
        call, micro = described["wake_word"], described["micro"]
        cutoff, window = micro["probability_cutoff"], micro["sliding_window_size"]
        if not (isinstance(window, int) and 1 <= window <= MOST_WINDOW and 0 < cutoff < 1):
            raise ValueError(f"probability_cutoff is {cutoff}, sliding_window_size {window}")
        if not (isinstance(call, str) and call.strip()):
            raise ValueError("wake_word must be the words of the call")
        model = config.parent / described["model"]
        data = model.read_bytes()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unusable(config, f"{type(error).__name__}: {error}") from error
    options = {
        "wake_word": call,
        "tflite_model": model,
        "probability_cutoff": cutoff,
        "sliding_window_size": window,
        "libtensorflowlite_c_path": next(Path(_MODULE_LIB_DIR).glob("*tensorflowlite_c.*")),
    }
    network = _Network(data, options)
    if problem := _problem(network):
        raise _unusable(config, f"{model.name}: {problem}")
    return network


def _problem(network: _Network) -> str:
    """Why it is not a network for a call; empty if it is one. Checks TensorFlow Lite's return
    values, as the package does not, and a null pointer would crash the process."""
    from pymicro_wakeword.wakeword import TfLiteWakeWord

    lib: Any = TfLiteWakeWord(network.options["libtensorflowlite_c_path"]).lib
    loaded = network.create(lib)
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
