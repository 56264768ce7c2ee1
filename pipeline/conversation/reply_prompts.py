"""Builds a reply's prompt: instructions and the conversation, or the client's replacement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile

from pipeline.commands import ItemReference, ResponseOptions
from pipeline.context import SessionContext
from pipeline.conversation.chat import Chat
from pipeline.conversation.prompt import NO_OUTPUT, prompt
from pipeline.conversation.transcribing import Transcriber
from pipeline.errors import PromptTooLong, ReachyVoiceError
from pipeline.hearing.recognition import same_words
from pipeline.items import AudioPart, Item, MessageItem
from pipeline.messages import Message

SILENCE = Message("user", "(The user has been silent for a while.)")
"""What the model reads in place of the user's words when the idle timeout makes it speak."""


@dataclass(slots=True, eq=False)
class UncommittedSpeech:
    """The user's words, which may become part of the conversation at any time."""

    part: AudioPart
    committed: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a reply answers: the conversation, unless one of these says otherwise."""

    instructions: str | None = None
    """``None``: those of the session at the time the prompt is rendered."""
    items: Sequence[Item] | None = None
    """Items that replace the conversation."""
    known: frozenset[str] | None = None
    """The ids of the only items of the conversation that count."""
    speech: UncommittedSpeech | None = None
    """What it answers in addition, until that is part of the conversation."""
    silence: bool = False
    """Whether the user has been silent for a while."""
    error: ReachyVoiceError | None = None
    """Why the user's words are unknown."""


class ReplyPrompts:
    """The prompts of one session."""

    def __init__(self, context: SessionContext, chat: Chat, transcriber: Transcriber) -> None:
        self._context = context
        self._chat = chat
        self._transcriber = transcriber

    def make_room(self, asked: Prompt, problem: PromptTooLong, *, lasting: bool) -> bool:
        """Shorten a prompt that was too long; if ``lasting``, the conversation itself. False if
        that cannot help."""
        if asked.items is None and lasting:
            return self._chat.make_room(problem)
        items = self._chat.context if asked.items is None else asked.items
        return self._chat.shorten(items, problem)

    async def render(self, asked: Prompt) -> list[Message]:
        """The messages, once the transcripts that they need are known. Raises ``asked.error``, and
        what the recogniser raises."""
        if asked.error:
            raise asked.error
        if asked.items is not None:
            items = self._chat.shown(await self._transcriber.with_text(asked.items))
            return prompt(asked.instructions or "", items)
        await self._transcriber.settled()
        speech = None if asked.speech is None or asked.speech.committed else asked.speech.part
        messages = self.conversation(speech, asked.instructions, asked.known)
        return [*messages, SILENCE] if asked.silence else messages

    def conversation(
        self,
        speech: AudioPart | None = None,
        instructions: str | None = None,
        known: frozenset[str] | None = None,
        start: str | None = None,
    ) -> list[Message]:
        """The conversation's prompt, with the words known so far. ``speech``: about to be
        committed; ``start``: id of the item to begin with; the others as in ``Prompt``."""
        items: tuple[Item, ...] = self._chat.context
        if start:
            items = tuple(dropwhile(lambda item: item.id != start, items))
        if known is not None:
            items = tuple(item for item in items if item.id in known)
        if speech:
            items += (MessageItem("", "user", (speech,), at=self._context.turn_time()),)
        if instructions is None:
            instructions = self.instructions(ResponseOptions())
        return prompt(instructions, items)

    def unfinished(self, speech: AudioPart) -> str:
        """The user's words so far, as they will stand in the next prompt."""
        words = speech.transcript or ""
        if not words or (not speech.speaker and self._context.turn_time() is None):
            return words
        before, after = self.conversation()[-1:], self.conversation(speech)[-1]
        continues = before and before[0].role == "user"
        return after.content[len(before[0].content) + 1 :] if continues else after.content

    def instructions(self, options: ResponseOptions) -> str:
        config = self._context.config.with_options(options)
        text, for_tools = config.instructions, self._context.settings.tool_instructions
        return f"{text}\n\n{for_tools}".strip() if config.offered else text

    def input_items(self, options: ResponseOptions) -> tuple[Item, ...] | None:
        """The items of ``response.input``, references resolved. Raises ``UnknownItem``."""
        if options.input is None:
            return None
        return tuple(
            self._chat.get(item.item_id) if isinstance(item, ItemReference) else item
            for item in options.input
        )


def ask_the_same(read: Sequence[Message], now: Sequence[Message]) -> bool:
    """Whether two prompts are the same, apart from case and punctuation of the last message."""
    if read == now:
        return True
    return (
        len(read) == len(now)
        and read[:-1] == now[:-1]
        and read[-1].role == now[-1].role == "user"
        and [image.url for image in read[-1].images] == [image.url for image in now[-1].images]
        and same_words(read[-1].content, now[-1].content)
    )


def awaits_an_answer(messages: Sequence[Message]) -> bool:
    """Whether the last message is the user's, or the output of a call."""
    if not messages:
        return False
    last = messages[-1]
    return last.role == "user" or (last.role == "tool" and last.content != NO_OUTPUT)
