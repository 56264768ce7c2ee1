"""Reads the tensors of a checkpoint from PyTorch before 1.6, without torch.

Such a file is five pickles (a magic number, a version, sizes of types, the object, the keys of its
storages), then each storage: its length as 64 bits little-endian, and its numbers. Unpickling
allows only what a plain checkpoint of float tensors needs.
"""

from __future__ import annotations

import pickle
import struct
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.onnx import unreadable

Tensors = dict[str, NDArray[np.float32]]

MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class _Tensor:
    storage: str
    start: int
    shape: tuple[int, ...]


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case "collections", "OrderedDict":
                return OrderedDict
            case "torch._utils", "_rebuild_tensor_v2":
                return _tensor
            case "torch", "FloatStorage" | "LongStorage":
                return name
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a plain checkpoint")

    def persistent_load(self, pid: Any) -> str:
        return str(pid[2])


def _tensor(storage: str, start: int, shape: tuple[int, ...], *rest: object) -> _Tensor:
    return _Tensor(storage, start, shape)


def tensors(path: Path, key: str) -> Tensors:
    """The float tensors of the mapping ``key`` in a checkpoint. Raises ``WeightsError``."""
    try:
        with path.open("rb") as file:
            *_, checkpoint, keys = [_Reader(file).load() for _ in range(5)]
            storages = {str(name): _storage(file) for name in keys}
        named = {name: each for name, each in checkpoint[key].items() if isinstance(each, _Tensor)}
        return {name: _array(each, storages[each.storage]) for name, each in named.items()}
    except (OSError, pickle.PickleError, struct.error, ValueError, LookupError, TypeError) as error:
        raise unreadable(path, error) from error
    except (EOFError, AttributeError, ImportError) as error:
        raise unreadable(path, error) from error


def _storage(file: BinaryIO) -> NDArray[np.float32]:
    (length,) = struct.unpack("<q", file.read(8))
    if not 0 <= 4 * length <= MOST_BYTES:
        raise ValueError(f"a storage of {length} numbers")
    return np.frombuffer(file.read(4 * length), "<f4")


def _array(tensor: _Tensor, storage: NDArray[np.float32]) -> NDArray[np.float32]:
    size = int(np.prod(tensor.shape))
    return storage[tensor.start : tensor.start + size].reshape(tensor.shape)
