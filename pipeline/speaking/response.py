"""The response that an answer is given as: its state, its delivery, and what was heard of it.

A response begins when its answer may be heard and ends once. An answer that bridges a long wait
finishes one response and goes on in the next.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Literal

from pipeline.context import SessionContext
from pipeline.conversation.item_editor import ItemEditor
from pipeline.conversation.prompt import TALKED_OVER_S
from pipeline.events import (
    CancelReason,
    ReplyFinished,
    ReplyHeld,
    ReplyStarted,
    ReplyStatus,
    ReplyWentOn,
    SilentAnswer,
    Timeline,
)
from pipeline.items import MessageItem
from pipeline.speaking import tuning
from pipeline.speaking.delivery import Delivery, ReplyPlan
from pipeline.speaking.words import Words


class Response:
    """``begin`` and ``finish`` it; ``renew`` makes it the next response of the same answer."""

    def __init__(
        self,
        context: SessionContext,
        plan: ReplyPlan,
        editor: ItemEditor | None,
        began_at: float,
    ) -> None:
        """``editor``: of the conversation that the answer belongs to, if any. ``began_at``: when
        the user's speech ended, in the loop's time."""
        self.began_at = began_at
        self.plan = plan
        self.state: Literal["waiting", "broken", "active"] | ReplyStatus = "waiting"
        """Waiting behind the gate, where an engine may have failed (broken); being given; or how it
        ended."""
        self.delivery = Delivery(context, plan, editor)
        self._context = context
        self._editor = editor
        self._marks: dict[str, float] = {}

    # -- beginning and end

    def begin(self) -> None:
        """Publish the beginning."""
        self.state, plan = "active", self.plan
        self.delivery.publish(
            ReplyStarted(
                plan.reply_id,
                plan.config.modality,
                plan.in_conversation,
                plan.config.voice,
                plan.config.output_format,
                plan.sampling.max_tokens,
                plan.metadata,
                plan.words.continues if plan.words else "",
                plan.announces,
            )
        )

    def finish(
        self,
        status: ReplyStatus,
        words: Words,
        engine_seconds: float,
        *,
        reason: CancelReason | None = None,
        error: str | None = None,
    ) -> None:
        """Publish the closing events, once, even if the delivery was revoked; none if it never
        began."""
        if self.is_over:
            return
        was_active = self.state == "active"
        self.state = status
        if not was_active:
            return
        items = self.delivery.close("completed" if status == "completed" else "incomplete")
        reply_id, publish = self.plan.reply_id, self._context.bus.publish
        if outcome := words.silence:
            publish(SilentAnswer(reply_id, outcome))
        moments = {stage: (at - self.began_at) * 1000 for stage, at in self._marks.items()}
        publish(Timeline(reply_id, **moments))
        why = "max_output_tokens" if status == "incomplete" else reason
        publish(ReplyFinished(reply_id, status, items, words.usage, why, error, engine_seconds))

    def renew(self) -> None:
        """Begin the next response of the answer; this one is finished."""
        new_id, follows = self._context.new_id, self.delivery.follows
        reply_id, item_id = new_id("resp"), new_id("item")
        self.plan = replace(self.plan, reply_id=reply_id, item_id=item_id, filler="")
        self.delivery = Delivery(self._context, self.plan, self._editor)
        self.delivery.follows = follows
        self.begin()

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "broken", "active")

    def mark(self, stage: str) -> None:
        """Note when a stage was first reached, for the timeline."""
        self._marks.setdefault(stage, now())

    def publish_hold(self, is_held: bool) -> None:
        if self.state != "cancelled":
            event = ReplyHeld if is_held else ReplyWentOn
            self._context.bus.publish(event(self.plan.reply_id))

    # -- what was heard

    @property
    def sent_s(self) -> float:
        """Seconds of audio sent."""
        return self.delivery.playback.sent_seconds

    @property
    def heard_s(self) -> float:
        """Seconds of audio that the listener has heard."""
        return self.delivery.playback.heard_seconds(now())

    @property
    def unheard_s(self) -> float:
        """Seconds of sent audio that the listener has not heard yet."""
        return self.sent_s - self.heard_s

    @property
    def heard_message(self) -> MessageItem | None:
        """What its message would be if it were interrupted now: cut to what was heard."""
        return self.delivery.heard_message(now())

    @property
    def is_talked_over(self) -> bool:
        """Whether it is still being sent or played, with so little of it heard (``TALKED_OVER_S``)
        that it counts as not given."""
        is_played = self.unheard_s > 0 and self.state != "cancelled"
        if not (self.state == "active" or is_played) or self.delivery.has_call:
            return False
        return not self.delivery.has_text and self.heard_s <= TALKED_OVER_S

    @property
    def audible_s(self) -> float:
        """Seconds that the listener has heard of it; 0 unless it is being heard and not about to
        end."""
        is_played = self.unheard_s > tuning.NEARLY_HEARD_S and self.state != "cancelled"
        if self.plan.config.modality == "text" or not (self.state == "active" or is_played):
            return 0.0
        return self.heard_s


def now() -> float:
    return asyncio.get_running_loop().time()
