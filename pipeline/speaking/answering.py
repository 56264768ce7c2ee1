"""The model's part of a reply: it is asked, and its words go to the voice, or to the client.

It is asked once more if it cannot be heard (``pipeline.speaking.silent_answers``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from pipeline.engines.contract import EndOfTurn, Finished, TextDelta, ToolCall
from pipeline.engines.stages import ConversationStage
from pipeline.events import SilenceOutcome
from pipeline.messages import Message, Sampling, Usage
from pipeline.speaking.delivery import Clause, ReplyPlan
from pipeline.speaking.filler import Pastime
from pipeline.speaking.silent_answers import Audibility, aloud, left
from pipeline.speaking.text_ahead import TextAhead
from pipeline.work import Work


class Answering:
    """Of one reply: what the model has answered so far, and what that cost."""

    def __init__(
        self,
        plan: ReplyPlan,
        conversation: ConversationStage,
        work: Work,
        text: TextAhead,
        write: Callable[[Clause], Awaitable[None]],
        mark: Callable[[str], None],
    ) -> None:
        """``text`` takes words to speak, ``write`` words to read; ``mark`` notes when a stage is
        reached."""
        self._plan = plan
        self._conversation = conversation
        self._work = work
        self._text = text
        self._write = write
        self._mark = mark
        self.prompt_read = asyncio.Event()
        """Set when the model has read the prompt, or never will."""
        self.end_probability: float | None = None
        """How likely the user's last words are complete; ``None``: unknown."""
        self.pastime = Pastime(plan.filler, text.put)
        self.audibility = Audibility(plan)
        self.calls: list[ToolCall] = []
        self.usage = Usage()
        self.cut_short = False
        """Whether it reached its limit."""
        self.begun = False
        """Whether the model has said or called anything."""
        self.complete = False
        """Whether nothing more of it will come."""
        self.silent = False
        """Whether it has ended without a sound or a call."""

    async def answer(self, messages: Sequence[Message], language: str) -> None:
        """Answer in ``language``; once more if it cannot be heard, unless it reached its limit."""
        if rest := self._plan.continues:
            self._begin()
            await self._pass_on("", rest.text)
            self.complete = True
            self.prompt_read.set()
            return
        sampling = self._plan.sampling
        await self._ask(messages, sampling)
        if self._inaudible(language) and not self.cut_short:
            self.audibility.begin_again(self.usage)
            await self._text.forget()
            await self._ask(aloud(messages), left(sampling, self.usage))
        if self._inaudible(language):
            self.silent = True
            self.audibility.drop()
            await self._text.forget()

    async def end(self) -> None:
        """Nothing follows."""
        self.pastime.worded()
        await self._text.end()

    def unheard(self) -> None:
        """No sound of it was made."""
        self.silent = self.silent or (self.audibility.wanted and not self.calls)

    @property
    def silence(self) -> SilenceOutcome | None:
        """What became of it if it could not be heard at first."""
        if self.silent:
            return "given_up"
        return "asked_again" if self.audibility.asked_again else None

    def _inaudible(self, language: str) -> bool:
        return not self.calls and self.audibility.missing(language)

    async def _ask(self, messages: Sequence[Message], sampling: Sampling) -> None:
        plan, spent = self._plan, self.audibility.spent
        stream = self._conversation.reply(
            messages, plan.config.tools, plan.config.tool_choice, sampling, self._work
        )
        glue = ""
        async with aclosing(stream) as deltas:
            async for delta in deltas:
                match delta:
                    case EndOfTurn(probability, usage):
                        if not self.prompt_read.is_set():
                            self.end_probability = probability
                        self.usage = spent + usage
                    case TextDelta(text):
                        self._begin()
                        self.pastime.worded()
                        await self._pass_on(glue, text)
                        glue = ""
                    case ToolCall():
                        self._begin()
                        await self.pastime.before_call()
                        await self._text.end_part()
                        self.calls.append(delta)
                        glue = " "
                    case Finished(reason, usage):
                        self.usage = spent + usage
                        self.cut_short = reason == "length"
                        self.complete = True
                self.prompt_read.set()

    def _begin(self) -> None:
        self.begun = True
        self._mark("first_token")

    async def _pass_on(self, glue: str, text: str) -> None:
        """Written text leaves as it comes; speech is cut into pieces, which know their glue."""
        if self._plan.config.modality == "text":
            self._mark("first_clause")
            await self._write(Clause(glue + text))
        else:
            self.audibility.write(glue + text)
            await self._text.put(text)
