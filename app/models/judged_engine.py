"""A language model by URL and a local word judge, run as one engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.llm.judged import JudgedLlm
from pipeline.errors import ReachyVoiceError
from pipeline.workers.stages import llm_stage
from pipeline.workers.worker import Worker

log = logging.getLogger("reachy_voice.llm")


class JudgedEngine(JudgedLlm):
    """Stands in for ``engine``. It still answers if its judge fails."""

    def __init__(self, engine: UrlEngine, judge: Worker, instructions: str) -> None:
        super().__init__(llm_stage(engine), llm_stage(judge), instructions)
        self.name = engine.name
        self.judge = judge
        self._engine = engine

    @property
    def problem(self) -> str | None:
        """Why the answering model is not ready, or ``None``."""
        return self._engine.problem

    @problem.setter
    def problem(self, why: str | None) -> None:
        self._engine.problem = why

    @property
    def on_absence(self) -> Callable[[], None] | None:
        """As for ``UrlEngine``."""
        return self._engine.on_absence

    @on_absence.setter
    def on_absence(self, absent: Callable[[], None] | None) -> None:
        self._engine.on_absence = absent

    async def run(self, ready: Callable[[], None]) -> None:
        """Calls ``ready`` once the model is ready and the judge is ready or has failed."""
        pending = {"answers", "judges"}

        def arrive(which: str) -> None:
            if which in pending:
                pending.discard(which)
                if not pending:
                    ready()

        judging = asyncio.create_task(self._run_judge(partial(arrive, "judges")))
        try:
            await self._engine.run(partial(arrive, "answers"))
        finally:
            self.judge.close()
            await asyncio.wait({judging})

    async def _run_judge(self, ready: Callable[[], None]) -> None:
        try:
            await self.judge.run(ready)
        except ReachyVoiceError as error:
            log.warning("turns end without judging the words: %s", error)
            ready()

    def close(self) -> None:
        self._engine.close()
        self.judge.close()
