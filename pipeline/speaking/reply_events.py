"""Publishes what one reply does, and when it reached each stage."""

from __future__ import annotations

import asyncio
from typing import Literal

from pipeline.bus import Bus
from pipeline.events import (
    CancelReason,
    ClauseFault,
    FaultKind,
    OutputItem,
    ReplyFinished,
    ReplyHeld,
    ReplyStarted,
    ReplyWentOn,
    SilentAnswer,
    Timeline,
)
from pipeline.speaking.delivery import Delivery, ReplyPlan
from pipeline.speaking.words import Words
from pipeline.work import Work

Status = Literal["completed", "cancelled", "incomplete", "failed"]


class ReplyEvents:
    """Starting and faulty speech go through the delivery, so that nothing of a reply that was
    revoked is published; its end is published in any case."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._marks: dict[str, float] = {}

    def mark(self, stage: str) -> None:
        """Note when a stage was first reached, for the timeline."""
        self._marks.setdefault(stage, asyncio.get_running_loop().time())

    def start(self, plan: ReplyPlan, delivery: Delivery) -> None:
        delivery.publish(
            ReplyStarted(
                plan.reply_id,
                plan.config.modality,
                plan.in_conversation,
                plan.config.voice,
                plan.config.output_format,
                plan.sampling.max_tokens,
                plan.metadata,
                plan.continues.reply_id if plan.continues else "",
            )
        )

    def fault(self, delivery: Delivery, reply_id: str, fault: tuple[FaultKind, int, bool]) -> None:
        """The kind of fault, the take, and whether the clause is left out."""
        delivery.publish(ClauseFault(reply_id, *fault))

    def hold(self, reply_id: str, held: bool) -> None:
        self._bus.publish(ReplyHeld(reply_id) if held else ReplyWentOn(reply_id))

    def finish(
        self,
        reply_id: str,
        status: Status,
        items: tuple[OutputItem, ...],
        words: Words,
        reason: CancelReason | None,
        error: str | None,
        work: Work,
        began_at: float,
    ) -> None:
        """``began_at``: as in ``Reply``."""
        if outcome := words.silence:
            self._bus.publish(SilentAnswer(reply_id, outcome))
        moments = {stage: (at - began_at) * 1000 for stage, at in self._marks.items()}
        self._bus.publish(Timeline(reply_id, **moments))
        why = "max_output_tokens" if status == "incomplete" else reason
        self._bus.publish(
            ReplyFinished(reply_id, status, items, words.usage, why, error, work.engine_seconds)
        )
