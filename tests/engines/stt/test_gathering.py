"""Those who wait for one model at the same time share a pass of it, over the real host."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio import Pcm
from pipeline.engines.contract import Partial, Transcript
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.engines.stt.gathering import Gathering, Stop
from pipeline.errors import EngineError
from pipeline.work import Cancelled, CancelToken, Work
from pipeline.workers.host import Answer, Cancel, Done, EngineHost, Item, Submit
from pipeline.workers.remote_stages import RemoteStt
from pipeline.workers.worker import InlineWorker
from tests.support.recordings import Uncancelled


class Model:
    """Doubles numbers, and keeps the passes that it made."""

    def __init__(self) -> None:
        self.passes: list[list[int]] = []
        self.stops: list[Stop] = []

    def double(self, numbers: Sequence[int], stop: Stop) -> list[int]:
        self.passes.append(list(numbers))
        self.stops.append(stop)
        if stop():
            raise Cancelled
        if 13 in numbers:
            raise EngineError("Thirteen")
        return [2 * number for number in numbers]


class Caller:
    """What the host runs: one call as a generator."""

    def __init__(self, most: int = 3) -> None:
        self.model = Model()
        self.gathering = Gathering(self.model.double, lambda asked: len(asked) <= most)

    def ask(self, number: int, cancel: CancelToken) -> Iterator[int | None]:
        return self.gathering.ask(number, cancel)


@dataclass
class Desk:
    """A host with answers kept by job."""

    caller: Caller

    def __post_init__(self) -> None:
        self.answers: list[Answer] = []
        self.host = EngineHost(self.caller, self.answers.append)

    def ask(self, job: int, number: int, priority: int = 0) -> None:
        self.host.receive(Submit(job, 0, "ask", (number,), priority, True, client=job))

    def items(self) -> dict[int, Any]:
        return {each.job: each.value for each in self.answers if isinstance(each, Item)}

    def errors(self) -> dict[int, BaseException | None]:
        return {each.job: each.error for each in self.answers if isinstance(each, Done)}


def test_all_who_wait_are_one_pass() -> None:
    desk = Desk(Caller())
    for job, number in ((1, 10), (2, 20), (3, 30)):
        desk.ask(job, number)
    desk.host.run_until_idle()
    assert desk.items() == {1: 20, 2: 40, 3: 60}
    assert [sorted(each) for each in desk.caller.model.passes] == [[10, 20, 30]]
    assert desk.caller.gathering.passes == 1
    assert desk.errors() == {1: None, 2: None, 3: None}


def test_who_is_alone_does_not_wait() -> None:
    desk = Desk(Caller())
    for job in (1, 2):
        desk.ask(job, job)
        desk.host.run_until_idle()
    assert desk.caller.model.passes == [[1], [2]]


def test_those_who_do_not_fit_are_the_next_pass() -> None:
    desk = Desk(Caller(most=2))
    for job in (1, 2, 3):
        desk.ask(job, job)
    desk.host.run_until_idle()
    assert [len(each) for each in desk.caller.model.passes] == [2, 1]
    assert desk.items() == {1: 2, 2: 4, 3: 6}


def test_more_urgent_work_does_not_wait() -> None:
    desk = Desk(Caller())
    desk.ask(1, 1, priority=1)
    desk.ask(2, 2, priority=0)
    desk.host.run_until_idle()
    assert desk.caller.model.passes == [[2], [1]]


def test_who_is_cancelled_is_left_out() -> None:
    desk = Desk(Caller())
    desk.ask(1, 1)
    desk.ask(2, 2)
    desk.host.receive(Cancel(1))
    desk.host.run_until_idle()
    assert desk.caller.model.passes == [[2]]
    assert isinstance(desk.errors()[1], Cancelled)
    assert desk.items() == {2: 4}


def test_a_failed_pass_fails_exactly_its_members() -> None:
    desk = Desk(Caller(most=2))
    for job, number in ((1, 13), (2, 2), (3, 3)):
        desk.ask(job, number)
    desk.host.run_until_idle()
    errors = desk.errors()
    assert isinstance(errors[1], EngineError)
    assert isinstance(errors[2], EngineError)
    assert desk.items() == {3: 6}


class Switch:
    def __init__(self, cancelled: bool = False) -> None:
        self.cancelled = cancelled
        self.preempted = False


def test_a_pass_goes_on_while_one_of_its_callers_wants_it() -> None:
    caller = Caller()
    one, other = Switch(), Switch()
    calls = [caller.ask(1, one), caller.ask(2, other)]
    for call in calls:
        assert next(call) is None
    assert next(calls[0]) == 2
    stop = caller.model.stops[0]
    one.cancelled = True
    assert not stop()
    other.cancelled = True
    assert stop()


def test_who_leaves_before_the_pass_is_forgotten() -> None:
    caller = Caller()
    leaver, stayer = caller.ask(1, Uncancelled()), caller.ask(2, Uncancelled())
    assert next(leaver) is None
    assert next(stayer) is None
    leaver.close()  # type: ignore[attr-defined]
    assert next(stayer) == 4
    assert caller.model.passes == [[2]]


def test_a_call_that_is_cancelled_before_its_pass_makes_none() -> None:
    caller, switch = Caller(), Switch()
    call = caller.ask(1, switch)
    assert next(call) is None
    switch.cancelled = True
    with pytest.raises(Cancelled):
        next(call)
    assert caller.model.passes == []


# --- through the stage --------------------------------------------------------------------------


class ToyUtterance:
    def __init__(self) -> None:
        self._samples = 0

    def feed_steps(self, pcm: Pcm, cancel: CancelToken) -> Iterator[Partial | None]:
        self._samples += len(pcm)
        yield None
        yield Partial("so far", str(self._samples))

    def finish_steps(self, cancel: CancelToken) -> Iterator[Transcript | None]:
        yield None
        if self._samples == 13:
            raise EngineError("Thirteen")
        if self._samples:
            yield Transcript(f"{self._samples} samples", 1.0)


class ToyStt:
    rate = 16_000
    streams = True
    batches = True

    def open(self, language: str, partials: bool) -> ToyUtterance:
        return ToyUtterance()


class Options(EngineOptions):
    engine: str = "toy"


def build(options: Options, weights: Path | None) -> ToyStt:
    return ToyStt()


async def test_the_stage_takes_the_last_of_the_steps() -> None:
    worker = InlineWorker(EngineSpec("toy", Kind.STT, Options, build), Options(), None)
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run(ready.set))
        await ready.wait()
        utterance = await RemoteStt(worker).open("en", True, Work())
        with pytest.raises(EngineError, match="no result"):
            await utterance.finish(Work())
        pcm = np.zeros(5, dtype=np.int16)
        assert await utterance.feed(pcm, Work()) == Partial("so far", "5")
        assert await utterance.finish(Work()) == Transcript("5 samples", 1.0)
        await utterance.feed(np.zeros(8, dtype=np.int16), Work())
        with pytest.raises(EngineError, match="Thirteen"):
            await utterance.finish(Work())
        utterance.close()
        worker.close()
