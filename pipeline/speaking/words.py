"""What a reply says: asks the model, and passes its words to the voice or the client.

An answer may have to wait for a slow model or tool. A filler sentence passes the time. It becomes
the beginning of the answer, in its transcript and in later prompts, so it is said only if nothing
else is ready: some time after the user's speech, or, if fillers are wanted, before a call that the
model makes without a word.

Some answers are inaudible: no words at all, or nothing but JSON, markup, emoji or thoughts. To the
user they are like a crash. The model is asked once more, with the instruction to speak; if that is
inaudible too, the apology is said (``pipeline.speaking.notices``). Inaudible words appear in no
transcript and in no prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from pipeline.engines.contract import Delta, EndOfTurn, Finished, TextDelta, ToolCall
from pipeline.engines.stages import ConversationStage
from pipeline.events import SilenceOutcome
from pipeline.messages import LlmRequest, Message, Sampling, Usage
from pipeline.speaking.clause_queue import ClauseQueue
from pipeline.speaking.delivery import Clause, ReplyPlan
from pipeline.speaking.text_ahead import TextAhead
from pipeline.spoken import speakable
from pipeline.work import Work

ALOUD = Message("user", "(Answer aloud, in one plain sentence.)")
"""Appended to the prompt when the model's answer was inaudible; not all templates take a system
message there."""

MOST_UNSENT_CALLS = 16
"""Calls that may wait for the gate; then the model pauses."""

NOTHING_HEARD = "The language model said nothing that can be heard"


class Words:
    """What one reply says, written into ``text`` for the voice. This class says nothing."""

    def __init__(
        self, plan: ReplyPlan, text: TextAhead, queue: ClauseQueue, mark: Callable[[str], None]
    ) -> None:
        """``text`` takes words to speak, ``queue`` words to read; ``mark`` notes when a stage is
        reached."""
        self._plan = plan
        self._text = text
        self._queue = queue
        self._mark = mark
        self.prompt_read = asyncio.Event()
        """Set when the model has read the prompt, or never will."""
        self.words_judged = asyncio.Event()
        """Set once ``end_probability`` is known, usually with ``prompt_read``."""
        self.end_probability: float | None = None
        """How likely the user's last words are complete; ``None``: unknown."""
        self.calls: list[ToolCall] = []
        """Complete calls, oldest first."""
        self._unsent: asyncio.Queue[ToolCall | None] = asyncio.Queue(MOST_UNSENT_CALLS)
        self.usage = Usage()
        self.cut_short = False
        """Whether it reached its token limit."""
        self.begun = False
        """Whether it has said or called anything."""
        self.complete = False
        """Whether it has finished."""
        self.silent = False
        """Whether it has ended without a sound or a call."""
        self.output = ""
        """What the model has written, apart from calls."""
        self._asked_again = False

    @property
    def silence(self) -> SilenceOutcome | None:
        """What was done about an inaudible answer, if it was one."""
        if self.silent:
            return "given_up"
        return "asked_again" if self._asked_again else None

    async def write(self, messages: Sequence[Message], language: str) -> None:
        """Write everything that is to be said, in ``language``."""

    async def pass_the_time(self, until: float) -> None:
        """Say the filler at ``until``, in the loop's time, if there are no words by then."""

    def time_passed(self) -> None:
        """Say no filler any more: the user has been told to wait."""

    def unheard(self) -> None:
        """Note that not a sound was made."""

    async def next_call(self) -> ToolCall | None:
        """The next call, as soon as it is complete; ``None`` at the end."""
        return await self._unsent.get()

    async def end(self) -> None:
        """No more text or calls will come."""
        await self._text.end()
        await self._unsent.put(None)

    def _begin(self) -> None:
        self.begun = True
        self._mark("first_token")

    async def _pass_on(self, text: str, glue: str = "") -> None:
        """Pass text on as it comes. ``glue`` goes before it; for speech, the chunker adds that."""
        if self._plan.config.modality == "text":
            await self._queue.put(Clause(glue + text))
        else:
            await self._text.put(text)


class Recital(Words):
    """Words that are known: the rest of an answer, or an announcement."""

    async def write(self, messages: Sequence[Message], language: str) -> None:
        assert self._plan.words
        self._begin()
        await self._pass_on(self._plan.words.text)
        self.complete = True
        self.prompt_read.set()

    def unheard(self) -> None:
        self.silent = self._plan.config.modality == "audio"


