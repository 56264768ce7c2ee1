"""Shared by many tests: weights, and one assistant with every real engine."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from blockbuster import BlockBuster

from app.models.pull import pull
from app.models.weights import WeightsCache
from app.settings.load import load_settings

# Idle OpenMP threads of one engine must not spin on cores that another needs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# The tester's own settings must not matter.
_NO_SETTINGS = tempfile.TemporaryDirectory(prefix="reachy-voice-")
os.environ["XDG_CONFIG_HOME"] = _NO_SETTINGS.name

# A busy machine is no reason for a test to fail.
hypothesis.settings.register_profile(
    "untimed",
    parent=hypothesis.settings(),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("untimed")
hypothesis.settings.register_profile(
    "quick", parent=hypothesis.settings.get_profile("untimed"), max_examples=30
)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("markexpr").startswith("quick"):
        hypothesis.settings.load_profile("quick")


CATEGORY = re.compile(
    r"^pytestmark = \[?\s*pytest\.mark\.(quick|engines|clients|machine)\b", re.MULTILINE
)
"""What a test module needs besides Python packages: nothing; weights or compiled engines;
third-party clients; programs, devices, processes or ports of this machine."""


def category(path: Path) -> str | None:
    found = CATEGORY.search(path.read_text(encoding="utf-8"))
    return found[1] if found else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """``-m quick`` does not import modules of other categories, whose packages may be missing."""
    asked = config.getoption("markexpr").partition(" ")[0]
    if collection_path.suffix != ".py" or asked not in ("quick", "engines", "clients", "machine"):
        return None
    return True if category(collection_path) not in (asked, None) else None


class CategorizedModule(pytest.Module):
    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        if category(self.path) is None:
            raise self.CollectError(
                f"{self.path.name} has no category: begin its marks with one, such as "
                "pytestmark = pytest.mark.quick (docs/contributing.md)"
            )
        return super().collect()


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    module: pytest.Module = CategorizedModule.from_parent(parent, path=module_path)
    return module


WATCH = BlockBuster(scanned_modules=["app", "hardware", "pipeline"])
# The terminal is read only when the loop reports input.
WATCH.functions["os.read"].can_block_in("app/talk/keys.py", "read")
# The package looks where its own library lies, which is loaded already.
for looks in ("os.readlink", "os.stat", "os.path.abspath"):
    for file in ("wakeword.py", "microwakeword.py"):
        WATCH.functions[looks].can_block_in(f"pymicro_wakeword/{file}", "__init__")
WATCH.functions["io.TextIOWrapper.write"].can_block_in("pytest_timeout.py", "timeout_sigalrm")


@pytest.fixture(autouse=True)
def nothing_blocks_the_loop() -> Iterator[None]:
    """Our code must not block the event loop: no files, sockets or sleeps."""
    WATCH.activate()
    yield
    WATCH.deactivate()


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, bool, bool]:
    """Time out again and again: the first time may fail a task that nobody awaits."""
    is_set = yield
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, settings.timeout / 4)
    return is_set


@pytest.fixture(scope="session")
def cache() -> WeightsCache:
    """The machine's own weights cache."""
    return WeightsCache(load_settings(None).settings.paths.cache(os.environ))


@pytest.fixture(scope="session")
def weights(cache: WeightsCache) -> Callable[[str], Path]:
    """``weights(name)``: the directory of a catalogue entry, fetched if absent."""

    def path(name: str) -> Path:
        if cache.missing([name]):
            pull(cache, [name])
        return cache.path(name)

    return path


@pytest.fixture
async def serving(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """Starts servers over scripted engines, as ``tests.support.scripted_server`` does."""
    from tests.support.scripted_server import servers

    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    async with servers() as start:
        yield start


@pytest.fixture
async def served(serving: Any) -> Any:
    """A server over a scripted session."""
    return await serving()


@pytest.fixture(scope="session")
def vad(weights: Callable[[str], Path]) -> Any:
    """The real voice activity detector."""
    from pipeline.engines.vad.silero import SileroOptions, build

    return build(SileroOptions(), weights("silero-vad"))
