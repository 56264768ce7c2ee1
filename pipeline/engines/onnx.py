"""Opening ONNX models the way a voice server needs them: small, single-threaded, quiet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.errors import WeightsError

_REPAIR = "Run: reachy-voice models verify (and pull, to fetch what is missing)"


def model_file(weights: Path | None, name: str) -> Path:
    """Path of the file ``name`` in a weights directory. Raises ``WeightsError`` if it is absent."""
    if weights is None or not (weights / name).is_file():
        place = "no directory was given" if weights is None else f"not in {weights}"
        raise WeightsError(f"The model file {name} is missing", why=place, fix=_REPAIR)
    return weights / name


def unreadable(path: Path, why: object) -> WeightsError:
    """The error for a model file that the runtime cannot load."""
    return WeightsError(f"The model {path} cannot be loaded", why=str(why).strip(), fix=_REPAIR)


def open_session(model: Path | bytes, path: Path | None = None) -> Any:
    """An ``onnxruntime.InferenceSession`` on one CPU thread. ``path``: the file that the bytes in
    ``model`` come from. Raises ``WeightsError``.

    These models are small and share a few cores. More threads would mean spin barriers, which cost
    far more than they gain as soon as another thread is busy.
    """
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.inter_op_num_threads = 1
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.log_severity_level = 3  # errors only
    content, file = (model, path) if isinstance(model, bytes) else (str(model), model)
    try:
        return onnxruntime.InferenceSession(content, settings, ["CPUExecutionProvider"])
    except Exception as error:  # its exception types are not public
        raise unreadable(file or Path(), error) from error
