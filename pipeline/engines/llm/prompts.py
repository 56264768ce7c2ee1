"""Turns messages and tools into prompt tokens."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from pipeline.engines.llm.chat_template import CHATML, ChatTemplate, PromptPart
from pipeline.engines.llm.kv_cache import common_prefix
from pipeline.engines.llm.llama_model import Model
from pipeline.engines.llm.pictures import FORGOTTEN_IMAGE, UNREADABLE_IMAGE, in_words, joined
from pipeline.engines.llm.recent import Latest, Recent
from pipeline.engines.llm.tool_calls.grammar import CallGrammars
from pipeline.engines.llm.vision import Picture, VisionProjector
from pipeline.engines.llm.word_ends import WordEnds, without_end_marks
from pipeline.errors import PromptTooLong
from pipeline.items import UNSEEN_IMAGE
from pipeline.messages import Image, Message, Tool

_LONG_TOKEN_CHARS = 24
"""Average characters per token that no long text reaches (English: 4 to 5)."""
_KNOWN_PROMPTS = 8
_PROBES = ("Hello", "0, 1, 2")
"""Two texts with different first tokens, so that prompts with them share none of their tokens."""
_BEGINNINGS = (*_PROBES, "", "(", '"', '{"', "[1")
"""Different ways in which messages and results begin."""
_MARK = "\ue002"
"""A private-use character that marks where the user may continue."""
_HELLO = Message("user", "Hello")


def known_texts() -> Recent:
    """A cache of a conversation's latest texts (as tokens) and pictures, so that only new ones are
    read. It holds private data: what people said and showed."""
    return Recent(_KNOWN_PROMPTS)


class Prompts:
    """Writes one model's prompts."""

    def __init__(
        self,
        model: Model,
        arguments: Mapping[str, Any],
        most_tokens: int | None = None,
        vision: VisionProjector | None = None,
        examples: Sequence[tuple[str, str]] = (),
    ) -> None:
        """``arguments`` are further variables for the chat template; ``examples`` are user messages
        and good answers."""
        self._model = model
        self._vision = vision
        """If ``None``, the model reads a sentence in place of a picture."""
        self._most_tokens = most_tokens
        """The longest prompt worth tokenizing to its end."""
        pairs = ((Message("user", text), Message("assistant", answer)) for text, answer in examples)
        self._examples = [message for pair in pairs for message in pair]
        self._template = self._read(model.chat_template() or CHATML, arguments)
        with_tools = model.chat_template("tool_use")
        self._tool_template = self._read(with_tools, arguments) if with_tools else self._template
        self.calls = CallGrammars(model, self._tool_template.syntax)
        self.thought_end = self._template.thought_end
        """The mark that closes the thought in which every prompt ends; empty if there is none."""
        self._prefixes = Latest()
        self._border = self._borders()
        one, other = (self.whole([Message("user", text)], []) for text in _PROBES)
        self._tail = one[len(one) - common_prefix(one[::-1], other[::-1]) :]
        """The tokens after the user's last message."""
        self.word_ends = WordEnds(model)

    def whole(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        recent: Recent | None = None,
    ) -> list[int]:
        """The whole prompt, up to where the assistant's answer begins.

        ``recent``: keeps parts of earlier prompts from being tokenized again. Raises
        ``PromptTooLong`` if it is obviously too long; the caller checks the exact length.
        """
        recent = recent or known_texts()
        messages = self._with_examples([self._visible(message, recent) for message in messages])
        template = self._template_for(messages, tools)
        tokens = self._with_bos(self._tokens(template.render(messages, tools), recent))
        # Only an ordinary token has logits for the next one.
        if tokens and tokens[-1] < 0:
            tokens += self._model.tokenize("\n", special=False)
        return tokens

    def pictures(self, messages: Sequence[Message], recent: Recent) -> list[Picture]:
        """The pictures that the model can see in ``messages``."""
        images = (image for message in messages for image in message.images)
        pictures = (self._picture(image, recent) for image in images)
        return [picture for picture in pictures if picture]

    def prefix(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        """The part before the conversation: instructions and tools."""
        system = tuple(takewhile(lambda message: message.role == "system", messages))
        key = (tuple(m.content for m in system), tuple(map(repr, tools)))
        return self._prefixes.get(key, lambda: self._beginning(system, tools, "", known_texts()))

    def ahead(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        unfinished: str,
        recent: Recent | None = None,
    ) -> tuple[list[int], int | None]:
        """The tokens that the next prompt begins with, however the user continues, and the index of
        the user's last word among them; ``None`` if the last words are not the user's.

        If ``unfinished`` (see ``LlmSession.warm``) is empty and the last message is from the user
        or a tool, it is the assistant's turn, and this is the whole prompt. If the assistant has
        called a tool, the tool's result comes next. Raises ``PromptTooLong`` as ``whole`` does.
        """
        recent = recent or known_texts()
        words = without_end_marks(unfinished)
        if not words and messages and messages[-1].role in ("user", "tool"):
            whole = self.whole(messages, tools, recent)
            return whole, self.last_word(whole) if messages[-1].role == "user" else None
        tokens = self._beginning(messages, tools, words, recent)
        return tokens, len(tokens) - 1 if words and self.word_ends.reach(tokens, words) else None

    def last_word(self, tokens: list[int]) -> int | None:
        """Where the user's last word ends in a whole prompt that ends with the user's message;
        ``None`` if that is unclear."""
        end = len(tokens) - len(self._tail)
        return self.word_ends.last(tokens, end) if tokens[end:] == self._tail else None

    def _beginning(
        self, messages: Sequence[Message], tools: Sequence[Tool], words: str, recent: Recent
    ) -> list[int]:
        """The common beginning of all prompts whose next message begins with ``words``.

        The prompt is rendered once, with a mark where the message may continue.
        """
        waits = bool(messages) and bool(messages[-1].tool_calls) and not words
        prompt = _with_result(messages, _MARK) if waits else _going_on(messages, f"{words}{_MARK}")
        prompt = self._with_examples([self._visible(message, recent) for message in prompt])
        pieces = self._template_for(prompt, tools).render(prompt, tools)
        parts = [part for piece in pieces for part in self._parts(piece)]
        places = [at for at, part in enumerate(parts) if _MARK in part.text]
        if len(places) != 1 or parts[places[0]].text.count(_MARK) != 1:
            return []
        part = parts[places[0]].text
        before = self._tokens(parts[: places[0]], recent)
        self._check_length(part)
        # The message may also end here, and some tokens extend past the end of a text.
        ways = (*(f" {probe}" for probe in _PROBES), "", ".") if words else _BEGINNINGS
        first, *others = (
            self._model.tokenize(part.replace(_MARK, way), special=True) for way in ways
        )
        length = min(common_prefix(first, other) for other in others)
        return self._with_bos(before + first[:length])

    def _template_for(self, messages: Sequence[Message], tools: Sequence[Tool]) -> ChatTemplate:
        calls = any(message.tool_calls or message.role == "tool" for message in messages)
        return self._tool_template if tools or calls else self._template

    def _with_examples(self, messages: list[Message]) -> list[Message]:
        """``messages`` with the examples after the instructions, if the user speaks first."""
        start = sum(1 for _ in takewhile(lambda message: message.role == "system", messages))
        if start < len(messages) and messages[start].role == "user":
            return [*messages[:start], *self._examples, *messages[start:]]
        return messages

    # --- reading

    def _tokens(self, pieces: Sequence[PromptPart], recent: Recent) -> list[int]:
        recent.begin()
        tokens: list[int] = []
        for piece in pieces:
            for part in self._parts(piece):
                self._check_length(part.text)
                tokens += self._read_part(part, recent)
                if self._most_tokens and len(tokens) > self._most_tokens:
                    raise PromptTooLong(len(tokens), self._most_tokens)
        return tokens

    def _with_bos(self, tokens: list[int]) -> list[int]:
        """``tokens`` with the BOS token in front, if the model needs it."""
        model = self._model
        needs_bos = model.starts_with_bos and tokens[:1] != [model.bos]
        return [model.bos, *tokens] if needs_bos else tokens

    def _parts(self, piece: PromptPart) -> list[PromptPart]:
        """A piece, cut before its control tokens, as no token spans such a border."""
        if piece.plain or piece.image or self._border is None:
            return [piece]
        return [PromptPart(text, plain=False) for text in self._border.split(piece.text) if text]

    def _borders(self) -> re.Pattern[str] | None:
        """Matches before the control tokens that messages begin and end with."""
        text = "".join(piece.text for piece in self._template.render([_HELLO], []))
        marks = [re.escape(mark) for mark in self._model.border_texts if mark in text]
        return re.compile(f"(?={'|'.join(marks)})") if marks else None

    def _read_part(self, part: PromptPart, recent: Recent) -> list[int]:
        if part.image:
            assert self._vision
            picture = self._read_picture(self._vision, part.image, recent)
            return list(picture.tokens) if picture else []
        if part.plain:
            return self._model.tokenize(part.text, special=False)
        return recent.get(part.text, lambda: self._model.tokenize(part.text, special=True))

    def _visible(self, message: Message, recent: Recent) -> Message:
        """The message with a sentence in place of each picture that the model cannot see."""
        return in_words(message, lambda image: self._sentence(image, recent))

    def _sentence(self, image: Image, recent: Recent) -> str | None:
        if self._picture(image, recent):
            return None
        if self._vision is None:
            return UNSEEN_IMAGE
        return UNREADABLE_IMAGE if image.url else FORGOTTEN_IMAGE

    def _picture(self, image: Image, recent: Recent) -> Picture | None:
        if self._vision is None or not image.url:
            return None
        picture = self._read_picture(self._vision, image.url, recent)
        return picture if picture and not picture.failed else None

    def _read_picture(self, vision: VisionProjector, url: str, recent: Recent) -> Picture | None:
        digest = hashlib.sha256(url.encode()).digest()
        return recent.get(digest, lambda: vision.picture(url))

    def _check_length(self, text: str) -> None:
        """Raise ``PromptTooLong`` for a text that is far too long to be worth tokenizing."""
        if self._most_tokens and len(text) > self._most_tokens * _LONG_TOKEN_CHARS:
            raise PromptTooLong(0, self._most_tokens)

    def _read(self, source: str, arguments: Mapping[str, Any]) -> ChatTemplate:
        model = self._model
        return ChatTemplate(
            source,
            bos=model.text(model.bos),
            eos=model.text(model.eos),
            control_texts=list(model.control_tokens.values()),
            arguments=arguments,
        )


def _going_on(messages: Sequence[Message], text: str) -> list[Message]:
    """``messages`` after the user says ``text``, which continues the last message if it is the
    user's."""
    if messages and messages[-1].role == "user":
        return [*messages[:-1], joined(messages[-1], Message("user", text), " ")]
    return [*messages, Message("user", text)]


def _with_result(messages: Sequence[Message], text: str) -> list[Message]:
    """``messages`` after the first of the latest tool calls returns ``text``."""
    call = messages[-1].tool_calls[0]
    return [*messages, Message("tool", text, tool_call_id=str(call.get("id", "")))]
