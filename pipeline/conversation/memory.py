"""A session's memory: the conversation, and the language model's state for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from math import inf

from pipeline.conversation.chat import Chat
from pipeline.engines.contract import Delta, Warmed
from pipeline.engines.stages import ConversationStage, LlmStage, Stages
from pipeline.messages import LlmRequest
from pipeline.work import Cancelled, Work


@dataclass(slots=True, eq=False)
class _Opened:
    """A conversation opened at one model."""

    llm: LlmStage
    conversation: ConversationStage
    users: int = 0
    """Calls that have not ended."""


class LastingConversation:
    """A ``ConversationStage`` of the current ``stages.llm``. After the model is replaced, the next
    call opens a new conversation and reads the whole prompt; the old conversation is closed once it
    is no longer in use."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._opened: _Opened | None = None
        self._closed = False

    async def warm(self, request: LlmRequest, work: Work) -> Warmed:
        async with self._in_use() as conversation:
            return await conversation.warm(request, work)

    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        async with (
            self._in_use() as conversation,
            aclosing(conversation.reply(request, work)) as deltas,
        ):
            async for delta in deltas:
                yield delta

    def close(self) -> None:
        """Close it for good."""
        self._closed = True
        if self._opened:
            self._opened.conversation.close()
            self._opened = None

    @asynccontextmanager
    async def _in_use(self) -> AsyncIterator[ConversationStage]:
        if self._closed:
            raise Cancelled
        opened = self._at_this_model()
        opened.users += 1
        try:
            yield opened.conversation
        finally:
            opened.users -= 1
            if opened is not self._opened:
                _close_unused(opened)

    def _at_this_model(self) -> _Opened:
        llm = self._stages.llm
        if self._opened is None or self._opened.llm is not llm:
            before, self._opened = self._opened, _Opened(llm, llm.open())
            if before:
                _close_unused(before)
        return self._opened


def _close_unused(opened: _Opened) -> None:
    if not opened.users:
        opened.conversation.close()


@dataclass(slots=True, eq=False)
class Memory:
    """May outlive its session, for a client that loses its connection and comes back."""

    chat: Chat
    conversation: ConversationStage
    awake_until: float = -inf
    """When the robot falls asleep (``pipeline.waking``), in the loop's time."""

    def close(self) -> None:
        """Forget the model's state; the session will not be resumed."""
        self.conversation.close()
