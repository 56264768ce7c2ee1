"""Lets the language model read the beginning of the next prompt in idle time.

It reads instructions, tools and history as soon as they are known; the user's words as they are
spoken; and a shorter history before the long one becomes too long. A reply that starts cancels it.

After every cut of the history the model must read the rest again. So the history is cut long before
the context is full, by a large part at once, and the cut takes effect only after the model has read
the rest in idle time. Until then, turns use the longer history; a turn never waits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pipeline.bus import Published
from pipeline.context import SessionContext
from pipeline.conversation.chat import UnknownItem
from pipeline.conversation.memory import Memory
from pipeline.conversation.reply_prompts import ReplyPrompts
from pipeline.engines.contract import Warmed
from pipeline.errors import PromptTooLong, ReachyVoiceError
from pipeline.events import (
    InputCommitted,
    ItemAdded,
    ReplyFinished,
    SpeechRejected,
    SpeechStopped,
)
from pipeline.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    MessageItem,
    text_chars,
)
from pipeline.messages import LlmRequest
from pipeline.work import Cancelled, Priority, Work

log = logging.getLogger("reachy_voice.session")


_FULL, _KEPT = 0.6, 0.3
"""Shares of the context after instructions and tools: when to shorten the history, and to what.
Both histories are in the KV cells while the shorter one is read, so together they must fit."""
NO_WORDS = AudioPart("")
_MARKS_CHARS = 24
"""Cost of a template's markers around a message, in characters of text."""


class WarmUp:
    """The warm-up of one session. It is told what happens, and decides when to read."""

    def __init__(self, context: SessionContext, memory: Memory, prompts: ReplyPrompts) -> None:
        self._context = context
        self._memory = memory
        self._prompts = prompts
        self._words = NO_WORDS
        """The user's words so far in an unfinished turn."""
        self._due = False
        """Whether the model has something left to read."""
        self._replies = 0
        """Number of replies being made."""
        self._closed = False
        self._work = Work(Priority.WARM_UP)
        context.bus.tap(self._follow)

    def _follow(self, published: Published) -> None:
        match published.event:
            case InputCommitted() | SpeechRejected() | SpeechStopped(why="client"):
                self._words = NO_WORDS  # part of the conversation, or of nothing
            case ItemAdded(FunctionCallItem() | FunctionOutputItem()):
                # Read a tool's output before the client asks for an answer to it.
                self._begin_if_quiet()
            case ReplyFinished():
                self._due = True  # the answer has not been read yet

    def prompt_changed(self) -> None:
        """Instructions or tools have changed, or the model that reads them."""
        self._due = True
        self._begin_if_quiet()

    def hear(self, words: AudioPart) -> None:
        """Take the user's words so far; they will only grow."""
        self._words, self._due = words, True
        self._begin_if_quiet()

    def reply_began(self) -> None:
        """A reply is being made, perhaps behind a shut gate: stop until it has ended."""
        self._replies += 1
        self._work.cancel()

    def reply_ended(self) -> None:
        """A reply is over, or was discarded."""
        self._replies -= 1
        if self._due:
            self._begin_if_quiet()

    def close(self) -> None:
        """Stop for good."""
        self._closed = True
        self._work.cancel()

    def _begin_if_quiet(self) -> None:
        """Start over with what is known now, unless a reply is being made."""
        if self._replies or self._closed:
            return
        self._work.cancel()
        if self._context.config.answers:
            self._work = Work(Priority.WARM_UP)
            self._due = True
            self._context.tasks.create_task(self._run(self._work))

    async def _run(self, work: Work) -> None:
        try:
            await self._read(work)
        except Cancelled:
            return
        except ReachyVoiceError as error:
            # The reply that needs this prompt will fail the same way, and report it.
            log.warning("the session was not warmed up: %s", error)
        if work is self._work:
            self._due = False

    async def _read(self, work: Work) -> None:
        chat, conversation = self._memory.chat, self._memory.conversation
        tools = self._context.config.offered
        prompt = self._prompts.conversation
        while True:
            try:
                unfinished = self._prompts.unfinished(self._words)
                request = LlmRequest(prompt(), tools, unfinished=unfinished)
                warmed = await conversation.warm(request, work)
                break
            except PromptTooLong as problem:
                # A long history or tool result came all at once.
                if not chat.make_room(problem):
                    raise
        if start := new_beginning(chat.context, warmed):
            # Turns go on with the long history until the short one is read.
            request = LlmRequest(prompt(start=start), tools, unfinished=unfinished)
            await conversation.warm(request, work)
            if work.cancelled:
                return  # a reply has begun, which uses the long history
            try:
                chat.forget_before(start)
            except UnknownItem:
                log.debug("the client has deleted the item that its context was to begin with")


def new_beginning(items: Sequence[Item], warmed: Warmed) -> str | None:
    """The id of the item that the model's context should begin with; ``None``: do not cut it.

    ``items``: what the model reads now; ``warmed``: the result of reading it. The first item kept
    is a user's, as templates require, so a call's result is never kept without the call.
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
