"""llama-cpp-python, compiled once, for this processor or (portable) for every x86-64 one. The wheel
is kept for later environments."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from app.setup.commands import Log
from app.setup.computer import (
    architecture,
    compile_jobs,
    own_instructions,
    processor,
    usable_cores,
)
from app.setup.needs import Cuda
from app.setup.place import Place, completed, digest, locked

# GGML_NATIVE compiles for this processor alone, so the wheel's key includes its instruction sets.
NATIVE_FLAG = "-DGGML_NATIVE=ON"
# One library for each kind of processor; ggml takes the best when they are loaded
# (pipeline/engines/llm/llama_api.py), from the folder of the others.
PORTABLE_FLAGS = (
    "-DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON "
    "-DCMAKE_INSTALL_BINDIR=llama_cpp/lib"
)
# The library alone: no server, no tools. LLAVA_BUILD is mtmd, which reads pictures.
CMAKE_FLAGS = (
    "-DLLAVA_BUILD=ON -DMTMD_VIDEO=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF "
    "-DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF "
    f"{NATIVE_FLAG} "
    # Without ggml's code for AMX tiles: compiled by GCC before 13.3 it crashes at the first token,
    # since the compiler drops most of the tiles' configuration (ggml-org/llama.cpp#26954).
    "-DCMAKE_C_FLAGS_INIT=-U__AMX_INT8__ -DCMAKE_CXX_FLAGS_INIT=-U__AMX_INT8__"
)
# For settings without pictures: no mtmd, and no llama-common, which only mtmd uses. The package
# turns the latter on in CMake's cache; a variable of the same name, set first, hides that.
BLIND_FLAGS = CMAKE_FLAGS.replace("-DLLAVA_BUILD=ON", "-DLLAVA_BUILD=OFF")
BLIND_INCLUDE = "set(LLAMA_BUILD_COMMON OFF)\n"
# Added for a GPU. "native" is the GPU in this machine; ggml turns it into Blackwell's own variant.
# NCCL is for several GPUs.
CUDA_FLAGS = "-DGGML_CUDA=ON -DGGML_CUDA_NCCL=OFF -DCMAKE_CUDA_ARCHITECTURES=native"
COMPILER_S, BLIND_COMPILER_S = 580, 170
"""Processor seconds of the build with pictures and without, 2025 server core, with other work
running: 541 user + 37 system, and 157 + 10."""
PORTABLE_COMPILER_S = 600
"""Additional processor seconds for 14 kinds of processor, same core: 718 + 53 without pictures."""
CUDA_COMPILER_S = 3300
"""Additional processor seconds for the GPU's code: for an H100, 11 compilers at once took 337 s
with nvcc 13.0, without pictures."""
CUDA_GB_PER_COMPILER = 2
"""nvcc takes more memory than a C++ compiler. An estimate."""

PORTABLE = "REACHY_VOICE_PORTABLE"
"""Set in containers: build for every x86-64 processor. On other processors it has no effect."""
SHIPPED = "shipped"
"""Folder of the portable build that the program's own wheel may contain."""
PROCESSOR_STAMP = "llama-processor"
"""The instructions of the processor that llama.cpp was compiled for."""
CANNOT_BUILD = "llama-cpp-python could not be built"


def lock_file(root: Path) -> Path:
    return root / "script" / "llama-cpp.lock"


def pinned_version(lock: str) -> str:
    """The version in a lock file with this one package."""
    match = re.search(r"^llama-cpp-python==(\S+)", lock, re.MULTILINE)
    assert match, "script/llama-cpp.lock does not pin llama-cpp-python"
    return match[1]


def wheel_key(lock: str, python_tag: str, flags: str, instructions: str) -> str:
    """Name of the cached wheel's directory, from everything that changes the binary."""
    inputs = digest(lock, flags, instructions)[:16]
    return f"{pinned_version(lock)}-{python_tag}-{inputs}"


