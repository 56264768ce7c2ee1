"""Packages that the owner installed into the environment, such as an engine of their own. They are
installed again after the environment had to be recreated."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from importlib.metadata import Distribution, distributions
from urllib.parse import unquote, urlsplit

from app.setup.commands import Log, tell
from app.setup.failures import SetupError
from app.setup.own_wheel import NAME
from app.setup.place import Place


class OwnerPackages:
    """``build/owner-packages``: pip's arguments, one package a line, until they are put back."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._file = place.build / "owner-packages"
        self._sources = place.venv / "src"
        """Where ``pip install -e git+URL`` puts them."""
        self._kept_sources = place.build / "owner-sources"

    def is_kept(self) -> bool:
        """Whether packages are noted that have not been put back."""
        return self._file.exists()

    def keep(self) -> None:
        """Note and print the packages before the environment is deleted."""
        if self.is_kept():
            return  # an interrupted setup has deleted it already
        if requirements := self.requirements():
            self._file.parent.mkdir(parents=True, exist_ok=True)
            if self._sources.is_dir():
                shutil.move(self._sources, self._kept_sources)
            self._file.write_text("".join(f"{shlex.join(words)}\n" for words in requirements))
            tell(f"Your own packages will be installed again: {_names(requirements)}")

    def put_back(self, log: Log) -> None:
        """Install the packages one by one; print those that fail."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        failures = []
        if self._kept_sources.is_dir():
            shutil.move(self._kept_sources, self._sources)
        for words in map(shlex.split, lines):
            # Their dependencies are in a lock file, or packages of the owner themselves.
            command = self._place.pip("install", "--no-deps", *words)
            try:
                log.run(command, f"{' '.join(words)} could not be installed again")
            except SetupError as error:
                tell(f"{error.what}: {error.why}")
                failures.append(words)
        self._file.unlink(missing_ok=True)
        if failures:
            pip = [str(self._place.python), "-m", "pip", "install"]
            again = shlex.join([*pip, *(word for words in failures for word in words)])
            tell(f"Your own packages {_names(failures)} are missing. Run: {again}")

    def requirements(self) -> list[list[str]]:
        """pip's arguments for each package."""
        folders = map(str, self._place.venv.glob("lib/python3*/site-packages"))
        ours = self._ours()
        packages = (each for each in distributions(path=list(folders)) if each.metadata)
        return sorted(_requirement(each) for each in packages if _plain(each.name) not in ours)

    def _ours(self) -> set[str]:
        """Names that setup installs."""
        root = self._place.root
        locks = [*root.glob("requirements*.lock"), *(root / "script").glob("*.lock")]
        pins = (re.findall(r"^([\w.-]+)==", lock.read_text(), re.MULTILINE) for lock in locks)
        names = {_plain(name) for lock in pins for name in lock}
        return names | {NAME, "pip", "setuptools", "wheel", "torch", "torchaudio"}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _requirement(package: Distribution) -> list[str]:
    """pip's arguments for a package: its origin (PEP 610), else its version."""
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    url = origin.get("url", "")
    if origin.get("dir_info", {}).get("editable"):
        return ["-e", unquote(urlsplit(url).path)]
    if vcs := origin.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    if folder := origin.get("subdirectory"):
        url += f"#subdirectory={folder}"
    return [f"{package.name} @ {url}" if url else f"{package.name}=={package.version}"]


def _names(packages: list[list[str]]) -> str:
    return ", ".join(words[-1] for words in packages)
