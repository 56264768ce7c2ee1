"""Reading into the language model, in idle time, what the next answer will begin with.

Instructions, tools and history as soon as they are known; what the user says while they say it; a
shorter history before the long one is too long. Replies go first: one that starts cancels this.

Every cut of the history makes the model read anew what stays. So there is a cut long before the
context is full, it takes much at once, and it takes effect only when the model has read the rest in
idle time: until then turns go on with the longer history. A turn never waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pipeline.context import SessionContext
from pipeline.conversation.chat import UnknownItem
from pipeline.conversation.memory import Memory
from pipeline.conversation.reply_prompts import ReplyPrompts
from pipeline.engines.contract import Warmed
from pipeline.errors import PromptTooLong, ReachyVoiceError
from pipeline.items import Item, MessageItem, text_chars
from pipeline.work import Cancelled, Priority, Work

log = logging.getLogger("reachy_voice.session")


_FULL, _KEPT = 0.6, 0.3
"""Shares of the room behind instructions and tools: when to shorten the history, and to what.
Both histories are in the cells while the shorter one is read, so together they must fit."""
_MARKS_CHARS = 24
"""What a template writes around a message, in characters of text that cost as much."""


class WarmUp:
    """One session's. ``begin`` starts over with what is known now."""

    def __init__(self, context: SessionContext, memory: Memory, prompts: ReplyPrompts) -> None:
        self._context = context
        self.said = ""
        """What the user has said so far of a turn that is not over."""
        self.due = False
        """Whether there is something that the model has not read."""
        self._memory = memory
        self._prompts = prompts
        self._work = Work(Priority.WARM_UP)

    def begin(self) -> None:
        self._work.cancel()
        if self._context.config.answers:
            self._work = Work(Priority.WARM_UP)
            self.due = True
            self._context.tasks.create_task(self._run(self._work))

    def read_ahead(self, said: str, now: bool) -> None:
        """The user has said this so far; it will not change, but go on. ``now``: read it at once,
        because no reply runs."""
        self.said, self.due = said, True
        if now:
            self.begin()

    def cancel(self) -> None:
        """Stop; it stays due."""
        self._work.cancel()

    async def _run(self, work: Work) -> None:
        try:
            await self._read(work)
        except Cancelled:
            return
        except ReachyVoiceError as error:
            # The reply that needs this prompt meets the same trouble, and reports it.
            log.warning("the session was not warmed up: %s", error)
        if work is self._work:
            self.due = False

    async def _read(self, work: Work) -> None:
        chat, conversation = self._memory.chat, self._memory.conversation
        tools = self._context.config.tools
        prompt = self._prompts.conversation
        while True:
            try:
                warmed = await conversation.warm(prompt(), tools, work, self.said)
                break
            except PromptTooLong:
                # A history that came all at once.
                if not chat.forget_oldest():
                    raise
        if start := new_beginning(chat.context, warmed):
            # Turns go on with the long history until the short one is read.
            await conversation.warm(prompt(start=start), tools, work, self.said)
            if work.cancelled:
                return  # a reply has begun that goes on with the long one
            try:
                chat.forget_before(start)
            except UnknownItem:
                log.debug("the client has deleted the item that its context was to begin with")


def new_beginning(items: Sequence[Item], warmed: Warmed) -> str | None:
    """The id of the item that the model's context should begin with; ``None``: it can stay.

    ``items``: what the model reads now, ``warmed``: what came out when it did. The first item kept
    is one that the user said, as templates want it, and never a result without its call.
    """
    room = warmed.most_tokens - warmed.fixed_tokens
    tokens = warmed.usage.prompt - warmed.fixed_tokens
    if warmed.most_tokens == 0 or tokens <= _FULL * room:
        return None
    sizes = [text_chars(item) + _MARKS_CHARS for item in items]
    most_chars = _KEPT * room * sum(sizes) / tokens
    kept_chars, start = 0, None
    for at in range(len(items) - 1, 0, -1):
        kept_chars += sizes[at]
        if kept_chars > most_chars and start is not None:
            break
        item = items[at]
        if isinstance(item, MessageItem) and item.role == "user":
            start = item.id
    return start