def shipped_wheel(root: Path, version: str) -> Path | None:
    """A portable build that came with the program, if it is for this kind of machine
    (``script/wheel_hook.py``)."""
    fits = sys.platform == "linux" and platform.machine() == "x86_64"
    wheels = (root / SHIPPED).glob(f"llama_cpp_python-{version}-*.whl") if fits else ()
    return next(iter(wheels), None)


class LlamaWheel:
    """``CACHE/wheels/KEY/``: a wheel and its sha256; the directory appears when it is complete."""

    def __init__(
        self, place: Place, python_tag: str, cuda: Cuda | None = None, *, pictures: bool = True
    ) -> None:
        """``cuda``: also compile for this GPU; without an nvcc, keep the installed build.
        ``pictures``: with mtmd."""
        self.place = place
        self.cuda = cuda
        self.pictures = pictures
        self.portable = cuda is None and portable()
        lock = lock_file(place.root).read_text()
        flags = cmake_flags(cuda, pictures=pictures) + ("" if pictures else BLIND_INCLUDE)
        if cuda is not None:
            flags += f" {cuda.version} {cuda.capability}"
        runs_on = architecture() if self.portable else processor()
        self.key = wheel_key(lock, python_tag, flags, runs_on)
        shipped = None if cuda else shipped_wheel(place.root, pinned_version(lock))
        self.shipped = shipped
        if shipped:
            self.key = f"shipped-{_sha256(shipped)[:16]}"
        if self._is_kept:
            # Accept the installed build, whatever an earlier setup built it with.
            self.key = place.stamps.read("llama") or self.key
        self.home = place.wheels / self.key

    @property
    def _is_kept(self) -> bool:
        return self.cuda is not None and not self.cuda.nvcc

    def cached(self) -> Path | None:
        """The wheel, unless it is damaged."""
        if self.shipped:
            return self.shipped
        wheel, checksum = next(self.home.glob("llama_cpp_python-*.whl"), None), self.home / "sha256"
        whole = wheel and checksum.is_file() and checksum.read_text() == _sha256(wheel)
        return wheel if whole else None

    def prepare(self, log: Log) -> None:
        """Build the wheel, unless it is cached."""
        if not self._is_kept:
            self.get(log)

    def install(self, log: Log) -> None:
        """Build the wheel unless it is cached, install it, and check that it loads."""
        if not self._is_kept:
            self._install(log)
        code = "import llama_cpp"
        if self.cuda is not None:
            code += "; assert llama_cpp.llama_supports_gpu_offload(), 'no GPU backend'"
        loads = [str(self.place.python), "-I", "-c", code]
        wheel = self.shipped or self.home
        fails = f"llama-cpp-python does not load; delete {wheel} to compile it here"
        # As in a service, which lacks this variable; to the loader, an empty one is unset.
        log.run(loads, fails, {"LD_LIBRARY_PATH": ""})

    def _install(self, log: Log) -> None:
        options = ["--no-deps", "--no-index", "--force-reinstall", str(self.get(log))]
        log.run(self.place.pip("install", *options), "llama-cpp-python could not be installed")
        instructions = "" if self.portable or self.shipped else own_instructions()
        self.place.stamps.write(PROCESSOR_STAMP, instructions)

    def get(self, log: Log) -> Path:
        """The wheel: from the cache, or built now."""
        with locked(self.place.wheels / f"{self.key}.lock", "another build of llama-cpp-python"):
            return self.cached() or self._build(log)

    def _build(self, log: Log) -> Path:
        with completed(self.home) as unfinished:
            # Not in the checkout's scratch, which other steps clear.
            with build_tools(self.place, log, unfinished / "build") as tools:
                self._compile(tools, unfinished, log)
            wheel = next(unfinished.glob("*.whl"))
            (unfinished / "sha256").write_text(_sha256(wheel))
        return self.home / wheel.name

    def _compile(self, tools: Path, output: Path, log: Log) -> None:
        sources = ["--require-hashes", "-r", str(lock_file(self.place.root))]
        options = ["--no-deps", "--no-build-isolation", "--no-cache-dir", "-w", str(output), "-v"]
        build = self.place.pip("--python", str(tools), "wheel", *options, *sources)
        environ = build_environment(tools, os.environ, self.cuda, pictures=self.pictures)
        log.run(build, CANNOT_BUILD, environ)


