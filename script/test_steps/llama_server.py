"""llama-server, for tests: its own sources, compiled on the libraries of our llama.cpp wheel."""

from __future__ import annotations

import re
import tarfile
import zipfile
from pathlib import Path

from app.setup.commands import Log
from app.setup.computer import usable_cores
from app.setup.llama import CANNOT_BUILD, LlamaWheel, build_environment, build_tools, lock_file
from app.setup.place import Place, completed, digest, locked
from app.setup.plan import INDEX, Fetch, locked_size
from app.setup.steps import PYTHON_TAG, Step

COMPILER_S = 97
"""Processor seconds: 93 user + 4 system measured, 2025 server core, with other work running."""
_LIBRARY = re.compile(r"lib/(lib[\w-]+\.so(\.\d+)?)")


class LlamaServer:
    """``CACHE/llama-server/KEY/``: the program and the libraries that it loads."""

    def __init__(self, place: Place, wheel: LlamaWheel) -> None:
        self.place = place
        self.wheel = wheel
        self.project = place.root / "script" / "llama_server"
        key = f"{wheel.key}-{digest(self.project / 'CMakeLists.txt')[:8]}"
        self.home = place.cache / "llama-server" / key
        self.program = self.home / "llama-server"

    def build(self, log: Log) -> None:
        """Build it, unless it is in the cache."""
        with locked(self.home.with_name(f"{self.home.name}.lock"), "another build of llama-server"):
            if not self.program.exists():
                wheel = self.wheel.get(log)
                tools_folder = self.place.scratch / "llama-tools"
                with (
                    completed(self.home) as unfinished,
                    build_tools(self.place, log, tools_folder) as tools,
                ):
                    _unpack_libraries(wheel, unfinished)
                    self._compile(tools, unfinished, log)
        log.run([str(self.program), "--version"], f"llama-server does not run; delete {self.home}")

    def _compile(self, tools: Path, output: Path, log: Log) -> None:
        environ = build_environment(tools, log.env)
        scratch = self.place.scratch / "llama-server"
        options = ["--no-deps", "--no-build-isolation", "--no-binary=:all:", "-d", str(scratch)]
        sources = ["--require-hashes", "-r", str(lock_file(self.place.root))]
        fetch = self.place.pip("--python", str(tools), "download", *options, *sources)
        log.run(fetch, CANNOT_BUILD, environ)
        with tarfile.open(next(scratch.glob("llama_cpp_python-*.tar.gz"))) as archive:
            archive.extractall(scratch, filter="data")
        llama = next(scratch.glob("llama_cpp_python-*/vendor/llama.cpp"))
        cmake, into = str(tools / "bin" / "cmake"), str(scratch / "build")
        definitions = [f"-DLLAMA={llama}", f"-DLIBRARIES={output}", "-DCMAKE_BUILD_TYPE=Release"]
        configure = [cmake, "-S", str(self.project), "-B", into, *definitions]
        log.run([*configure, f"-DCMAKE_RUNTIME_OUTPUT_DIRECTORY={output}"], CANNOT_BUILD, environ)
        log.run([cmake, "--build", into, "--target", "llama-server"], CANNOT_BUILD, environ)


def _unpack_libraries(wheel: Path, directory: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if library := _LIBRARY.fullmatch(name):
                (directory / library[1]).write_bytes(archive.read(name))


def typical_build_s() -> float:
    return 20 + COMPILER_S / usable_cores()


def llama_server(place: Place) -> Step:
    """For tests only. Its stamp names the program's directory in the cache."""
    server = LlamaServer(place, LlamaWheel(place, PYTHON_TAG))
    title = "llama-server, for tests"
    if server.program.exists():
        return Step("llama-server", title, lambda: str(server.home), server.build)
    download_mb, _ = locked_size(place.root, "script/llama-cpp.lock")
    compile_s = typical_build_s()
    return Step(
        "llama-server",
        title,
        lambda: str(server.home),
        server.build,
        typical_s=compile_s,
        checkout_mb=450,
        cache_mb=30,
        fetches=(Fetch(title, INDEX, download_mb, 30, compile_s),),
        due=True,
    )
