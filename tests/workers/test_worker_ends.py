"""How workers start, end and fail: shutdown is bounded, and nothing outlives its parent."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from contextlib import aclosing, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.errors import EngineError
from pipeline.messages import Usage
from pipeline.work import Cancelled, CancelToken, Work
from pipeline.workers import process_worker
from pipeline.workers.host import Answer, Cancel, Done, Drop, EngineHost, Request, Submit
from pipeline.workers.placements import InlineWorker, ThreadWorker
from pipeline.workers.process_worker import ProcessWorker
from pipeline.workers.worker import Worker
from tests.support.running_worker import running

BUSY = threading.Event()
"""Set while an engine of this process is in its long step."""
FREED = threading.Event()
"""Lets the threads end that a test left behind."""


class Conversation:
    def __init__(self, log: list[str]) -> None:
        self._log = log
        log.append("opened")

    def warm(self, messages: Any, tools: Any, said: str, cancel: CancelToken) -> Iterator[Usage]:
        yield Usage(0, 0, 0)

    def close(self) -> None:
        self._log.append("closed")


class ToyEngine:
    rate, voices = 16_000, ("toy",)

    def __init__(self) -> None:
        self.log: list[str] = []

    def block(self, cancel: CancelToken) -> Iterator[str]:
        """Says that it is busy, then ignores that it is cancelled."""
        yield "busy"
        BUSY.set()
        print("blocked", file=sys.stderr, flush=True)  # noqa: T201
        FREED.wait()

    def open(self) -> Conversation:
        return Conversation(self.log)

    def read_log(self) -> list[str]:
        return list(self.log)

    def die(self) -> None:
        os._exit(3)


class Options(EngineOptions):
    engine: str = "toy"


def build(options: Options, weights: Path | None) -> ToyEngine:
    return ToyEngine()


def build_for_ever(options: Options, weights: Path | None) -> ToyEngine:
    FREED.wait()
    return ToyEngine()


def build_broken(options: Options, weights: Path | None) -> ToyEngine:
    raise OSError("libllama.so: cannot open shared object file")


def spec(builder: Any = build, kind: Kind = Kind.TTS) -> EngineSpec:
    return EngineSpec("toy", kind, Options, builder)


@pytest.fixture(autouse=True)
def freed() -> Iterator[None]:
    BUSY.clear()
    FREED.clear()
    yield
    FREED.set()


# --- shutdown ----------------------------------------------------------------------------------


async def leave_a_thread_behind() -> None:
    worker = ThreadWorker(spec(), Options(), None, stop_timeout_s=0.1)
    async with running(worker):
        stream = worker.engine.stream("block", work=Work())
        assert await anext(stream) == "busy"
        await asyncio.to_thread(BUSY.wait)
        worker.close()
        with pytest.raises(Cancelled):
            await anext(stream)


async def test_a_child_in_a_long_step_does_not_hold_up_the_end() -> None:
    worker = ProcessWorker(spec(), Options(), None, stop_timeout_s=0.1)
    async with running(worker):
        pid = worker.pid
        assert pid
        async with aclosing(worker.engine.stream("block", work=Work())) as stream:
            assert await anext(stream) == "busy"
            worker.close()
    assert worker.problem == "is closed"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_child_that_builds_does_not_hold_up_the_end() -> None:
    started = asyncio.Event()

    class Starting(ProcessWorker):
        async def _await_built(self, child: Process, began: float) -> None:
            started.set()
            await super()._await_built(child, began)

    worker = Starting(spec(build_for_ever), Options(), None, stop_timeout_s=60)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(worker.run(lambda: None))
        await started.wait()
        pid = worker.pid
        assert pid
        worker.close()
        worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_stuck_thread_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    await leave_a_thread_behind()
    assert "does not end" in caplog.text


@pytest.mark.parametrize("kind", [ThreadWorker, InlineWorker])
@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_thread_that_builds_is_not_waited_for(
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


async def python(function: str) -> Process:
    """Another interpreter that runs an async function of this module."""
    code = f"import sys, asyncio; sys.path[:] = sys.argv[1:]; import {__name__} as m; "
    code += f"asyncio.run(m.{function}())"
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *sys.path, stdout=PIPE, stderr=PIPE
    )


async def test_a_stuck_thread_does_not_keep_the_process() -> None:
    process = await python("leave_a_thread_behind")
    _, stderr = await process.communicate()
    assert process.returncode == 0, stderr.decode()


async def main_with_a_busy_child() -> None:
    worker = ProcessWorker(spec(), Options(), None, stop_timeout_s=0.1)
    async with running(worker):
        stream = worker.engine.stream("block", work=Work())
        assert await anext(stream) == "busy"
        print(worker.pid, flush=True)  # noqa: T201
        await anext(stream)


async def test_a_busy_child_does_not_outlive_a_killed_parent() -> None:
    process = await python("main_with_a_busy_child")
    assert process.stdout
    assert process.stderr
    pid = int(await process.stdout.readline())
    try:
        # The child inherited this pipe: it is at its end only when both have ended.
        await process.stderr.readuntil(b"blocked\n")
        process.kill()
        await process.stderr.read()
        await process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise


# --- restarts ----------------------------------------------------------------------------------


class Impatient(ProcessWorker):
    """Notes how long it should wait before a restart, and does not wait."""

    def __init__(self) -> None:
        super().__init__(spec(), Options(), None)
        self.delays: list[float] = []

    async def _pause(self, delay_s: float) -> None:
        self.delays.append(delay_s)


@pytest.mark.parametrize(
    ("steady_life_s", "delays"), [(60.0, [0.0, 1.0, 5.0]), (0.0, [0.0, 0.0, 0.0])]
)
async def test_restarts_wait_longer_unless_a_life_was_long(
    steady_life_s: float, delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_worker, "STEADY_LIFE_S", steady_life_s)
    worker = Impatient()
    async with running(worker) as ready:
        for _ in delays:
            with pytest.raises(EngineError):
                await worker.engine.call("die", work=Work())
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
            await worker.engine.call("die", work=Work())
        await ready.get()
        assert await worker.engine.call("read_log", work=Work()) == []
    assert worker.delays == [0.0, 1.0, 5.0]


# --- builds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [InlineWorker, ThreadWorker, ProcessWorker])
async def test_a_raw_error_of_a_build_becomes_readable(kind: type[Worker]) -> None:
    with pytest.raises(EngineError, match=r"tts toy engine could not be built: OSError: libllama"):
        await kind(spec(build_broken), Options(), None).run(lambda: None)


async def test_an_engine_that_cannot_be_pickled_is_a_readable_error() -> None:
    with pytest.raises(EngineError, match="cannot be handed to a process"):
        await ProcessWorker(spec(lambda options, weights: None), Options(), None).run(lambda: None)


async def test_the_current_folder_does_not_replace_our_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline/__init__.py").write_text("raise SystemExit('the wrong package')")
    monkeypatch.chdir(tmp_path)
    worker = ProcessWorker(spec(), Options(), None)
    async with running(worker):
        assert await worker.engine.call("read_log", work=Work()) == []


async def test_a_child_finds_what_only_the_parents_path_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_engine.py").write_text("def build(options, weights):\n    return []\n")
    monkeypatch.syspath_prepend(tmp_path)
    theirs = replace(spec(import_module("their_engine").build), kind=Kind.LLM)
    worker = ProcessWorker(theirs, Options(), None)
    async with running(worker):
        assert await worker.engine.call("__len__", work=Work()) == 0


# --- what is opened ----------------------------------------------------------------------------


async def test_two_first_uses_of_a_conversation_share_one_object() -> None:
    worker = ThreadWorker(spec(kind=Kind.LLM), Options(), None)
    async with running(worker):
        conversation = worker.stage.open()
        await asyncio.gather(*(conversation.warm((), (), Work()) for _ in range(2)))
        conversation.close()
        assert await worker.engine.call("read_log", work=Work()) == ["opened", "closed"]


async def test_a_conversation_closed_while_it_opens_leaves_nothing_open() -> None:
    worker = ThreadWorker(spec(kind=Kind.LLM), Options(), None)
    async with running(worker):
        conversation = worker.stage.open()
        opening = asyncio.create_task(conversation.warm((), (), Work()))
        await asyncio.sleep(0)
        conversation.close()
        with pytest.raises(Cancelled):
            await opening
        assert await worker.engine.call("read_log", work=Work()) == ["opened", "closed"]


class Mailbox(Worker):
    """A worker that only notes what it is asked."""

    def __init__(self) -> None:
        super().__init__(spec(), Options(), None)
        self.problem = None
        self.requests: list[Request] = []

    def post(self, request: Request) -> None:
        self.requests.append(request)


async def test_an_abandoned_opening_is_cancelled_before_it_is_dropped() -> None:
    worker = Mailbox()
    opening = asyncio.create_task(worker.engine.open("open", work=Work()))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert [type(request) for request in worker.requests] == [Submit, Cancel, Drop]


def test_what_a_cancelled_job_opened_is_closed_and_not_kept() -> None:
    class Interrupted(ToyEngine):
        def open(self) -> Conversation:
            host.receive(Cancel(1))
            return super().open()

    answers: list[Answer] = []
    engine = Interrupted()
    host = EngineHost(engine, answers.append)
    host.receive(Submit(1, 0, "open", (), 0, cancellable=False, keep_as=1))
    host.run_until_idle()
    assert engine.log == ["opened", "closed"]
    assert isinstance(answers[0], Done)
    assert isinstance(answers[0].error, Cancelled)


async def test_a_child_gets_a_copy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C environment may move while other engines load: a fork that reads it fails, rarely."""
    start, given = asyncio.create_subprocess_exec, []

    async def noting(*args: Any, **kwargs: Any) -> Process:
        given.append(kwargs.get("env"))
        return await start(*args, **kwargs)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noting)
    async with running(ProcessWorker(spec(), Options(), None)):
        pass
    assert given == [dict(os.environ)]