@contextmanager
def build_tools(place: Place, log: Log, directory: Path) -> Iterator[Path]:
    """A temporary environment with CMake, ninja and the build backend, and room for their files."""
    tools = directory / "tools"
    try:
        tools.mkdir(parents=True)
        make = [place.base_python, "-I", "-m", "venv", "--without-pip", str(tools)]
        own = {"TMPDIR": str(directory)}
        log.run(make, CANNOT_BUILD, own)
        lock = place.root / "script" / "llama-cpp-build.lock"
        locked_tools = ["--require-hashes", "-r", str(lock)]
        log.run(place.pip("--python", str(tools), "install", *locked_tools), CANNOT_BUILD, own)
        yield tools
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def cmake_flags(cuda: Cuda | None, *, pictures: bool = True) -> str:
    flags = CMAKE_FLAGS if pictures else BLIND_FLAGS
    if cuda is not None:
        return f"{flags} {CUDA_FLAGS}{_runtime_path(cuda)}"
    return flags.replace(NATIVE_FLAG, PORTABLE_FLAGS) if portable() else flags


def _runtime_path(cuda: Cuda) -> str:
    """Linker flag for finding CUDA's libraries where the loader does not look. CMake leaves out
    their folder, because the compiler searches it anyway."""
    compiler = Path(cuda.nvcc)
    roots = (compiler.parent.parent, compiler.resolve().parent.parent)
    folders = [root / name for root in roots for name in ("lib64", "lib")]
    folder = next((each for each in folders if any(each.glob("libcudart.so*"))), None)
    flag = f"-DCMAKE_SHARED_LINKER_FLAGS_INIT=-Wl,-rpath,{folder}"
    return f" {shlex.quote(flag)}" if folder else ""


def portable() -> bool:
    """Whether to build for an image, which runs on machines other than the one that builds it."""
    return bool(os.environ.get(PORTABLE)) and platform.machine() == "x86_64"


def build_environment(
    tools: Path, environ: Mapping[str, str], cuda: Cuda | None = None, *, pictures: bool = True
) -> dict[str, str]:
    """Variables that the build adds; keeps the caller's number of parallel compilers."""
    jobs = environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(_jobs(cuda))
    flags = cmake_flags(cuda, pictures=pictures)
    if not pictures:
        include = tools / "blind.cmake"
        include.write_text(BLIND_INCLUDE)
        flags += f" -DCMAKE_PROJECT_llama_cpp_INCLUDE={shlex.quote(str(include))}"
    variables = {
        "PATH": f"{tools / 'bin'}{os.pathsep}{environ.get('PATH', os.defpath)}",
        "TMPDIR": str(tools.parent),
        "CMAKE_ARGS": flags,
        "CMAKE_GENERATOR": "Ninja",
        "CMAKE_BUILD_PARALLEL_LEVEL": jobs,
    }
    return variables if cuda is None else {**variables, "CUDACXX": cuda.nvcc}


def _jobs(cuda: Cuda | None) -> int:
    try:
        meminfo = Path("/proc/meminfo").read_text()
    except OSError:
        meminfo = ""
    return compile_jobs(usable_cores(), meminfo, 1 if cuda is None else CUDA_GB_PER_COMPILER)


def typical_build_s(cuda: Cuda | None, *, pictures: bool) -> float:
    compiler_s = COMPILER_S if pictures else BLIND_COMPILER_S
    if cuda is not None:
        compiler_s += CUDA_COMPILER_S
    elif portable():
        compiler_s += PORTABLE_COMPILER_S
    return 20 + compiler_s / usable_cores()
