"""Pairs an LLM whose server cannot judge whether words are complete with a second one that can.

The second model, the judge, reads the words while the first one answers. Besides them it sees only
the robot's last words, which keeps its prompts short, and the instructions with which its opinion
was calibrated (``pipeline.engines.word_scale``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from pipeline.engines.contract import Delta, EndOfTurn, Warmed
from pipeline.engines.stages import ConversationStage, LlmStage
from pipeline.errors import ReachyVoiceError
from pipeline.messages import LlmRequest, Message
from pipeline.work import Cancelled, Work

_MOST_CHARS = 200
"""How much of the robot's last words the judge sees; a question is at their end."""


class JudgedLlm:
    """An ``LlmStage``: ``llm`` answers, ``judge`` judges whether the words are complete."""

    def __init__(self, llm: LlmStage, judge: LlmStage, instructions: str) -> None:
        self._llm = llm
        self._judge = judge
        self._instructions = Message("system", instructions)

    @property
    def may_load(self) -> bool:
        return self._llm.may_load

    def open(self) -> JudgedConversation:
        return JudgedConversation(self._llm.open(), self._judge.open(), self._instructions)


class JudgedConversation:
    """A ``ConversationStage``."""

    def __init__(
        self, llm: ConversationStage, judge: ConversationStage, instructions: Message
    ) -> None:
        self._llm = llm
        self._judge = judge
        self._instructions = instructions

    async def warm(self, request: LlmRequest, work: Work) -> Warmed:
        """Read ahead. The judge does so too, so that its first prompt is not slower than later
        ones."""
        await self._read(request.messages, request.unfinished, work)
        return await self._llm.warm(request, work)

    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        """The answer, with the judge's opinion as soon as it is ready."""
        async with aclosing(self._llm.reply(request, work)) as deltas:
            opinion = asyncio.create_task(self._opinion(request.messages, work))
            next_delta = asyncio.create_task(_next(deltas))
            try:
                while not opinion.done():
                    await asyncio.wait((next_delta, opinion), return_when=asyncio.FIRST_COMPLETED)
                    if next_delta.done():
                        if (delta := next_delta.result()) is None:
                            return
                        yield delta
                        next_delta = asyncio.create_task(_next(deltas))
                if (probability := opinion.result()) is not None:
                    yield EndOfTurn(probability)
                delta = await next_delta
            finally:
                next_delta.cancel()
                opinion.cancel()
                await asyncio.gather(next_delta, opinion, return_exceptions=True)
            if delta is not None:
                yield delta
            async for delta in deltas:
                yield delta

    def close(self) -> None:
        self._llm.close()
        self._judge.close()

    async def _opinion(self, messages: Sequence[Message], work: Work) -> float | None:
        """How likely the last words are complete; ``None`` if they are not the user's, or the judge
        fails."""
        *before, last = messages or (self._instructions,)
        return await self._read(before, last.content, work) if last.role == "user" else None

    async def _read(self, before: Sequence[Message], words: str, work: Work) -> float | None:
        """How likely ``words`` are complete; ``None`` if the judge fails."""
        context = [each for each in before if each.role == "assistant" and each.content][-1:]
        context = [Message("assistant", each.content[-_MOST_CHARS:]) for each in context]
        try:
            request = LlmRequest((self._instructions, *context), unfinished=words)
            result = await self._judge.warm(request, work)
        except (ReachyVoiceError, Cancelled):
            return None
        return result.end_probability


async def _next(deltas: AsyncGenerator[Delta, None]) -> Delta | None:
    return await anext(deltas, None)
