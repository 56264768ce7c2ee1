"""Language models by URL: answering and reading ahead over ``POST /v1/chat/completions``.

The server caches the prompts, so a conversation here holds only its token counts.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Literal

from pydantic import Field

from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.by_url.exchange import HttpExchange
from pipeline.engines.by_url.failures import (
    ServerFailure,
    broke_off,
    complaint,
    garbled,
    refusal,
)
from pipeline.engines.by_url.families import OPENAI
from pipeline.engines.by_url.options import UrlOptions
from pipeline.engines.by_url.pool import Pool
from pipeline.engines.contract import Delta, Finished, Warmed
from pipeline.engines.llm.chat_answer import ChatAnswer, ThoughtHabits
from pipeline.engines.llm.chat_completions import usage_of
from pipeline.engines.llm.chat_requests import ChatRequests
from pipeline.engines.llm.llama_options import LlamaCppOptions
from pipeline.engines.llm.token_estimate import estimated_tokens
from pipeline.engines.llm.tool_calls.parser import Part
from pipeline.engines.llm.url_prompts import (
    MalformedAnswer,
    StreamError,
    UrlRequest,
    for_eyes,
    for_the_blind,
)
from pipeline.engines.registry import Kind, UrlEngineSpec
from pipeline.errors import EngineError, PromptTooLong, Rejection
from pipeline.messages import LlmRequest, Message, Usage
from pipeline.work import Cancelled, Priority, Work

log = logging.getLogger("reachy_voice.llm")

REPLY_TOKENS = 512
"""Tokens of the context that a prompt leaves for its answer; else the server stops mid-sentence."""


JUDGE_CONTEXT_TOKENS = 4096
"""Enough for a judge, which reads its instructions once and only the latest words of each
conversation."""
TOKENS_PER_CHAR = 0.25
"""For instructions and tools, before the server has counted a prompt. Low, as nothing of them can
be left out: a prompt that may fit must not be refused."""
LINGER_S = 0.5
"""Longest wait, after an answer, for its token counts and the end of the stream. Reading to the end
keeps the connection open for the next request."""


class ChatOptions(UrlOptions):
    engine: Literal["openai-chat"] = "openai-chat"
    read_ahead: bool | None = None
    """Have the server read prompts in advance by asking for one-token answers: answers begin sooner
    if it caches what it has read. null: yes, except at OpenAI, where tokens cost money."""
    context_tokens: int | None = Field(default=None, ge=512, le=2**24)
    """Longest prompt and answer; null: as the server reports."""
    vision: bool = False
    """Whether the model can see pictures. If not, it reads a note in place of each picture."""
    word_judge: str | None = "smollm2-135m-instruct"
    """Weights of a small local model that judges if the user's words are complete, which servers do
    not report: the robot then waits for unfinished sentences. null: the turn detector decides
    alone, as it does if the memory (210 MB) is lacking."""

    @property
    def judge(self) -> LlamaCppOptions | None:
        if self.word_judge is None:
            return None
        return LlamaCppOptions(
            weights=self.word_judge, context_tokens=JUDGE_CONTEXT_TOKENS, saved_prefix_mb=0
        )


class UrlLlm(UrlEngine):
    """An ``LlmStage``."""

    def __init__(self, options: ChatOptions, pool: Pool) -> None:
        super().__init__(Kind.LLM, options, pool)
        self.chat_options = options
        self.refuses_reading = False
        """Whether the server has rejected a request that reads ahead."""
        self.thought_habits = ThoughtHabits()
        self.requests = ChatRequests(self)

    @property
    def reads_ahead(self) -> bool:
        setting = self.chat_options.read_ahead
        free = self.server.family is not OPENAI
        return not self.refuses_reading and (free if setting is None else setting)

    @property
    def context_tokens(self) -> int:
        """0 if unknown."""
        return self.chat_options.context_tokens or self.server.context_tokens

    @property
    def most_prompt_tokens(self) -> int:
        room = self.context_tokens
        return room - min(REPLY_TOKENS, room // 4)

    may_load = True  # the last probe may be out of date by the time of a request

    def open(self) -> UrlConversation:
        return UrlConversation(self)

    async def warm_up(self) -> None:
        hello = LlmRequest([Message("user", "Hello")])
        await UrlConversation(self).read(hello, Work(Priority.WARM_UP))


class UrlConversation:
    """A ``ConversationStage``."""

    def __init__(self, llm: UrlLlm) -> None:
        self._llm = llm
        self._closed = False
        self._usage = Usage()
        """Usage of the last answer or read-ahead."""
        self._counted = 0, 1.0
        """Tokens of the last counted prompt, and the estimate for the same prompt."""

    async def warm(self, request: LlmRequest, work: Work) -> Warmed:
        """Make the server read the prompt. Without reading ahead, the last answer's usage tells how
        full the context is. Raises ``EngineError``, ``Cancelled``."""
        self._require_open()
        url_request = self._url_request(request)
        self._require_room(url_request)
        if self._llm.reads_ahead:
            try:
                self._usage = await self._read(url_request.read_ahead(request.unfinished), work)
            except Rejection as error:
                self._llm.refuses_reading = True
                log.warning("prompts are no longer read ahead: %s", error)
        usage = self._usage
        return Warmed(
            usage,
            fixed_tokens=_fixed_tokens(url_request, usage),
            most_tokens=self._llm.most_prompt_tokens if usage.prompt else 0,
        )

    async def read(self, request: LlmRequest, work: Work) -> None:
        """Make the server read a prompt, regardless of ``read_ahead``."""
        await self._read(self._url_request(request).read_ahead(request.unfinished), work)

    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        """Answer. Raises ``PromptTooLong``, ``EngineError``, ``Cancelled``."""
        self._require_open()
        url_request = self._url_request(request)
        self._require_room(url_request)
        earlier_usage = Usage()
        if url_request.forced and url_request.family.calls_by_schema:
            try:
                by_schema = self._answer(replace(url_request, form="schema"), work, earlier_usage)
                async with aclosing(by_schema) as deltas:
                    async for delta in deltas:
                        yield delta
                return
            except (Rejection, ServerFailure) as error:
                log.warning("asking for a call without its schema: %s", error.what)
                url_request = replace(url_request, form="any arguments")
            except NoCall as error:  # llama-server ignores the bounds of a "number"
                log.warning("asking for a call once more: %s", error.what)
                earlier_usage, url_request = error.usage, replace(url_request, form="schema")
        async with aclosing(self._answer(url_request, work, earlier_usage)) as deltas:
            async for delta in deltas:
                yield delta

    async def _answer(
        self, request: UrlRequest, work: Work, earlier_usage: Usage
    ) -> AsyncGenerator[Delta, None]:
        llm = self._llm
        answer = ChatAnswer(request, llm.thought_habits)
        async with (
            llm.requests.ask(answer.request, work, stream=True) as exchange,
            aclosing(self._parts(exchange, answer)) as parts,
        ):
            async for part in parts:
                yield part
        for part in answer.finish(forbids_thoughts=llm.requests.forbids_thoughts(request)):
            yield part
        usage = answer.usage
        self._learn(answer.request, usage)
        total = usage.prompt + usage.generated
        self._usage = Usage(total, evaluated=total)
        if answer.lacks_words:
            llm.thought_habits.need_tokens = True
            log.warning("%s thinks, and had no tokens left to answer: it gets more", llm.place.who)
            async with aclosing(self._answer(request, work, earlier_usage + usage)) as deltas:
                async for delta in deltas:
                    yield delta
        elif answer.lacks_call:
            raise _no_call(llm, usage)
        else:
            yield Finished(answer.finish_reason or "stop", earlier_usage + usage)

    def close(self) -> None:
        self._closed = True

    # -- room

    def _require_room(self, request: UrlRequest) -> None:
        """Raise ``PromptTooLong`` where the server would truncate instead. The length is that of
        the last prompt plus an estimate for what was added."""
        llm = self._llm
        most = llm.context_tokens
        cuts = llm.server.family.cuts or llm.chat_options.context_tokens
        if not (cuts and most):
            return
        (counted, before), now = self._counted, _estimate(request)
        ratio = counted / before
        tokens = round(ratio * min(now, before) + max(1.0, ratio) * max(0.0, now - before))
        if tokens > most:
            raise PromptTooLong(tokens, most)

    def _learn(self, request: UrlRequest, usage: Usage) -> None:
        if usage.prompt:
            self._counted = usage.prompt, max(1.0, _estimate(request))

    # -- requests

    def _require_open(self) -> None:
        if self._closed:
            raise Cancelled

    def _url_request(self, request: LlmRequest) -> UrlRequest:
        server = self._llm.server
        view = for_eyes if self._llm.chat_options.vision else for_the_blind
        return UrlRequest(
            server.model,
            server.family,
            list(map(view, request.messages)),
            request.tools,
            request.tool_choice,
            request.sampling,
        )

    async def _parts(
        self, exchange: HttpExchange, answer: ChatAnswer
    ) -> AsyncGenerator[Part, None]:
        """The answer's parts as they come. Token counts may follow them, but are not required."""
        place = self._llm.place
        try:
            async with aclosing(exchange.events()) as events:
                async for event in events:
                    for part in answer.feed(event):
                        yield part
                    if answer.is_full:
                        return
                    if answer.finish_reason:
                        exchange.linger(LINGER_S)
        except MalformedAnswer as problem:
            raise garbled(place, str(problem)) from problem
        except StreamError as problem:
            private = answer.request.private
            raise refusal(place, complaint(0, problem.body), private) from problem
        except EngineError:
            if not answer.finish_reason:
                raise
        if not answer.finish_reason:
            raise broke_off(place, "its stream ended before the answer did")

    async def _read(self, request: UrlRequest, work: Work) -> Usage:
        async with self._llm.requests.ask(request, work, stream=False) as exchange:
            content = await exchange.body()
        try:
            usage = usage_of(json.loads(content)) or Usage()
        except (ValueError, RecursionError):
            return Usage()
        self._learn(request, usage)
        return usage


