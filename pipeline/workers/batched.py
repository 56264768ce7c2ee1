"""The VAD of a fleet's process, which scores windows of many streams in one run (``vad.batch``)."""

from __future__ import annotations

import asyncio
from typing import Any

from pipeline.workers import tuning
from pipeline.workers.host import EngineHost, Job, Request, Submit
from pipeline.workers.placements import InlineWorker


class BatchedHost(EngineHost):
    """Scores all waiting windows when the first of them is due; the others then only fetch their
    scores. Needs an engine with ``score_all``."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._scores: dict[int, float] = {}
        """Job -> its score, until the job is due."""

    @property
    def streams(self) -> int:
        return len(self._objects) - 1

    def _advance(self, job: Job) -> tuple[bool, Any]:
        score = self._scores.pop(job.submit.job, None)
        if not self._is_window(job):
            return super()._advance(job)
        if score is not None:
            return True, score
        # A stream's windows must be scored in order, so a run takes one of each stream.
        first = {job.submit.target: job}
        for each in filter(self._is_window, self._jobs.values()):
            if each.submit.job not in self._scores:
                first.setdefault(each.submit.target, each)
        if len(first) == 1:
            return super()._advance(job)
        calls = [(self._objects[target], *each.submit.args) for target, each in first.items()]
        scores = self._objects[0].score_all(calls)
        self._scores |= {each.submit.job: s for each, s in zip(first.values(), scores, strict=True)}
        return True, self._scores.pop(job.submit.job)

    def _is_window(self, job: Job) -> bool:
        submit = job.submit
        return submit.method == "score" and submit.target in self._objects and not job.cancelled


class BatchedWorker(InlineWorker):
    """With many streams, a window waits a moment for others, unless its stream has just had one
    scored and so is catching up."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._score_times: dict[int, float] = {}
        """Stream -> the loop's time of its last window that may have waited."""

    def post(self, request: Request) -> None:
        if isinstance(self._host, BatchedHost) and self._may_wait(self._host, request):
            self._host.receive(request)
            if self._timer is None:
                self._timer = self._loop.call_later(tuning.GATHER_S, self._run_all)
        else:
            super().post(request)

    def _host_of(self, engine: Any) -> EngineHost:
        return BatchedHost(engine, self._send)

    def _run_all(self) -> None:
        self._timer = None
        if self._host:
            self._host.run_until_idle()

    def _may_wait(self, host: BatchedHost, request: Request) -> bool:
        if not isinstance(request, Submit):
            return False
        if request.method != "score" or host.streams < tuning.MANY_STREAMS:
            self._score_times.clear()  # few streams, or one more: nothing to remember
            return False
        now = self._loop.time()
        before, self._score_times[request.target] = self._score_times.get(request.target), now
        return before is None or now - before > 2 * tuning.GATHER_S
