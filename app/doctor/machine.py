"""Can this machine run the engines: GPU, CUDA, Python, C library, memory?

It needs only the base, because setup runs ``check_machine`` before it downloads anything else.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import psutil

from app.doctor.engine_needs import GPU_FOR_REAL_TIME, EngineNeeds
from app.doctor.installed import SETUP, llama_has_cuda
from app.models.engine_memory import GpuLoad
from app.models.gpu import (
    GPU_SHARE,
    LEAST_CAPABILITY,
    LEAST_DRIVER,
    Gpu,
    Gpus,
    dotted_text,
    find_nvcc,
    nvcc_version,
    version,
)
from app.setup.finding import Check
from app.setup.stack import CUDA

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
NO_CPU = "is slower than speech on a CPU"
SMALLER = "Choose a profile for a smaller GPU, or smaller models: reachy-voice models list"


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
    memory = psutil.virtual_memory()
    total_mb, available_mb = memory.total // 10**6, memory.available // 10**6
    return [*checks, check_memory(needs.memory_mb, total_mb, available_mb)]


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


# --- memory ------------------------------------------------------------------------------------


def check_memory(needed_mb: int, total_mb: int, available_mb: int) -> Check:
    """``available_mb``: memory that programs can still take without swapping."""
    detail = f"{available_mb:,} of {total_mb:,} MB available, about {needed_mb:,} MB needed"
    if total_mb < needed_mb:
        return Check("memory", "fail", detail, "Choose smaller models: reachy-voice models list")
    if available_mb < needed_mb:
        return Check("memory", "warn", detail, "Close other programs, or choose smaller models")
    return Check("memory", "ok", detail)


def check_gpu_memory(loads: Sequence[GpuLoad], here: int) -> Iterator[Check]:
    """``here``: the number of GPUs. A GPU that shares main memory counts there instead
    (``EngineNeeds.memory_mb``)."""
    for load in loads:
        if load.gpu is None:
            fix = f"Name one from cuda:0 to cuda:{here - 1}, or use auto"
            detail = f"an engine's device is cuda:{load.number}, but only {here} GPUs are visible"
            yield Check("GPU memory", "fail", detail, fix)
        elif load.memory_mb:
            yield _gpu_memory(load, f"{load.gpu.name}: " if here > 1 else "")


def _gpu_memory(load: GpuLoad, whose: str) -> Check:
    detail = f"{whose}{load.memory_mb:,} MB, about {load.needed_mb:,} MB needed"
    if load.needed_mb > load.memory_mb:
        return Check("GPU memory", "fail", detail, SMALLER)
    if load.spread:
        detail += " in all; llama.cpp spreads what the first cannot hold"
        fix = "Move engines (stt.device: cuda:1, tts.device: cuda:1), or choose smaller models"
        return Check("GPU memory", "warn", detail, fix)
    if load.needed_mb > GPU_SHARE * load.memory_mb:
        fix = "Close other programs that use the GPU (see nvidia-smi), or choose smaller models"
        return Check("GPU memory", "warn", detail, fix)
    return Check("GPU memory", "ok", detail)