_MARKS_TOKENS = 6
"""Tokens that a template adds around a message."""


def _talk_tokens(request: UrlRequest) -> float:
    return _MARKS_TOKENS * len(request.messages) + estimated_tokens(request.talk)


def _estimate(request: UrlRequest) -> float:
    """The estimated tokens of everything that the model reads."""
    return TOKENS_PER_CHAR * len(request.fixed) + _talk_tokens(request)


def _fixed_tokens(request: UrlRequest, usage: Usage) -> int:
    """Tokens of instructions and tools, by their share of the text, as servers report only the
    sum."""
    fixed = estimated_tokens(request.fixed)
    return int(usage.prompt * fixed / max(1.0, fixed + _talk_tokens(request)))


class NoCall(EngineError):
    """The answer had to be a call but was not. ``usage``: its token counts."""

    usage = Usage()


def _no_call(engine: UrlEngine, usage: Usage) -> NoCall:
    error = NoCall(
        f"{engine.place.who} wrote no tool call that fits its schema",
        why="the answer had to be a call",
        fix="Choose a model that can call tools, and start its server with a parser for its calls",
    )
    error.usage = usage
    return error


SPEC = UrlEngineSpec(
    name="openai-chat",
    kind=Kind.LLM,
    options=ChatOptions,
    build=UrlLlm,
    summary="a server with /v1/chat/completions: llama-server, vLLM, Ollama, LM Studio, OpenAI",
)
