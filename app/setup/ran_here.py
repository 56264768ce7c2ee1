"""What has run on this processor. Code built for another one may end its process (SIGILL)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from app.setup.computer import processor
from app.setup.place import Stamps, digest


class RanHere:
    """``CACHE/ran-here/``: a stamp for each part of each environment, made of this processor and
    the part's libraries. If stamps cannot be written, a part is tried each time."""

    def __init__(self, cache: Path) -> None:
        self._stamps = Stamps(cache / "ran-here")

    def has(self, part: str, packages: Sequence[str]) -> bool:
        """Whether the part has run here; a part without ``packages`` always has."""
        with suppress(OSError):
            return not packages or self._stamps.read(_name(part)) == _state(packages)
        return False

    def add(self, part: str, packages: Sequence[str]) -> None:
        with suppress(OSError):
            self._stamps.write(_name(part), _state(packages))


def _name(part: str) -> str:
    return f"{part}-{digest(sys.prefix)[:12]}"


def _state(packages: Sequence[str]) -> str:
    libraries = (library for package in packages for library in _libraries(package))
    return digest(processor(), *libraries)


def _libraries(package: str) -> Iterator[str]:
    """Path, size and time of the package's libraries: in its folder, or one below."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for pattern in ("*.so*", "*/*.so*"):
            for path in sorted(Path(folder).glob(pattern)):
                about = path.stat()
                yield f"{path} {about.st_size} {about.st_mtime_ns}"
