"""One conversation with a llama.cpp model: reading ahead and answering."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pipeline.engines.contract import Delta, EndOfTurn, Finished, Warmed
from pipeline.engines.llm.known_texts import KnownTexts
from pipeline.engines.llm.llama_context import Context
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.lookup import PromptLookup
from pipeline.engines.llm.prompts import Prompts
from pipeline.engines.llm.run import Run, Shared
from pipeline.engines.llm.tool_calls.parser import Part
from pipeline.engines.llm.vision import Picture, VisionFailed
from pipeline.engines.llm.writer import Writer
from pipeline.errors import PromptTooLong
from pipeline.messages import Message, Sampling, Tool, ToolChoice
from pipeline.work import CancelToken

log = logging.getLogger("reachy_voice.llm")

_T = TypeVar("_T")
_REPLY_TOKENS = 128
"""Room that a prompt must leave for its answer (half a minute of speech), in tokens."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What all sessions of one engine share."""

    model: Model
    prompts: Prompts
    shared: Shared
    lookup_tokens: int = 0
    """How many tokens are guessed from what stood before, and checked in one pass."""
    """Who guesses where nothing of the kind stood before."""

    @property
    def prompt_limit(self) -> int:
        """The longest prompt that can be answered, in tokens."""
        return prompt_limit(self.shared.context.tokens)


def prompt_limit(room: int) -> int:
    """The longest prompt in a context of ``room`` tokens."""
    return room - min(_REPLY_TOKENS, room // 4)


class LlamaSession:
    """An ``LlmSession``. Its KV sequence is a cache, so it never gets lost for good."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._known = KnownTexts()
        self._end: tuple[list[int], float] = ([], 0.0)
        """The tokens up to the last words that were looked at, and how likely they are complete."""
        self.closed = False

    def warm(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        said: str,
        cancel: CancelToken,
    ) -> Iterator[Warmed | None]:
        """Read what the next prompt begins with in any case, and behind it what was ``said``.

        The instructions and tools are also saved to disk. Raises ``PromptTooLong``,
        ``EngineError``, ``Cancelled``.
        """
        return _seeing(lambda: self._warm(messages, tools, said, cancel))

    def _warm(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        said: str,
        cancel: CancelToken,
    ) -> Iterator[Warmed | None]:
        prompts = self._parts.prompts
        prefix = prompts.prefix(messages, tools)
        tokens, probe = prompts.ahead(messages, tools, said, self._known)
        pictures = prompts.pictures(messages, self._known)
        run = self._run(tokens, prefix, cancel, probe, pictures, evaluate_last=False)
        try:
            if tools:  # compiled now, a call does not wait for it
                prompts.calls.matcher(tools)
            yield from run.fill()
            end = self._end_probability(run, probe)
            yield from run.save_prefix()
            yield Warmed(run.usage(), end, len(prefix), self._share(len(prefix)))
        finally:
            run.close()

    def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        sampling: Sampling,
        cancel: CancelToken,
    ) -> Iterator[Delta | None]:
        """Answer; one step reads a slice of the prompt or makes one token (of a call: some).

        Raises ``PromptTooLong``, ``EngineError``, ``Cancelled``.
        """
        return _seeing(lambda: self._reply(messages, tools, tool_choice, sampling, cancel))

    def _reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        sampling: Sampling,
        cancel: CancelToken,
    ) -> Iterator[Delta | None]:
        prompts = self._parts.prompts
        tokens = prompts.whole(messages, tools, self._known)
        prefix = prompts.prefix(messages, tools)
        asked = bool(messages) and messages[-1].role == "user"
        probe = prompts.last_word(tokens) if asked else None
        pictures = prompts.pictures(messages, self._known)
        run = self._run(tokens, prefix, cancel, probe, pictures, evaluate_last=True)
        writer = Writer(
            self._parts.model,
            prompts.calls,
            tools,
            tool_choice,
            sampling,
            room=self._parts.shared.context.tokens - _cells(tokens, pictures),
            thought_end=prompts.thought_end,
        )
        try:
            yield from self._generate(run, writer, probe, cancel)
        finally:
            run.close()

    def close(self) -> None:
        """Stop what runs, and forget what was said."""
        self.closed = True
        self._known.forget()
        self._end = ([], 0.0)
        self._parts.shared.cache.disown(self)

    def _share(self, fixed_tokens: int) -> int:
        """How long prompts may get, so that those who talk now all keep theirs in the cells.

        A longer one is answered as well, but then each turn of one takes the cells of another.
        ``fixed_tokens``: of instructions and tools, which take cells once where they are the same.
        """
        room = max(0, self._parts.prompt_limit - fixed_tokens)
        return fixed_tokens + room // self._parts.shared.cache.conversations

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
        if cells > self._parts.prompt_limit:
            raise PromptTooLong(cells, self._parts.prompt_limit)
        shared = self._parts.shared
        if probe is not None and self._end[0] == tokens[: probe + 1]:
            probe = None
        media = {first: part for picture in pictures for first, part in picture.media.items()}
        return Run(
            *(shared, self, cancel, tokens, prefix),
            evaluate_last=evaluate_last,
            probe=probe,
            media=media,
        )

    def _end_probability(self, run: Run, probe: int | None) -> float | None:
        """Of the words up to token ``probe``, that were read now or are the last ones looked at."""
        if probe is None:
            return None
        tokens = run.tokens[: probe + 1]
        if run.probed is not None:
            self._end = tokens, self._parts.prompts.word_ends.probability(run.probed)
        return self._end[1] if self._end[0] == tokens else None

    def _generate(
        self, run: Run, writer: Writer, probe: int | None, cancel: CancelToken
    ) -> Iterator[Delta | None]:
        context = self._parts.shared.context
        lookup = PromptLookup(self._parts.lookup_tokens if context.forgets_partly else 0)
        run.tokens += writer.begin()
        while writer.may_go_on():
            run.guess = lookup.guess(run.tokens)
            yield from run.fill()
            parts = _write(run, writer, context)
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
        yield Finished(writer.ended or "stop", run.usage(writer.generated))


def _seeing(work: Callable[[], Iterator[_T]]) -> Iterator[_T]:
    """``work``, and once more for each picture that cannot be seen: nothing is said before all are
    seen, and then the prompt says that this one was not."""
    while True:
        try:
            yield from work()
            return
        except VisionFailed as problem:
            log.warning("%s. It is left out", problem)


def _cells(tokens: Sequence[int], pictures: Sequence[Picture]) -> int:
    """How many cells a prompt takes."""
    return len(tokens) + sum(picture.more_cells for picture in pictures)


def _write(run: Run, writer: Writer, context: Context) -> list[Part]:
    """Take the next token; and the one behind it, as long as they are those that were guessed."""
    written: list[Part] = []
    guess = run.guess[: run.checked]
    for number, guessed in enumerate([*guess, None]):
        tokens, parts = writer.write(context.logits(number - len(guess) - 1))
        run.tokens += tokens
        written += parts
        if tokens != [guessed] or not writer.may_go_on():
            break
    return written
