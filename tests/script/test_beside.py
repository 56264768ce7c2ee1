"""The slow part of a later step runs in parallel with others and ends with them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from app.setup.beside import beside
from app.setup.commands import Log
from app.setup.failures import SetupError
from app.setup.steps import Step

pytestmark = pytest.mark.quick


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log", os.environ)


def compiling(log: Log, *command: str) -> Step:
    def prepare(log: Log) -> None:
        log.run(command, "it could not be compiled")

    return Step("llama", "llama.cpp", lambda: "key", lambda log: None, prepare=prepare)


def test_what_is_prepared_overlaps_with_other_steps(log: Log) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def prepare(log: Log) -> None:
        begun.set()
        assert go_on.wait(60)

    step = Step("llama", "llama.cpp", lambda: "key", lambda log: None, prepare=prepare)
    with beside(lambda step: log) as running:
        running.start(step)
        assert begun.wait(60)
        begun.clear()
        running.start(step)
        go_on.set()
        running.finish(step, log)
    assert not begun.is_set(), "it is prepared once"


def test_a_failed_preparation_fails_its_step(log: Log) -> None:
    step = compiling(log, "sh", "-c", "echo ninja: build stopped; exit 1")
    with beside(lambda step: log) as running:
        running.start(step)
        with pytest.raises(SetupError, match="could not be compiled"):
            running.finish(step, log)


def test_it_ends_when_another_step_fails(log: Log) -> None:
    def interrupted() -> None:
        with beside(lambda step: log) as running:
            running.start(compiling(log, "sleep", "600"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_a_step_that_prepares_nothing_is_not_waited_for(log: Log) -> None:
    step = Step("weights", "Weights", lambda: "key", lambda log: None)
    with beside(lambda step: log) as running:
        running.start(step)
        running.finish(step, log)
