"""Do the installed packages fit together? Imports none of them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from app.doctor.engine_needs import EngineNeeds
from app.settings.load import config_dir
from app.setup.finding import Check
from app.setup.options import settings_options
from app.setup.stack import CUDA, TORCHAUDIO_STUB, locked_versions

SETUP = "reachy-voice setup"


def setup_command(config: str | None, overrides: Sequence[str]) -> str:
    """The command that installs everything the settings need."""
    return shlex.join([*SETUP.split(), *settings_options(config, overrides)])


def check_installed(needs: EngineNeeds, setup: str) -> list[Check]:
    """Do the installed packages fit together? Other checks report missing ones. ``setup``: the
    command that installs them."""
    checks = list(check_llama(needs, setup))
    if needs.stack and (torch := installed_version("torch")):
        checks += check_torch(needs, torch_cuda(), torch, installed_version("torchaudio"), setup)
        checks += check_locked(needs.stack)
    return checks


def check_llama(needs: EngineNeeds, setup: str) -> Iterator[Check]:
    if needs.llama == "cuda" and installed_version("llama-cpp-python") and not llama_has_cuda():
        detail = "built for the CPU only, but llm.gpu_layers wants the GPU"
        yield Check("llama.cpp", "fail", detail, f"Run: {setup}, which builds it with CUDA")


def check_torch(
    needs: EngineNeeds, cuda: str | None, torch: str, torchaudio: str | None, setup: str
) -> Iterator[Check]:
    """``cuda``: the version torch was built with; empty for a CPU build. torchaudio cannot be
    imported beside a torch for another CUDA, and has no CPU build of its own."""
    if cuda is None:
        return
    again = f"Run: rm .venv/.setup/torch-*; {setup} --torch {needs.torch}"
    name = f"torch {torch}, torchaudio {torchaudio or 'absent'}"
    if needs.torch == "cuda" and not cuda:
        yield Check("torch", "fail", f"{name}: built for a CPU, but this machine has a GPU", again)
    elif cuda and cuda != CUDA:
        yield Check("torch", "fail", f"{name}: built for CUDA {cuda}, not {CUDA}", again)
    elif not _fits(cuda, torchaudio or ""):
        beside = f"a torch for CUDA {cuda}" if cuda else "a torch for CPUs"
        detail = f"{name}: torchaudio cannot be imported beside {beside}"
        yield Check("torch", "fail", detail, again)
    else:
        yield Check("torch", "ok", f"{name}, CUDA {cuda or 'none'}")


def _fits(cuda: str, torchaudio: str) -> bool:
    for_cpu = torchaudio.startswith(TORCHAUDIO_STUB) or "+cpu" in torchaudio
    return bool(torchaudio) and for_cpu == (not cuda)


def check_locked(
    stack: str, root: Path | None = None, version_of: Callable[[str], str | None] | None = None
) -> Iterator[Check]:
    """Report installed versions that differ from the lock. Silent outside of a checkout."""
    lock = (root or config_dir().parent) / f"requirements-{stack}.lock"
    if not lock.is_file():
        return
    pins = locked_versions(lock)
    here = {name: (version_of or installed_version)(name) for name in pins}
    others = [
        f"{n} {v} for {' or '.join(pins[n])}" for n, v in here.items() if v and v not in pins[n]
    ]
    if others:
        more = f" and {len(others) - 4} more" if len(others) > 4 else ""
        detail = f"not as locked: {', '.join(others[:4])}{more}"
        pip = f"{shlex.quote(sys.executable)} -m pip"
        fix = f"Run: {pip} install --no-deps --require-hashes -r {shlex.quote(str(lock))}"
        yield Check("versions", "warn", detail, fix)


def installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def torch_cuda() -> str | None:
    """``13.0``; empty for a CPU build; ``None`` if unknown. Imports nothing."""
    directory = _directory_of("torch")
    if directory is None or not (file := directory / "version.py").is_file():
        return None
    match = re.search(r"^cuda\b[^=\n]*= *(?:'([\d.]+)'|None)", file.read_text(), re.MULTILINE)
    return (match[1] or "") if match else None


def llama_has_cuda() -> bool:
    """Whether our version of llama.cpp is installed and built for a GPU."""
    lock = config_dir().parent / "script" / "llama-cpp.lock"
    ours = locked_versions(lock) if lock.is_file() else {}
    if installed_version("llama-cpp-python") not in ours.get(
        "llama-cpp-python", [installed_version("llama-cpp-python")]
    ):
        return False
    directory = _directory_of("llama_cpp")
    return directory is not None and any("cuda" in path.name for path in directory.rglob("*.so*"))


def _directory_of(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(places[0]) if places else None
