"""The steps from a bare checkout to a server that can start; each runs once for its inputs."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.setup import own_wheel
from app.setup.commands import Log
from app.setup.failures import SetupError
from app.setup.llama import LlamaWheel, typical_build_s
from app.setup.needs import BASE_NEEDS, Cuda, Needs
from app.setup.owner_packages import OwnerPackages
from app.setup.place import Place, digest
from app.setup.plan import INDEX, Fetch, locked_size

BEFORE_PIP = ("environment", "bootstrap")
"""Steps that must be done before pip can be used."""
PYTHON_TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
ABI = f"{sysconfig.get_config_var('SOABI')} {platform.machine()}"
"""What compiled packages depend on; it stays the same across Python's patch releases."""


@dataclass(frozen=True)
class Step:
    name: str
    title: str
    inputs: Callable[[], str]
    """The digest that its stamp must contain."""
    run: Callable[[Log], None]
    typical_s: float = 5.0
    checkout_mb: int = 0
    """Counts wheels twice: pip puts them all into scratch, in the checkout, before it unpacks any,
    and keeps them in its cache."""
    cache_mb: int = 0
    fetches: tuple[Fetch, ...] = ()
    """Its downloads, for the plan."""
    due: bool = False
    """Whether to run it whatever its stamp says."""
    prepare: Callable[[Log], None] | None = None
    """Its slow part, which needs only pip: it runs in parallel with the steps before this one."""

    def is_done(self, place: Place) -> bool:
        return not self.due and place.stamps.read(self.name) == self.inputs()


def base_steps(place: Place, *, with_tests: bool) -> list[Step]:
    """The steps up to a program that can read the settings. Each relies on those before it."""
    dev = packages(place, "requirements-dev.lock")
    # It includes all of requirements.lock, so an environment for tests can also serve.
    lock = dev.name if with_tests or dev.is_done(place) else "requirements.lock"
    env = environment(place)
    steps = [env, pip_and_setuptools(place), packages(place, lock), project(place)]
    owners = OwnerPackages(place)
    is_emptied = not (env.is_done(place) or keeps_packages(place))
    if owners.is_kept() or (is_emptied and owners.requirements()):
        title = "Your own packages"
        steps.append(Step("owner-packages", title, lambda: "", owners.put_back, due=True))
    return steps


def environment(place: Place) -> Step:
    def make(log: Log) -> None:
        venv = [place.base_python, "-I", "-m", "venv"]
        cannot = "the virtual environment .venv could not be made"
        if keeps_packages(place):
            # venv leaves links as they are, even if they lead nowhere.
            for link in (place.venv / "bin").glob("python*"):
                link.unlink()
            log.run([*venv, "--upgrade", "--without-pip", str(place.venv)], cannot)
            return
        # Keep an environment made by hand; recreate one that is incomplete, was moved here or was
        # made with another Python.
        if place.stamps.read("environment") is None and _has_pip(place):
            return
        OwnerPackages(place).keep()
        log.run([*venv, "--clear", str(place.venv)], cannot)

    inputs = f"{ABI}\n{place.base_python}\n{place.venv}"
    return Step("environment", "Python environment", lambda: inputs, make, 8, 30)


def keeps_packages(place: Place) -> bool:
    """Whether the environment is here, and its packages fit this Python, which may be another patch
    release or in another place."""
    abi, *others = (place.stamps.read("environment") or "").splitlines() or [""]
    if others:
        return abi == ABI and others[-1] == str(place.venv)
    # Up to 0.2 the stamp was a digest.
    config = place.venv / "pyvenv.cfg"
    text = config.read_text() if abi and config.is_file() else ""
    major, minor = sys.version_info[:2]
    here = re.search(rf"^command = .* {re.escape(str(place.venv))}$", text, re.MULTILINE)
    return bool(here and re.search(rf"^version = {major}\.{minor}\.", text, re.MULTILINE))


