"""Answers and cancellations that the client asks for."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace

from pipeline.bus import Published
from pipeline.commands import CancelResponse, CreateResponse
from pipeline.context import SessionContext
from pipeline.conversation.chat import Chat, UnknownItem
from pipeline.conversation.reply_prompts import Prompt, ReplyPrompts
from pipeline.events import ReplyFinished
from pipeline.speaking import tuning
from pipeline.speaking.replies import MAX_RUNNING, Replies

MOST_ENDED = 64
"""Responses that are over and that a late ``response.cancel`` may name."""


class ReplyRequests:
    """``response.create`` and ``response.cancel``."""

    def __init__(
        self, context: SessionContext, chat: Chat, prompts: ReplyPrompts, replies: Replies
    ) -> None:
        self._context = context
        self._chat = chat
        self._prompts = prompts
        self._replies = replies
        self._ended_ids: deque[str] = deque(maxlen=MOST_ENDED)
        context.bus.tap(self._note)

    def _note(self, published: Published) -> None:
        if isinstance(published.event, ReplyFinished):
            self._ended_ids.append(published.event.reply_id)

    def create(self, command: CreateResponse) -> None:
        options, refuse = command.options, self._context.refuse
        active = self._replies.speaking if options.in_conversation else None
        if (
            active
            and options.input is None
            and (active.response.delivery.has_call or active.plan.announces)
        ):
            # The client answers a call while the words before it are still being said; or it does
            # not know that something is being announced.
            now = asyncio.get_running_loop().time()
            self._replies.answer_later(now, options, asked=True)
        elif active:
            refuse(
                command.event_id,
                "conversation_already_has_active_response",
                f"Conversation already has an active response in progress: "
                f"{active.plan.reply_id}. Wait until the response is finished before creating a "
                f"new one.",
            )
        elif self._replies.full:
            refuse(
                command.event_id,
                "too_many_responses",
                f"{MAX_RUNNING} responses are in progress. Wait until one of them is done.",
            )
        else:
            try:
                items = self._prompts.input_items(options)
            except UnknownItem as unknown:
                text = f"The item with id '{unknown.args[0]}' does not exist."
                refuse(command.event_id, "invalid_value", text, "response.input")
            else:
                known = frozenset(item.id for item in self._chat.context)
                prompt = Prompt(self._prompts.instructions(options), items, known)
                self._replies.give(prompt, replace(options, input=items))  # they may be deleted

    def cancel(self, command: CancelResponse) -> None:
        """Cancel a response. If it is over, the request crossed its end on the wire: the client
        plays no more of it."""
        if command.response_id in self._ended_ids:
            self._replies.stop_playing(command.response_id, tuning.NEARLY_HEARD_S)
            return
        if not self._replies.cancel(command.response_id):
            text = "Cancellation failed: no active response found"
            self._context.refuse(command.event_id, "response_cancel_not_active", text)