class ModelAnswer(Words):
    """What the language model answers, and what that cost."""

    def __init__(
        self,
        conversation: ConversationStage,
        work: Work,
        plan: ReplyPlan,
        text: TextAhead,
        queue: ClauseQueue,
        mark: Callable[[str], None],
    ) -> None:
        super().__init__(plan, text, queue, mark)
        self._conversation = conversation
        self._work = work
        forced = bool(plan.config.offered) and plan.config.tool_choice.forces
        self._audible = plan.config.modality == "audio" and not forced
        self._worded = asyncio.Event()
        """Set once no filler is needed: there are words, or there never will be."""
        self._earlier_usage = Usage()
        """Tokens spent on inaudible answers."""

    async def write(self, messages: Sequence[Message], language: str) -> None:
        """Answer; ask again if inaudible, unless the token limit was reached. May be called again
        if it raises before the model has begun."""
        sampling = self._plan.sampling
        await self._ask(messages, sampling, by_rule(self._plan, messages, language))
        if self._inaudible(language) and not self.cut_short:
            self._asked_again = True
            self._earlier_usage = self.usage
            await self._forget()
            await self._ask([*messages, ALOUD], remaining(sampling, self.usage))
        if self._inaudible(language):
            self.silent = True
            await self._forget()

    async def end(self) -> None:
        self._worded.set()
        await super().end()

    def unheard(self) -> None:
        self.silent = self.silent or (self._audible and not self.calls)

    async def pass_the_time(self, until: float) -> None:
        if not self._plan.filler:
            return
        try:
            async with asyncio.timeout_at(until):
                await self._worded.wait()
        except TimeoutError:
            await self._say_filler()

    def time_passed(self) -> None:
        self._worded.set()

    async def _say_filler(self) -> None:
        if self._plan.filler and not self._worded.is_set():
            self._worded.set()
            await self._text.put(f"{self._plan.filler} ")

    def _inaudible(self, language: str) -> bool:
        return self._audible and not self.calls and not speakable(self.output, language)

    async def _forget(self) -> None:
        """Drop what was written: it is not part of the answer."""
        self.output = ""
        await self._text.forget()

    async def _ask(
        self, messages: Sequence[Message], sampling: Sampling, answer: ToolCall | None = None
    ) -> None:
        """Ask the model, unless ``answer`` takes the place of its answer."""
        config = self._plan.config
        request = LlmRequest(messages, config.offered, config.tool_choice, sampling)
        reply = _only(answer) if answer else self._conversation.reply(request, self._work)
        glue = ""
        async with aclosing(reply) as deltas:
            async for delta in deltas:
                match delta:
                    case EndOfTurn(probability, usage):
                        if self.end_probability is None:
                            self.end_probability = probability
                            self.words_judged.set()
                        if not self.complete:
                            self.usage = self._earlier_usage + usage
                    case TextDelta(text):
                        self._begin()
                        self._worded.set()
                        await self._pass_on(text, glue)
                        glue = ""
                    case ToolCall():
                        self._begin()
                        if self._plan.settings.filler.after_ms is not None:
                            await self._say_filler()  # the tool may take long
                        await self._text.end_part()
                        self.calls.append(delta)
                        await self._unsent.put(delta)
                        glue = " "
                    case Finished(reason, usage):
                        self.usage = self._earlier_usage + usage
                        self.cut_short = reason == "length"
                        self.complete = True
                self.prompt_read.set()

    async def _pass_on(self, text: str, glue: str = "") -> None:
        self.output += glue + text
        await super()._pass_on(text, glue)


def by_rule(plan: ReplyPlan, messages: Sequence[Message], language: str) -> ToolCall | None:
    """The call that a rule answers a plain request with, as a model would; ``None``: the model
    answers."""
    rule, config = plan.settings.rule, plan.config
    if rule is None or config.tool_choice.kind != "auto":
        return None
    # Clients add what a model should know behind the words.
    last = next((each for each in reversed(messages) if each.role != "system"), None)
    if last is None or last.role != "user":
        return None
    known = [tool.name for tool in config.tools if tool.origin is None or tool.origin.offered]
    call = rule(last.words, language, known)
    # A tool that had to be renamed is not meant: the client has one of that name.
    origins = (tool.origin for tool in config.tools if call and tool.name == call[0])
    return ToolCall(*call) if call and any(o and o.name == call[0] for o in origins) else None


async def _only(answer: ToolCall) -> AsyncGenerator[Delta, None]:
    yield answer
    yield Finished("stop", Usage())


def remaining(sampling: Sampling, usage: Usage) -> Sampling:
    """Sampling for a second attempt, so that both together stay within the token limit."""
    if sampling.max_tokens is None:
        return sampling
    return replace(sampling, max_tokens=max(1, sampling.max_tokens - usage.generated))
