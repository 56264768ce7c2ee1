"""One streamed answer of a language model by URL: its words and calls. Sans-I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.engines.contract import FinishReason
from pipeline.engines.llm.chat_completions import ChatReader
from pipeline.engines.llm.tool_calls.parser import Part
from pipeline.engines.llm.url_prompts import ReplyParser, UrlRequest
from pipeline.messages import Usage

THOUGHT_TOKENS = 1024
"""Tokens for the thoughts of a model that cannot be told not to think, such as gpt-oss."""
ANSWERS_WITHOUT_END = 2
"""After so many answers in a row without the end of a thought, the model begins with none."""


@dataclass(slots=True)
class ThoughtHabits:
    """How a server's model thinks, as its answers show."""

    need_tokens: bool = False
    """Whether thoughts have used up the tokens of an answer."""
    end: str = ""
    """The mark that ends the thought in which answers begin: such a server's template opens it in
    the prompt, and the server leaves it in the text."""
    without_end: int = 0
    """How many answers in a row lacked that mark."""


class ChatAnswer:
    """One answer as it arrives. ``request``: as it is sent, with more tokens for thoughts."""

    def __init__(self, request: UrlRequest, habits: ThoughtHabits) -> None:
        self.request = request
        self._habits = habits
        self._most = math.inf
        if habits.need_tokens and (own := request.sampling.max_tokens) is not None:
            self._most = own
            sampling = replace(request.sampling, max_tokens=own + THOUGHT_TOKENS)
            self.request = replace(request, sampling=sampling)
        self._reader = ChatReader()
        self._begins_inside = bool(habits.end) and not request.forced
        self._parser = ReplyParser(request, habits.end if self._begins_inside else "")
        self._part_count = 0
        self.is_full = False
        """Whether it is as long as it may be, so that the rest of the stream is not needed."""

    @property
    def usage(self) -> Usage:
        return self._reader.usage or Usage()

    @property
    def finish_reason(self) -> FinishReason | None:
        """``None`` while the server is still answering."""
        return "length" if self.is_full else self._reader.finish_reason

    @property
    def lacks_words(self) -> bool:
        """Whether thoughts used up its tokens, which this model was not known to need."""
        if self._habits.need_tokens or self.request.forced:
            return False
        return self.finish_reason == "length" and not (self._part_count or self._reader.calls)

    @property
    def lacks_call(self) -> bool:
        """Whether it had to be a call but is not."""
        return self._parser.missing and self.finish_reason == "stop"

    def feed(self, event: str) -> Sequence[Part]:
        """The parts in one event. Raises ``StreamError``, ``MalformedAnswer``."""
        parts = [*self._parser.text(self._reader.feed(event))]
        self._part_count += len(parts)
        if end := self._parser.closed_thought:
            self._habits.end, self._habits.without_end = end, 0
        self.is_full = self._part_count >= self._most
        return parts

    def finish(self, *, forbids_thoughts: bool) -> Iterator[Part]:
        """The rest. ``forbids_thoughts``: the model was told not to think."""
        reader = self._reader
        if forbids_thoughts and not self._habits.need_tokens:
            yield from self._parser.text(reader.misplaced)
        if self._begins_inside and self._lacks_end():
            self._parser = ReplyParser(self.request)
            yield from self._parser.text(reader.content)
        for part in self._parser.finish(reader.calls):
            self._part_count += 1
            yield part

    def _lacks_end(self) -> bool:
        """Whether a whole answer has closed no thought, so that it may not have been one."""
        reader, habits = self._reader, self._habits
        is_whole = self.finish_reason == "stop" and reader.content and not reader.calls
        if not is_whole or self._parser.closed_thought:
            return False
        habits.without_end += 1
        if habits.without_end >= ANSWERS_WITHOUT_END:
            habits.end = ""
        return True
