"""How workers start and end: shutdown is bounded, and a child that ends is replaced."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pipeline.engines.registry import Kind
from pipeline.errors import EngineCrashed, EngineError, WrongProcessor
from pipeline.work import Cancelled, Work
from pipeline.workers import tuning
from pipeline.workers.placements import InlineWorker, ThreadWorker
from pipeline.workers.process_worker import ProcessWorker
from pipeline.workers.worker import Worker
from tests.support.toy_engine import (
    BUSY,
    FREED,
    Options,
    ToyEngine,
    build_broken,
    build_crash,
    build_for_another_processor,
    build_for_ever,
    running,
    spec,
    toy,
)

pytestmark = pytest.mark.engines


@pytest.fixture(autouse=True)
def freed() -> Iterator[None]:
    BUSY.clear()
    FREED.clear()
    yield
    FREED.set()


# --- shutdown ----------------------------------------------------------------------------------


async def test_a_stuck_thread_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    async with toy(ThreadWorker, STOP_TIMEOUT_S=0.1) as (worker, _):
        stream = worker.engine.stream(ToyEngine.block, Work())
        assert await anext(stream) == "busy"
        await asyncio.to_thread(BUSY.wait)
        worker.close()
        with pytest.raises(Cancelled):
            await anext(stream)
    assert "does not end" in caplog.text


async def test_a_child_in_a_long_step_does_not_delay_shutdown() -> None:
    async with toy(ProcessWorker, STOP_TIMEOUT_S=0.1) as (worker, _):
        pid = worker.pid
        assert pid
        async with aclosing(worker.engine.stream(ToyEngine.block, Work())) as stream:
            assert await anext(stream) == "busy"
            worker.close()
    assert worker.problem == "is closed"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_building_child_does_not_delay_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "STOP_TIMEOUT_S", 60.0)
    started = asyncio.Event()

    class Starting(ProcessWorker):
        async def _await_built(self, child: Process, began: float) -> None:
            started.set()
            await super()._await_built(child, began)

    worker = Starting(spec(build_for_ever), Options(), None)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(worker.run(lambda: None))
        await started.wait()
        pid = worker.pid
        assert pid
        worker.close()
        worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("kind", [ThreadWorker, InlineWorker])
@pytest.mark.parametrize("cancelled", [True, False])
async def test_shutdown_does_not_wait_for_a_building_thread(
    kind: type[Worker], cancelled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    worker = kind(spec(build_for_ever), Options(), None)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        running = group.create_task(worker.run(lambda: None))
        await asyncio.sleep(0)
        if cancelled:
            running.cancel()
        else:
            worker.close()
    assert caplog.text == ""


_LEFT = """
import asyncio, sys
sys.path[:] = sys.argv[1:]
from pipeline.workers.placements import InlineWorker, leave_now_if_threads_were_left
from tests.support.toy_engine import Options, build_for_ever, spec

async def main():
    building = InlineWorker(spec(build_for_ever), Options(), None)
    running = asyncio.create_task(building.run(lambda: None))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})

