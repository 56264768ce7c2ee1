"""A dialogue with a real model: how much of each prompt was read before the turn ended."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, zip_longest
from pathlib import Path

import pytest

from pipeline.conversation.chat import Chat
from pipeline.conversation.prompt import prompt
from pipeline.conversation.warm_up import new_beginning
from pipeline.engines.contract import (
    Delta,
    Finished,
    LlmSession,
    Partial,
    TextDelta,
    ToolCall,
    Warmed,
)
from pipeline.engines.llm.llama_cpp import LlamaCpp, LlamaCppOptions, build
from pipeline.hearing.recognition import StableWords
from pipeline.items import AudioPart, FunctionCallItem, FunctionOutputItem, Item, MessageItem
from pipeline.messages import LlmRequest, Message, Sampling, Tool, ToolChoice, Usage
from pipeline.work import NEVER
from tests.support.llama_talk import MODEL
from tests.support.robot_tools import robot_tools

pytestmark = [pytest.mark.engines, pytest.mark.real]

INSTRUCTIONS = (
    "You are Reachy, a small robot that stands on a desk. You have a head that you can move, two "
    "antennas, a camera and a loudspeaker. You are friendly, curious and a little cheeky. What you "
    "say is spoken aloud, so answer in one or two short sentences, without lists or markup. Use a "
    "tool when somebody asks you to move, to look or to dance. Say so when you do not know."
)
SAID = (
    "Good morning, Reachy, how are you today?",
    "Could you please tell me what you can see on the table in front of you?",
    "Well, I was wondering, um, whether you know a good recipe for tomato soup.",
    "Yes.",
    "Please turn your head to the left and then look up to the window behind me.",
    "What is twelve times eight?",
    "My sister is coming for dinner on Sunday, and I would like to cook something nice for her.",
    "No, wait, that is not what I meant at all.",
    "Can you dance for us?",
    "How far is it from Paris to London, and how long does the train take to get there?",
    "I think you are the funniest robot that I have ever talked to, do you know that?",
    "Stop.",
)
"""What the user says, one after the other."""

_ANSWER_TOKENS = 28
_STABLE_AFTER_WORDS = 3
"""Words per pass of the recogniser (0.3 s each)."""
_RESULT = '{"done": true, "seen": "a cup, two books and a window with a plant", "took_s": 1.25}'


@dataclass(frozen=True, slots=True)
class Turn:
    """One answered prompt. ``kinds``: the events in it or just before it."""

    usage: Usage
    kinds: tuple[str, ...]


@dataclass
class Dialogue:
    """A conversation on ``session``, as in a spoken one but without audio or real time.

    While the user speaks, stable words are prefilled; replies begin in pauses and are dropped when
    the user goes on; tools are called; answers are cut off; in idle time the history is prefilled,
    and shortened when long. ``seed`` drives it; ``first``: index in ``SAID`` of its first sentence.
    """

    session: LlmSession
    tools: Sequence[Tool]
    seed: int = 4
    first: int = 0
    chat: Chat = field(default_factory=Chat)
    _begins: str | None = None
    """Where the context has begun since it was last shortened."""
    _carried: tuple[str, ...] = ()
    """The kinds that the next turn will report."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._numbers = count()

    def turns(self, number: int) -> Iterator[Turn]:
        """``number`` turns of the user; a call and the answer to its result are two prompts."""
        self._idle()
        for at in range(number):
            text = SAID[self.first + at]
            kinds = [*self._carried, *self._speak(text, resumes=at % 3 == 1)]
            self._carried = ()
            self.chat.add(MessageItem(self._id(), "user", (AudioPart(text),)))
            calls = at % 4 == 0
            yield from self._answer(kinds, calls=calls)
            if calls:
                yield from self._answer(["result"], calls=False)
            if at % 5 == 2:
                # A barge-in: no idle time before the next speech.
                self._cut_last()
                self._carried = ("barge-in",)
            else:
                self._idle()

    # --- listening

    def _speak(self, text: str, *, resumes: bool) -> Iterator[str]:
        words, stable, told = text.split(), StableWords(), ""
        pause = self._random.randrange(len(words) // 3, len(words)) if resumes else 0
        for heard in range(1, len(words) + 1):
            if heard % _STABLE_AFTER_WORDS == 0:
                # A recogniser ends a partial with a full stop.
                guess = " ".join(words[:heard]).rstrip(".,?") + "."
                told += stable.feed(Partial(tentative=guess))
                self._warm(self._prompt(), told)
            if heard == pause and heard < len(words):
                self._begin_and_die(" ".join(words[:heard]))
                yield "resumed"

    def _begin_and_die(self, said: str) -> None:
        messages = self._prompt(MessageItem("", "user", (AudioPart(said),)))
        tokens = self._random.randrange(1, 12)
        for delta in self._reply(messages, ToolChoice()):
            if isinstance(delta, TextDelta):
                tokens -= 1
                if tokens == 0:
                    break

    # --- answering

    def _answer(self, kinds: Sequence[str], *, calls: bool) -> Iterator[Turn]:
        messages = self._prompt()
        choice = ToolChoice("required", parallel=False) if calls else ToolChoice("none")
        words, found, usage = "", [], Usage()
        for delta in self._reply(messages, choice):
            match delta:
                case TextDelta(text):
                    words += text
                case ToolCall():
                    found.append(delta)
                case Finished():
                    usage = delta.usage
        self._remember(words, found)
        yield Turn(usage, (*kinds, "call") if found else tuple(kinds))

    def _remember(self, words: str, calls: Sequence[ToolCall]) -> None:
        if words:
            self.chat.add(MessageItem(self._id(), "assistant", (AudioPart(words),)))
        for call in calls:
            call_id = self._id()
            self.chat.add(FunctionCallItem(self._id(), call_id, call.name, call.arguments))
            self._idle()
            self.chat.add(FunctionOutputItem(self._id(), call_id, _RESULT))

    def _cut_last(self) -> None:
        item = self.chat.items[-1]
        if isinstance(item, MessageItem) and item.role == "assistant":
            words = item.text.split(" ")
            heard = " ".join(words[: len(words) // 2])
            self.chat.put(MessageItem(item.id, "assistant", (AudioPart(heard),), "incomplete"))

    def _reply(self, messages: Sequence[Message], choice: ToolChoice) -> Iterator[Delta]:
        seed = self._random.randrange(2**31)
        sampling = Sampling(seed=seed, max_tokens=_ANSWER_TOKENS)
        request = LlmRequest(messages, self.tools, choice, sampling)
        steps = self.session.reply(request, NEVER)
        return (delta for delta in steps if delta)

    # --- reading ahead

    def _idle(self) -> None:
        start = new_beginning(self._context(), self._warm(self._prompt()))
        if start:
            self._begins = start
            self._warm(self._prompt())
            self._carried = (*self._carried, "shortened")

    def _warm(self, messages: Sequence[Message], said: str = "") -> Warmed:
        *_, warmed = self.session.warm(LlmRequest(messages, self.tools, unfinished=said), NEVER)
        assert warmed
        return warmed

    # --- the conversation

    def _context(self) -> list[Item]:
        items = list(self.chat.items)
        ids = [item.id for item in items]
        return items[ids.index(self._begins) :] if self._begins else items

    def _prompt(self, *more: Item) -> list[Message]:
        return prompt(INSTRUCTIONS, [*self._context(), *more])

    def _id(self) -> str:
        return f"item_{next(self._numbers)}"


TOOLS = robot_tools()[:5]
APART = 7
"""Offset in sentences between two dialogues, so that they never say the same at once."""


@pytest.fixture(scope="module")
def engine(weights: Callable[[str], Path]) -> LlamaCpp:
    """An engine whose context is too small for the dialogue, so its history is shortened."""
    return build(LlamaCppOptions(threads=1, context_tokens=1664), weights(MODEL))


def test_most_of_a_prompt_is_cached_before_the_turn_ends(engine: LlamaCpp) -> None:
    """Only the last words of each prompt and the marks after them remain to be read."""
    turns = list(Dialogue(engine.open(), TOOLS).turns(8))
    kinds = {kind for turn in turns for kind in turn.kinds}
    assert {"call", "result", "resumed", "barge-in", "shortened"} <= kinds
    for turn in turns:
        assert turn.usage.cached + turn.usage.evaluated == turn.usage.prompt
    ends = [turn for turn in turns if "result" not in turn.kinds]
    assert sum(t.usage.cached for t in ends) >= 0.98 * sum(t.usage.prompt for t in ends)
    assert max(turn.usage.evaluated for turn in ends) <= 24


def test_two_dialogues_that_alternate_keep_their_prompts(weights: Callable[[str], Path]) -> None:
    made = build(LlamaCppOptions(threads=1, context_tokens=8192), weights(MODEL))
    talks = [Dialogue(made.open(), TOOLS, seed=4 + n, first=APART * n) for n in range(2)]
    for turns in list(zip_longest(*(talk.turns(5) for talk in talks)))[1:]:
        usages = [turn.usage for turn in turns if turn]
        assert all(usage.cached >= 0.95 * usage.prompt for usage in usages)