def _has_pip(place: Place) -> bool:
    command = [str(place.python), "-I", "-m", "pip", "--version"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def pip_and_setuptools(place: Place) -> Step:
    """Pin pip, because we parse its output; setuptools and hatchling build packages."""
    lock = place.root / "script" / "bootstrap.lock"

    def install(log: Log) -> None:
        command = place.pip("install", "--require-hashes", "-r", str(lock))
        log.run(command, "pip and setuptools could not be installed")

    return Step("bootstrap", "pip and setuptools", lambda: digest(lock), install, 5, 20)


def packages(
    place: Place,
    name: str,
    what: str = "",
    typical_s: float = 60,
    *,
    already: str = "",
    unfit: Sequence[str] = (),
) -> Step:
    """The packages of a lock file, once those that are ``unfit`` beside them are gone. ``what``: in
    the plan; ``already``: as for ``locked_size``."""

    def install(log: Log) -> None:
        if unfit:  # whatever the stamps say: pip skips packages that are not installed
            cannot = f"packages that conflict with {name} could not be removed"
            log.run(place.pip("uninstall", "-y", *unfit), cannot)
        install_locked(place, name, log)

    lock, title = place.root / name, f"packages of {name}"
    fetch = Fetch(what or title, INDEX, *locked_size(place.root, name, already))
    room_mb = 2 * fetch.download_mb + fetch.disk_mb
    return Step(
        name,
        title.capitalize(),
        lambda: digest(lock),
        install,
        typical_s,
        room_mb,
        fetches=(fetch,),
    )


def extras(place: Place, names: Sequence[str]) -> list[Step]:
    """Packages of single engines. An environment for tests has them all."""
    if packages(place, "requirements-dev.lock").is_done(place):
        return []
    return [packages(place, f"requirements-{name}.lock") for name in names]


def install_locked(place: Place, name: str, log: Log) -> None:
    # The lock names every package, so pip resolves nothing; source packages are built with the
    # pinned setuptools, not with a freshly fetched one.
    options = ["--require-hashes", "--no-deps", "--no-build-isolation", "-r", place.root / name]
    command = place.pip("install", *map(str, options))
    log.run(command, f"the packages of {name} could not be installed")


def llama(place: Place, cuda: Cuda | None = None, *, pictures: bool = False) -> Step:
    """llama.cpp with what the settings use of it; a cached build with pictures will always do."""
    wheel = LlamaWheel(place, PYTHON_TAG, cuda)
    if not pictures and wheel.cached() is None:
        wheel = LlamaWheel(place, PYTHON_TAG, cuda, pictures=False)
    if wheel.cached() is not None:
        title = f"llama.cpp {'as shipped' if wheel.shipped else 'from the cache'}"
        return Step(
            "llama", title, lambda: wheel.key, wheel.install, 5, 80 if cuda is None else 400
        )
    this = "every x86-64 CPU" if wheel.portable else "this CPU" if cuda is None else "this GPU"
    title = f"llama.cpp, compiled for {this}"
    download_mb, _ = locked_size(place.root, "script/llama-cpp.lock")
    compile_s = typical_build_s(cuda, pictures=pictures)
    kept_mb = 130 if cuda is None else 800  # the wheel in the cache, and installed
    fetch = Fetch(title, INDEX, download_mb, kept_mb, compile_s)
    return Step(
        "llama",
        title,
        lambda: wheel.key,
        wheel.install,
        typical_s=compile_s,
        checkout_mb=80 if cuda is None else 400,
        cache_mb=750 if cuda is None else 2500,
        fetches=(fetch,),
        prepare=wheel.prepare,
    )


def project(place: Place) -> Step:
    """The program itself: this checkout, or an installed wheel."""
    pyproject = place.root / "pyproject.toml"

    def install(log: Log) -> None:
        options = ["--no-deps", "--no-index", "--no-build-isolation"]
        if place.data is None:
            options += ["-e", str(place.root)]
        else:
            options += ["--force-reinstall", str(own_wheel.pack(place.scratch))]
        command = place.pip("install", *options)
        log.run(command, "reachy-voice itself could not be installed", cwd=place.home)

    def inputs() -> str:
        return digest(pyproject) if place.data is None else own_wheel.identity()

    return Step("project", "reachy-voice", inputs, install, 5, 1)


def weights(
    place: Place,
    name: str,
    more: Sequence[str],
    needs: Needs = BASE_NEEDS,
    settings: Sequence[str] = (),
) -> Step:
    """Weights for the ``settings`` (options of the program), with their ``needs``, and ``more``."""
    pull = [str(place.program), "models", "pull"]
    commands = [[*pull, *settings], [*pull, *more]] if more else [[*pull, *settings]]

    def inputs() -> str:
        # The cache's listing is an input too, so that deleted weights are pulled again.
        config = place.root / "config"
        here = sorted(path.name for path in (place.cache / "weights").glob("*"))
        env = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("REACHY_VOICE"))
        files = (config / "weights.yaml", config / "default.yaml")
        return digest(str(place.cache), *files, *more, *env, *here, *settings)

    def run(log: Log) -> None:  # it shows its own progress
        for command in commands:
            if status := subprocess.run(command, check=False).returncode:
                raise SetupError(
                    status if status > 0 else 1,
                    "the weights could not be fetched",
                    "see above",
                    f"{' '.join(command)}    (or run this again: it resumes here)",
                )

    fetches = tuple(
        Fetch(f"{each.name} ({each.licence})", each.source, size_mb, size_mb)
        for each in needs.missing
        for size_mb in [round(each.size / 1e6)]
    )
    to_fetch_mb = sum(fetch.download_mb for fetch in fetches)
    return Step(
        name,
        "Weights",
        inputs,
        run,
        30,
        cache_mb=to_fetch_mb,
        fetches=fetches,
        due=bool(needs.missing),
    )


def clear_scratch(place: Place) -> None:
    """Delete what an interrupted setup may have left."""
    shutil.rmtree(place.scratch, ignore_errors=True)
    place.scratch.mkdir(parents=True)