asyncio.run(main())
sys.stdout.write("said")
leave_now_if_threads_were_left(7)
raise SystemExit("there was one")
"""


async def test_a_process_with_threads_left_ends_at_once_with_its_output() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _LEFT, *sys.path), stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(20):
        said, stderr = await process.communicate()
    assert (process.returncode, said) == (7, b"said"), stderr.decode()


# --- restarts ----------------------------------------------------------------------------------


class Impatient(ProcessWorker):
    """Records how long it should wait before a restart, without waiting."""

    def __init__(self) -> None:
        super().__init__(spec(), Options(), None)
        self.delays: list[float] = []

    async def _pause(self, delay_s: float) -> None:
        self.delays.append(delay_s)


@pytest.mark.parametrize(
    ("steady_life_s", "delays"), [(60.0, [0.0, 1.0, 5.0]), (0.0, [0.0, 0.0, 0.0])]
)
async def test_restarts_wait_longer_after_short_lives(
    steady_life_s: float, delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "STEADY_LIFE_S", steady_life_s)
    worker = Impatient()
    async with running(worker) as ready:
        for _ in delays:
            with pytest.raises(EngineError):
                await worker.engine.call(ToyEngine.die, Work())
            await ready.get()
    assert worker.delays == delays


def no_memory(*args: Any, **kwargs: Any) -> Any:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


async def test_no_memory_for_a_first_child_is_an_error_with_a_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_memory)
    with pytest.raises(EngineError, match=r"Cannot allocate memory\. Free memory"):
        await Impatient().run(lambda: None)


async def test_no_memory_for_a_later_child_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Impatient()
    start, failures = asyncio.create_subprocess_exec, 2

    async def at_first_no_memory(*args: Any, **kwargs: Any) -> Process:
        nonlocal failures
        if failures:
            failures -= 1
            no_memory()
        return await start(*args, **kwargs)

    async with running(worker) as ready:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", at_first_no_memory)
        with pytest.raises(EngineError):
            await worker.engine.call(ToyEngine.die, Work())
        await ready.get()
        assert await worker.engine.call(ToyEngine.read_log, Work()) == []
    assert worker.delays == [0.0, 1.0, 5.0]


# --- builds ------------------------------------------------------------------------------------


async def test_the_current_folder_does_not_replace_our_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline/__init__.py").write_text("raise SystemExit('the wrong package')")
    monkeypatch.chdir(tmp_path)
    async with toy(ProcessWorker) as (worker, _):
        assert await worker.engine.call(ToyEngine.read_log, Work()) == []


async def test_a_child_finds_what_only_the_parents_path_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_engine.py").write_text("def build(options, weights):\n    return []\n")
    monkeypatch.syspath_prepend(tmp_path)
    theirs = replace(spec(import_module("their_engine").build), kind=Kind.LLM)
    worker = ProcessWorker(theirs, Options(), None)
    async with running(worker):
        assert await worker.engine.call(list.__len__, Work()) == 0


async def test_a_child_gets_a_copy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C environment may move while other engines load; a fork that reads it then fails,
    rarely."""
    start, given = asyncio.create_subprocess_exec, []

    async def noting(*args: Any, **kwargs: Any) -> Process:
        given.append(kwargs.get("env"))
        return await start(*args, **kwargs)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noting)
    async with running(ProcessWorker(spec(), Options(), None)):
        pass
    assert given == [dict(os.environ)]


# --- an engine that has not run on this processor starts in a process of its own first ---------


class Names(set[str]):
    """``Trials``, by name."""

    def has(self, part: str, packages: Sequence[str]) -> bool:
        return part in self

    def add(self, part: str, packages: Sequence[str]) -> None:  # type: ignore[override]
        super().add(part)


@pytest.mark.parametrize("kind", [ThreadWorker, InlineWorker])
@pytest.mark.parametrize(
    ("build", "error", "exit_code"),
    [
        (build_for_another_processor, WrongProcessor, 16),
        (build_crash, EngineCrashed, 6),
        (build_broken, EngineError, 6),
    ],
)
async def test_a_failing_trial_does_not_end_this_process(
    kind: type[ThreadWorker], build: object, error: type[EngineError], exit_code: int
) -> None:
    ran = Names()
    with pytest.raises(error) as caught:
        await kind(spec(build), Options(), None, ran=ran).run(lambda: None)
    assert caught.value.exit_code == exit_code
    assert not ran


async def test_a_separate_process_reports_the_wrong_processor() -> None:
    with pytest.raises(WrongProcessor, match=r"illegal instruction.*Set up again"):
        await ProcessWorker(spec(build_for_another_processor), Options(), None).run(lambda: None)


async def test_an_engine_that_has_run_needs_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Names()
    async with running(ThreadWorker(spec(), Options(), None, ran=ran)):
        assert ran == {f"{spec().kind}-toy"}
    monkeypatch.delattr(ProcessWorker, "run")
    async with running(ThreadWorker(spec(), Options(), None, ran=ran)):
        pass


async def test_closing_ends_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Names()
    worker = ThreadWorker(spec(), Options(), None, ran=ran)
    start = ProcessWorker._start

    async def closed(trial: ProcessWorker) -> object:
        child = await start(trial)
        worker.close()
        return child

    monkeypatch.setattr(ProcessWorker, "_start", closed)
    await worker.run(lambda: pytest.fail("it was closed"))
    assert not ran
