"""The heavy part, if needed: torch for this machine, and the packages of NeMo and Qwen3-TTS."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from app.setup.commands import Log
from app.setup.failures import NO_NETWORK, SetupError
from app.setup.place import Place, digest
from app.setup.plan import Fetch, locked_size
from app.setup.steps import Step, packages

CUDA_LOCK = "requirements-cuda.lock"
CUDA = "13.0"
"""The CUDA version that its torch and torchaudio are built with."""
TORCHAUDIO_STUB = "0+stub"
"""Version prefix of the stub that is installed with a torch for CPUs."""
STACK = "requirements-workstation.lock"
SUPERSEDED = ("faster-qwen3-tts", "qwen-tts-hf")
"""Installed for Qwen3-TTS by an earlier release; the second has the modules of qwen-tts."""
TORCHES = ("torch-cpu", "torch-cuda")
"""Names of steps; only one of them can have a stamp."""
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of CPU builds; PyPI has no CPU builds for Linux."""
HASHED = ("x86_64", (3, 11))
"""The Linux machine and Python whose torch for CPUs script/torch-cpu.lock pins by hash."""
CANNOT_INSTALL = "torch could not be installed"


def stack_steps(place: Place, torch: str) -> list[Step]:
    """``torch``: cpu or cuda."""
    step = torch_for_cuda(place) if torch == "cuda" else torch_for_cpu(place)
    return [step, packages_of_stack(place)]


def installed_torch(place: Place) -> str:
    """``cpu`` or ``cuda``, as an earlier setup chose; empty: no torch."""
    here = [name for name in TORCHES if place.stamps.read(name) is not None]
    return here[0].removeprefix("torch-") if here else ""


def torch_for_cuda(place: Place) -> Step:
    """PyPI's torch and torchaudio, built for CUDA 13.0, with NVIDIA's libraries; all pinned."""
    # pip does not distinguish torch from one for CPUs of the same version.
    unfit = ("torch", "torchaudio")
    step = packages(place, CUDA_LOCK, f"torch for CUDA {CUDA}", 240, unfit=unfit)

    def install(log: Log) -> None:
        place.stamps.remove("torch-cpu")
        step.run(log)

    return replace(step, name="torch-cuda", title=step.fetches[0].what, run=install)


def torch_for_cpu(place: Place) -> Step:
    """A CPU build of torch, and a stub for torchaudio, which has no CPU build."""
    versions = locked_versions(place.root / CUDA_LOCK)
    [version] = versions["torch"]
    # On other systems than Linux, PyPI's own build is for CPUs.
    requirement = f"torch=={version}+cpu" if sys.platform == "linux" else f"torch=={version}"
    lock = place.root / "script" / "torch-cpu.lock"
    is_hashed = sys.platform == "linux" and (platform.machine(), sys.version_info[:2]) == HASHED
    arguments = ["--require-hashes", "-r", str(lock)] if is_hashed else [requirement]
    stub = place.root / "script" / "torchaudio_stub"

    def install(log: Log) -> None:
        place.stamps.remove("torch-cuda")
        # Always, regardless of stamps: an interrupted setup may have left 4 GB of NVIDIA's.
        only_cuda = sorted(set(versions) - {"torch", "torchaudio"})
        log.run(place.pip("uninstall", "-y", *only_cuda), CANNOT_INSTALL)
        _install_for_cpu(place, arguments, log)
        # In scratch, because setuptools builds in the directory itself.
        copy = place.scratch / stub.name
        shutil.copytree(stub, copy, dirs_exist_ok=True)
        options = ["--no-deps", "--no-index", "--no-build-isolation", "--force-reinstall"]
        log.run(place.pip("install", *options, str(copy)), CANNOT_INSTALL)

    what = f"{requirement} (for CPUs{'' if is_hashed else '; pinned by version, not by hash'})"
    source = "the package index, or else PyTorch's"
    fetch = Fetch(what, source, *locked_size(place.root, "torch-cpu"))
    files = sorted(path for path in stub.rglob("*") if path.suffix in (".py", ".toml"))
    return Step(
        "torch-cpu",
        "torch for CPUs",
        lambda: digest(requirement, lock, *files) if is_hashed else digest(requirement, *files),
        install,
        60,
        2 * fetch.download_mb + fetch.disk_mb,
        fetches=(fetch,),
    )


def _install_for_cpu(place: Place, arguments: Sequence[str], log: Log) -> None:
    """Install torch from the user's own index, or else from PyTorch's."""
    try:
        log.run(place.pip("install", "--no-deps", *arguments), CANNOT_INSTALL)
    except SetupError as error:
        if error.exit_code != NO_NETWORK:
            raise
        command = place.pip("install", "--no-deps", "--extra-index-url", CPU_INDEX, *arguments)
        log.run(command, CANNOT_INSTALL)


def packages_of_stack(place: Place) -> Step:
    what = f"NeMo, Qwen3-TTS and what they use ({STACK})"
    return packages(place, STACK, what, 90, already="requirements.lock", unfit=SUPERSEDED)


def locked_versions(lock: Path) -> Mapping[str, list[str]]:
    """Name -> its versions in a lock file; several where they depend on Python's version."""
    versions: dict[str, list[str]] = {}
    text = lock.read_text()
    for name, version in re.findall(r"^([A-Za-z0-9][\w.\-]*)==([^\s;]+)", text, re.MULTILINE):
        versions.setdefault(name, []).append(version)
    return versions
