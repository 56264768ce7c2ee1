"""Can this machine run engines on a GPU, and do the installed packages fit together?

``check_machine`` needs only the base, because setup runs it before it downloads anything else.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from app.doctor.memory import check_gpu_memory, check_memory, memory_mb
from app.doctor.needs import GPU_FOR_REAL_TIME, EngineNeeds
from app.models.gpu import (
    LEAST_CAPABILITY,
    LEAST_DRIVER,
    Gpu,
    Gpus,
    dotted_text,
    find_nvcc,
    nvcc_version,
    version,
)
from app.settings.load import config_dir
from app.setup.finding import Check
from app.setup.stack import CUDA, TORCHAUDIO_STUB, locked_versions

NVCC_FOR: Mapping[tuple[int, ...], tuple[int, ...]] = {
    (7, 5): (10, 0),
    (8, 0): (11, 0),
    (8, 6): (11, 1),
    (8, 7): (11, 4),
    (8, 9): (11, 8),
    (9, 0): (11, 8),
    (10, 0): (12, 8),
    (10, 1): (12, 8),
    (10, 3): (12, 9),
    (11, 0): (13, 0),
    (12, 0): (12, 8),
    (12, 1): (12, 9),
}
"""GPU's compute capability -> the first CUDA whose nvcc compiles for it: CUDA's release notes."""
NVCC_FOR_OTHERS = (13, 0)
NVCC_WITHOUT_OLD = (13, 0)
"""First CUDA without GPUs before Turing; llama.cpp is compiled for all visible GPUs."""
DRIVER_FOR: Mapping[int, tuple[int, ...]] = {11: (450, 80, 2), 12: (525, 60, 13), 13: LEAST_DRIVER}
"""nvcc's major version -> the first driver that runs its output. Source: see
``app.models.gpu``."""
PYTHONS = ((3, 11), (3, 13))
"""First and last version that every package of the stack has a wheel for."""
STACK_GLIBC = (2, 34)
"""From the tag of moonshine-voice's Linux wheels, manylinux_2_34; the others need less."""
SETUP = "reachy-voice setup"
NO_CPU = "is slower than speech on a CPU"


def check_machine(needs: EngineNeeds, gpus: Gpus, setup: str = SETUP) -> list[Check]:
    """Problems that make a download pointless. ``setup``: the command that installs everything."""
    checks: list[Check] = []
    if needs.gpu_engines:
        checks += check_gpu(needs, gpus, setup)
    if needs.without_gpu and not any(check.state == "fail" for check in checks):
        detail = (
            f"{' and '.join(needs.without_gpu)} say cuda, but there is none: they will not start"
        )
        fix = " ".join(f"--set {name}=auto" for name in needs.without_gpu)
        checks.append(Check("device", "fail", detail, f"Add {fix}, or choose a profile for a CPU"))
    if slow := sorted(GPU_FOR_REAL_TIME & set(needs.kept_on_cpu)):
        detail, fix = f"{', '.join(slow)} {NO_CPU}", "Choose another voice: tts.engine=piper"
        checks.append(Check("GPU", "warn", detail, fix))
    if needs.llama == "cuda" and gpus.first is not None:
        checks += check_nvcc(gpus.found, find_nvcc(), llama_has_cuda())
    if needs.stack:
        checks += [check_python(sys.version_info[:2]), *check_glibc(*platform.libc_ver())]
    return [*checks, check_memory(needs.memory_mb, *memory_mb())]


def check_gpu(needs: EngineNeeds, gpus: Gpus, setup: str = SETUP) -> Iterator[Check]:
    engines = ", ".join(needs.gpu_engines)
    if gpus.problem:
        fix = "Restart the machine; if that does not help, reinstall NVIDIA's driver (580 or newer)"
        yield Check("GPU", "fail", f"nvidia-smi: {gpus.problem}", fix)
    elif gpus.first is None:
        yield _no_gpu(needs, engines, setup)
    else:
        yield from (_gpu(needs, gpu) for gpu in _gpus_in_use(needs, gpus))
        yield from check_gpu_memory(needs.gpu_loads, len(gpus.found))


def _gpus_in_use(needs: EngineNeeds, gpus: Gpus) -> list[Gpu]:
    """GPUs that engines use; identical ones are listed once."""
    if any(load.spread for load in needs.gpu_loads):
        return list(dict.fromkeys(gpus.found))
    numbers = [load.number for load in needs.gpu_loads] or [0]
    return list(dict.fromkeys(gpus.found[n] for n in numbers if n < len(gpus.found)))


def _no_gpu(needs: EngineNeeds, engines: str, setup: str) -> Check:
    slow = ", ".join(sorted(GPU_FOR_REAL_TIME & set(needs.gpu_engines)))
    if needs.gpu == "apple":
        if "cuda" in (needs.torch, needs.llama):
            return Check("GPU", "fail", "there is no CUDA on a Mac", f"Run: {setup} --torch cpu")
        detail = f"on a Mac {engines} would run on the CPU, and answer late"
        fix = "Choose the profile apple, or one for a CPU"
        return Check("GPU", "fail" if slow else "warn", f"{slow} {NO_CPU}" if slow else detail, fix)
    if "cuda" in (needs.torch, needs.llama):
        detail = "no NVIDIA driver, but CUDA was requested: nothing here can be compiled for it"
        fix = "Install NVIDIA's driver (580 or newer), or omit --torch cuda"
        return Check("GPU", "fail", detail, fix)
    if not slow:
        detail = f"no NVIDIA driver: {engines} would run on the CPU, and answer late"
        return Check("GPU", "warn", detail, "Choose a profile for a CPU, or install the driver")
    return Check(
        "GPU",
        "fail",
        f"no NVIDIA driver, and {slow} {NO_CPU}",
        "Install NVIDIA's driver (580 or newer), or choose a profile for a CPU; "
        f"{setup} --torch cpu installs it anyway (for devices cpu and auto)",
    )


