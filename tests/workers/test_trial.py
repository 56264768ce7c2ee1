"""An engine that has not run on this processor starts in a process of its own first."""

from __future__ import annotations

import pytest

from pipeline.engines.registry import EngineSpec
from pipeline.errors import EngineCrashed, EngineError, WrongProcessor
from pipeline.workers.placements import InlineWorker, ThreadWorker
from pipeline.workers.process_worker import ProcessWorker
from tests.support.toy_engine import (
    Options,
    build_broken,
    build_crash,
    build_for_another_processor,
    running,
    spec,
)


class Names(set[str]):
    """``Ran``, by name."""

    def __contains__(self, tried: object) -> bool:
        assert isinstance(tried, EngineSpec)
        return super().__contains__(tried.name)

    def add(self, tried: EngineSpec) -> None:  # type: ignore[override]
        super().add(tried.name)


@pytest.mark.parametrize("kind", [ThreadWorker, InlineWorker])
@pytest.mark.parametrize(
    ("build", "error", "exit_code"),
    [
        (build_for_another_processor, WrongProcessor, 16),
        (build_crash, EngineCrashed, 6),
        (build_broken, EngineError, 6),
    ],
)
async def test_one_that_fails_does_not_end_this_process(
    kind: type[ThreadWorker], build: object, error: type[EngineError], exit_code: int
) -> None:
    ran = Names()
    with pytest.raises(error) as caught:
        await kind(spec(build), Options(), None, ran=ran).run(lambda: None)
    assert caught.value.exit_code == exit_code
    assert not ran


async def test_a_process_of_its_own_tells_the_same() -> None:
    with pytest.raises(WrongProcessor, match=r"illegal instruction.*Set up again"):
        await ProcessWorker(spec(build_for_another_processor), Options(), None).run(lambda: None)


async def test_one_that_has_run_starts_here_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Names()
    async with running(ThreadWorker(spec(), Options(), None, ran=ran)):
        assert ran == {"toy"}
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
