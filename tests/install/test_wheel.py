"""The wheel alone, without the checkout: setup, serve, ask; first without a compiler."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from app.setup.failures import NO_COMPILER
from app.setup.llama import LlamaWheel
from app.setup.place import Place
from app.setup.steps import PYTHON_TAG
from tests.support.far_server import FarServer, serving
from tests.support.places import ROOT
from tests.support.programs import running
from tests.support.recordings import POCKETSPHINX

pytestmark = [pytest.mark.engines, pytest.mark.real, pytest.mark.timeout(600)]

REAL_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
ON_A_FREE_PORT = ("--set", "server.port=0", "--set", "server.announce=false")


@dataclass
class Machine:
    """A separate home with the wheel in a separate environment."""

    program: Path
    home: Path
    compilers: str = ""
    """``PATH``."""

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        return {
            **kept,
            "HOME": str(self.home),
            "PATH": self.compilers,
            "PIP_CACHE_DIR": str(REAL_CACHE / "pip"),
            "OMP_WAIT_POLICY": "passive",
        }

    @property
    def cache(self) -> Path:
        return self.home / ".cache" / "reachy-voice"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.program), *arguments],
            env=self.environ,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )


def _do(*command: str | Path) -> None:
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def _wheel(source: Path, folder: Path) -> Path:
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    _do(sys.executable, "-m", "pip", "wheel", "-q", *offline, "-w", folder, source)
    (wheel,) = folder.glob("reachy_voice-*.whl")
    return wheel


def _install(machine: Machine, *what: str | Path) -> None:
    pip = [sys.executable, "-m", "pip", "--python", machine.program.with_name("python")]
    _do(*pip, "install", "-q", *what)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    home = tmp_path_factory.mktemp("home")
    venv = home / "environment"
    wheel = _wheel(ROOT, home / "wheels")
    _do(sys.executable, "-m", "venv", "--without-pip", venv)
    pins = home / "pins.txt"  # without hashes, since the wheel has none
    locked = (ROOT / "requirements.lock").read_text().splitlines()
    pins.write_text("\n".join(line.rstrip(" \\") for line in locked if "==" in line))
    made = Machine(venv / "bin" / "reachy-voice", home)
    _install(made, "--constraint", pins, wheel)
    made.cache.mkdir(parents=True)
    (made.cache / "weights").symlink_to(REAL_CACHE / "reachy-voice" / "weights")
    return made


@pytest.fixture(scope="module")
def without_compiler(machine: Machine) -> subprocess.CompletedProcess[str]:
    return machine.run("setup")


@pytest.fixture(scope="module")
def ready(machine: Machine, without_compiler: subprocess.CompletedProcess[str]) -> Machine:
    """Later, with llama.cpp in the cache, so nothing needs to be compiled."""
    (machine.cache / "wheels").symlink_to(compiled().parents[1])
    done = machine.run("setup")
    assert done.returncode == 0, done.stderr
    return machine


def test_without_a_compiler_it_names_it_and_sets_up_the_rest(
    machine: Machine, without_compiler: subprocess.CompletedProcess[str]
) -> None:
    for told in (without_compiler, machine.run("setup", "--config", "remote")):
        assert told.returncode == NO_COMPILER, told.stderr
        assert "apt-get install gcc g++" in told.stderr
        assert "reachy-voice serve --config remote" in told.stderr
    default = machine.run("ask", str(POCKETSPHINX / "cards/001.wav"))
    assert default.returncode == 5
    assert "reachy-voice setup" in default.stderr


async def test_without_a_compiler_it_serves_with_remote_models(
    machine: Machine, without_compiler: subprocess.CompletedProcess[str]
) -> None:
    async with serving(FarServer()) as far:
        urls = _words("--set", [f"{kind}.url={far.url}" for kind in ("stt", "llm", "tts")])
        command = [str(machine.program), "serve", "--config", "remote", *ON_A_FREE_PORT, *urls]
        async with running(*command, ready="Ready.", env=machine.environ, cwd=machine.home):
            pass


async def test_the_wheel_alone_serves(ready: Machine) -> None:
    command = [str(ready.program), "serve", *ON_A_FREE_PORT]
    async with running(*command, ready="Ready.", env=ready.environ, cwd=ready.home) as server:
        console = (await server.until("/console/")).split()[-1]
        async with httpx.AsyncClient() as client:
            page = await client.get(console)
            assert page.status_code == 200
            assert "<script" in page.text
            script = await client.get(f"{console}console.js")
            assert script.status_code == 200


def test_the_wheel_alone_answers_a_question(ready: Machine) -> None:
    done = ready.run("ask", "--json", str(POCKETSPHINX / "cards/001.wav"))
    assert done.returncode == 0, done.stderr
    turn = json.loads(done.stdout)
    assert "ten of clubs" in turn["heard"].lower()
    assert turn["answered"]


def test_its_environment_outlives_what_installed_it(ready: Machine) -> None:
    """``uvx`` and ``pipx run`` keep theirs only for some days."""
    own = ready.home / ".local/share/reachy-voice/.venv/bin/reachy-voice"
    moved = ready.program.parents[1].rename(ready.home / "gone")
    try:
        shown = subprocess.run(
            [own, "config", "check"], env=ready.environ, capture_output=True, check=False
        )
        assert shown.returncode == 0, shown.stderr
    finally:
        moved.rename(ready.program.parents[1])


def test_an_upgrade_replaces_the_installed_program(ready: Machine, tmp_path: Path) -> None:
    """The new version ships llama.cpp, which replaces the compiled one."""
    source = tmp_path / "source"
    for folder in ("app", "config", "hardware", "pipeline", "script"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for file in (*ROOT.glob("requirements*.lock"), *map(ROOT.joinpath, ("README.md", "LICENSE"))):
        shutil.copy(file, source)
    project = (ROOT / "pyproject.toml").read_text()
    (source / "pyproject.toml").write_text(
        re.sub(r'(?m)^version = ".+"', 'version = "99"', project)
    )
    (source / "build" / "shipped").mkdir(parents=True)
    shutil.copy(compiled(), source / "build" / "shipped")
    wheel = _wheel(source, tmp_path)
    assert wheel.name == "reachy_voice-99-py3-none-linux_x86_64.whl"
    _install(ready, "--no-deps", "--no-index", wheel)
    early = ready.run("service", "install")
    assert early.returncode == 3, early.stderr
    assert "reachy-voice setup" in early.stderr
    done = ready.run("setup")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Everything is set up. Next: reachy-voice serve\n"
    stays = Machine(ready.home / ".local/share/reachy-voice/.venv/bin/reachy-voice", ready.home)
    assert stays.run("--version").stdout == "99\n"
    assert stays.run("config", "check").returncode == 0
    stamp = stays.program.parents[1] / ".setup" / "llama"
    assert stamp.read_text().startswith("shipped-")
    shown = stays.run("setup", "--plan")
    assert "Nothing needs to be fetched." in shown.stderr


def compiled() -> Path:
    """The llama.cpp compiled by this checkout's setup."""
    place = Place(ROOT, REAL_CACHE / "reachy-voice", sys.executable)
    wheel = LlamaWheel(place, PYTHON_TAG).cached()
    if wheel is None:
        pytest.fail("llama.cpp is not in the cache: run script/test --setup-only")
    return wheel


def _words(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (option, value)]