def _gpu(needs: EngineNeeds, gpu: Gpu) -> Check:
    detail = f"{gpu.name}, driver {gpu.driver}"
    detail += f", compute capability {dotted_text(gpu.capability)}" if gpu.capability else ""
    if needs.torch == "cuda" and version(gpu.driver) < LEAST_DRIVER:
        driver = f"CUDA {CUDA} needs driver {dotted_text(LEAST_DRIVER)} or newer"
        fix = "Install a newer driver (Ubuntu: sudo ubuntu-drivers install), then restart"
        return Check("GPU", "fail", f"{detail}; {driver}", fix)
    if gpu.capability and gpu.capability < LEAST_CAPABILITY:
        least = f"CUDA 13 and torch need {dotted_text(LEAST_CAPABILITY)} (Turing) or newer"
        fix = "Choose a profile for a CPU, or servers of your own (--config remote)"
        return Check("GPU", "fail", f"{detail}; {least}", fix)
    return Check("GPU", "ok", detail)


def check_nvcc(
    gpus: Sequence[Gpu],
    nvcc: str | None,
    built: bool,
    version_of: Callable[[str], tuple[int, ...]] = nvcc_version,
) -> Iterator[Check]:
    """llama.cpp is compiled here; for layers on a GPU that needs CUDA's compiler, once."""
    if built:
        yield Check("CUDA compiler", "ok", "not needed, llama-cpp-python is built with CUDA")
        return
    package = f"NVIDIA's package cuda-toolkit-{CUDA.replace('.', '-')}"
    if nvcc is None:
        yield Check(
            "CUDA compiler",
            "fail",
            "no nvcc, so llama.cpp cannot be compiled for the GPU (llm.gpu_layers)",
            f"Install {package} "
            "(https://developer.nvidia.com/cuda-downloads), or keep the language model on the CPU: "
            "--set llm.gpu_layers=0",
        )
        return
    cuda = version_of(nvcc)
    if not cuda:
        detail = f"{nvcc} does not report its version, so it may not work: {nvcc} --version"
        yield Check("CUDA compiler", "fail", detail, f"Install {package}")
        return
    detail = f"{nvcc}, CUDA {dotted_text(cuda)}"
    lacks = [why for gpu in gpus if (why := _nvcc_lacks(cuda, gpu))]
    if lacks:
        fix = f"Install {package}, and set CUDACXX to its nvcc if there are several"
        if version(gpus[0].driver) < LEAST_DRIVER:
            fix = f"Install a newer driver, {dotted_text(LEAST_DRIVER)} or newer, and {package}"
        yield Check("CUDA compiler", "fail", f"{detail}; {lacks[0]}", fix)
        return
    yield Check("CUDA compiler", "ok", detail)


def _nvcc_lacks(cuda: tuple[int, ...], gpu: Gpu) -> str:
    """Why this nvcc cannot serve this GPU and its driver; else empty."""
    least = NVCC_FOR.get(gpu.capability, NVCC_FOR_OTHERS)
    if gpu.capability and gpu.capability < LEAST_CAPABILITY:
        if cuda >= NVCC_WITHOUT_OLD:
            return f"it cannot compile for the old {gpu.name}: hide that (CUDA_VISIBLE_DEVICES)"
    elif gpu.capability and cuda < least:
        return f"{gpu.name} ({dotted_text(gpu.capability)}) needs {dotted_text(least)} or newer"
    driver = DRIVER_FOR.get(cuda[0], LEAST_DRIVER)
    if version(gpu.driver) < driver:
        return f"its output needs driver {dotted_text(driver)} or newer, not {gpu.driver}"
    return ""


def check_python(python: tuple[int, ...]) -> Check:
    """The base runs on newer versions, but some packages of the stack have no wheels for them."""
    first, last = map(dotted_text, PYTHONS)
    if PYTHONS[0] <= python[:2] <= PYTHONS[1]:
        return Check("Python for torch", "ok", dotted_text(python[:2]))
    return Check(
        "Python for torch",
        "fail",
        f"{dotted_text(python[:2])}, but the packages have wheels for {first} to {last}",
        f"Make the environment with one of these: rm -r .venv; python{last} -m venv .venv",
    )


def check_glibc(name: str, numbers: str, system: str = sys.platform) -> Iterator[Check]:
    """Linux wheels need a recent C library; other systems need no check."""
    if system != "linux":
        return
    library = f"{name or 'unknown'} {numbers}".strip()
    if name == "glibc" and version(numbers) >= STACK_GLIBC:
        yield Check("C library", "ok", library)
        return
    detail = f"{library}, but the packages need glibc {dotted_text(STACK_GLIBC)}"
    yield Check("C library", "fail", detail, "Use Debian 12, Ubuntu 22.04 or newer")


# --- what is installed -------------------------------------------------------------------------


def setup_command(config: str | None, overrides: Sequence[str]) -> str:
    """The command that installs everything the settings need."""
    settings = ["--config", config] if config else []
    for override in overrides:
        settings += ["--set", override]
    return shlex.join([*SETUP.split(), *settings])


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
