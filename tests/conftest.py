"""What many tests need: weights, and one assistant with every real engine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from blockbuster import blockbuster_ctx

from app.models.pull import pull
from app.models.weights import WeightsCache
from app.settings.load import load_settings

# Idle OpenMP threads of one engine must not spin on the cores that another one needs.
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


@pytest.fixture(autouse=True)
def nothing_blocks_the_loop() -> Iterator[None]:
    """Our code must not call anything on the event loop that waits: files, sockets, sleeps."""
    with blockbuster_ctx(scanned_modules=["app", "hardware", "pipeline"]) as watched:
        # The terminal is read when the loop says that there is something.
        watched.functions["os.read"].can_block_in("app/talk/keys.py", "read")
        yield


@pytest.fixture(scope="session")
def cache() -> WeightsCache:
    """The machine's own weights cache."""
    return WeightsCache(load_settings(None).settings.paths.cache(os.environ))


@pytest.fixture(scope="session")
def weights(cache: WeightsCache) -> Callable[[str], Path]:
    """``weights(name)``: the directory of a catalogue entry, fetched if it is not there yet."""

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
