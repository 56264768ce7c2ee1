"""One conversation with a llama.cpp model: reading ahead and answering."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import ParamSpec, TypeVar

from pipeline.engines.contract import Delta, EndOfTurn, Finished, Warmed
from pipeline.engines.llm.prompts import known_texts
from pipeline.engines.llm.run import Run, SharedParts
from pipeline.engines.llm.vision import Picture, VisionFailed
from pipeline.engines.llm.writer import Writer
from pipeline.errors import PromptTooLong
from pipeline.messages import LlmRequest
from pipeline.work import CancelToken

log = logging.getLogger("reachy_voice.llm")

_P = ParamSpec("_P")
_T = TypeVar("_T")
_REPLY_TOKENS = 128
"""Tokens that a prompt must leave for its answer: half a minute of speech."""


def prompt_limit(room: int) -> int:
    """The longest prompt that can be answered in a context of ``room`` tokens."""
    return room - min(_REPLY_TOKENS, room // 4)


def _without_failed_pictures(work: Callable[_P, Iterator[_T]]) -> Callable[_P, Iterator[_T]]:
    """Repeat ``work`` whenever the projector fails on a picture. This is safe, as nothing is said
    until the model has seen all pictures; the next prompt says that this one was not seen."""

    @functools.wraps(work)
    def again(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[_T]:
        while True:
            try:
                yield from work(*args, **kwargs)
                return
            except VisionFailed as problem:
                log.warning("%s. It is left out", problem)

    return again


class LlamaSession:
    """An ``LlmSession``. Its KV sequence is only a cache and can always be rebuilt."""

    def __init__(self, parts: SharedParts) -> None:
        self._parts = parts
        self._limit = prompt_limit(parts.context.tokens)
        self._recent = known_texts()
        self._end: tuple[list[int], float] = ([], 0.0)
        """The prompt up to the words judged last, and how likely these are complete."""
        self.closed = False

    @_without_failed_pictures
    def warm(self, request: LlmRequest, cancel: CancelToken) -> Iterator[Warmed | None]:
        """Read the certain beginning of the next prompt, and the unfinished words.

        The instructions and tools are also saved to disk. Raises ``PromptTooLong``,
        ``EngineError``, ``Cancelled``.
        """
        prompts, messages, tools = self._parts.prompts, request.messages, request.tools
        prefix = prompts.prefix(messages, tools)
        tokens, probe = prompts.ahead(messages, tools, request.unfinished, self._recent)
        pictures = prompts.pictures(messages, self._recent)
        run = self._run(tokens, prefix, cancel, probe, pictures, evaluate_last=False)
        try:
            if tools:  # compile the grammar now, so that a call need not wait
                prompts.calls.matcher(tools)
            yield from run.fill()
            end = self._end_probability(run, probe)
            yield from run.save_prefix()
            yield Warmed(run.usage(), end, len(prefix), self._share(len(prefix)))
        finally:
            run.close()

    @_without_failed_pictures
    def reply(self, request: LlmRequest, cancel: CancelToken) -> Iterator[Delta | None]:
        """Answer. Each step reads a slice of the prompt or makes a token (in a call: several).

        Raises ``PromptTooLong``, ``EngineError``, ``Cancelled``.
        """
        prompts, messages, tools = self._parts.prompts, request.messages, request.tools
        tokens = prompts.whole(messages, tools, self._recent)
        prefix = prompts.prefix(messages, tools)
        user_is_last = bool(messages) and messages[-1].role == "user"
        probe = prompts.last_word(tokens) if user_is_last else None
        pictures = prompts.pictures(messages, self._recent)
        run = self._run(tokens, prefix, cancel, probe, pictures, evaluate_last=True)
        writer = Writer(
            self._parts.model,
            prompts.calls,
            request,
            room=self._parts.context.tokens - _cells(tokens, pictures),
            thought_end=prompts.thought_end,
        )
        try:
            yield from self._generate(run, writer, probe, cancel)
        finally:
            run.close()

    def close(self) -> None:
        """Stop all runs, and forget the conversation."""
        self.closed = True
        self._recent.clear()
        self._end = ([], 0.0)
        self._parts.cache.disown(self)

    def _share(self, fixed_tokens: int) -> int:
        """The longest prompt at which all current conversations fit into the cells.

        Longer prompts are answered too, but then each turn evicts another conversation's cells.
        ``fixed_tokens``: length of instructions and tools, which conversations can share.
        """
        room = max(0, self._limit - fixed_tokens)
        return fixed_tokens + room // self._parts.cache.conversations

    def _run(
        self,
        tokens: list[int],
        prefix: list[int],
        cancel: CancelToken,
        probe: int | None,
        pictures: Sequence[Picture],
        *,
        evaluate_last: bool,
    ) -> Run:
        cells = _cells(tokens, pictures)
        if cells > self._limit:
            raise PromptTooLong(cells, self._limit)
        if probe is not None and self._end[0] == tokens[: probe + 1]:
            probe = None
        media = {first: part for picture in pictures for first, part in picture.media.items()}
        return Run(
            *(self._parts, self, cancel, tokens, prefix),
            evaluate_last=evaluate_last,
            probe=probe,
            media=media,
        )

    def _end_probability(self, run: Run, probe: int | None) -> float | None:
        """How likely the words up to token ``probe`` are complete; ``None`` unless they were just
        read or are those judged last."""
        if probe is None:
            return None
        tokens = run.tokens[: probe + 1]
        if run.probe_logits is not None:
            self._end = tokens, self._parts.prompts.word_ends.probability(run.probe_logits)
        return self._end[1] if self._end[0] == tokens else None

    def _generate(
        self, run: Run, writer: Writer, probe: int | None, cancel: CancelToken
    ) -> Iterator[Delta | None]:
        run.tokens += writer.begin()
        while writer.may_go_on():
            yield from run.fill()
            tokens, parts = writer.write(self._parts.context.logits())
            run.tokens += tokens
            end = self._end_probability(run, probe)
            probe = None
            if end is not None:
                yield EndOfTurn(end, run.usage(0))
            if parts:
                yield from parts
            else:
                yield None
        yield from writer.finish()
        if writer.failure:
            raise writer.failure
        yield Finished(writer.finish_reason or "stop", run.usage(writer.generated))


def _cells(tokens: Sequence[int], pictures: Sequence[Picture]) -> int:
    """How many KV cells a prompt takes."""
    return len(tokens) + sum(picture.more_cells for picture in pictures)
