"""Publishes a reply's items, words, audio and calls, and tracks how much was heard.

A reply reaches the bus only through its delivery. Cancelling it first calls ``revoke``, so nothing
stale can be heard; the closing events still go out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pipeline.audio import EMPTY, Pcm, Recording
from pipeline.commands import ResponseOptions, SessionConfig
from pipeline.context import SessionContext
from pipeline.conversation.chat import cut, heard_text, require_sent
from pipeline.conversation.item_editor import ItemEditor
from pipeline.engines.contract import ToolCall
from pipeline.events import (
    Event,
    OutputItem,
    ReplyArguments,
    ReplyAudio,
    ReplyItemFinished,
    ReplyItemStarted,
    ReplyText,
)
from pipeline.items import (
    AudioPart,
    FunctionCallItem,
    ItemStatus,
    MessageItem,
    ServerCall,
    TextPart,
)
from pipeline.messages import Sampling
from pipeline.settings import SessionSettings
from pipeline.speaking import tuning
from pipeline.speaking.playback import Lead, PlaybackClock


@dataclass(frozen=True, slots=True)
class KnownWords:
    """Said instead of a model's answer: the rest of the answer ``continues``, which was interrupted
    by mistake; a tool's result, if it ``answers``; or an announcement."""

    text: str
    continues: str = ""
    answers: bool = False


@dataclass(frozen=True, slots=True)
class ReplyPlan:
    """What a reply answers with, and how it is sent."""

    reply_id: str
    item_id: str
    config: SessionConfig
    """The session's configuration with this response's overrides."""
    settings: SessionSettings
    sampling: Sampling
    in_conversation: bool = True
    notice: str = ""
    """Said instead of an answer: a sentence of the server's own."""
    filler: str = ""
    """Said if words are too long in coming (``Filler``); empty: nothing."""
    lead: Lead | None = field(default=None, compare=False)
    """How far ahead of the player audio is sent; ``None``: all at once. It depends on the network,
    so comparisons of plans ignore it."""
    metadata: Mapping[str, str] | None = None
    words: KnownWords | None = None

    @property
    def announces(self) -> bool:
        return self.words is not None and not (self.words.continues or self.words.answers)


def plan_reply(
    context: SessionContext, options: ResponseOptions, number: int, jitter_s: float
) -> ReplyPlan:
    """The plan of the next reply after ``number`` others, for a network jitter of ``jitter_s``."""
    config, settings = context.config.with_options(options), context.settings
    limit = config.max_output_tokens or settings.sampling.max_tokens
    is_spoken = config.modality == "audio" and options.in_conversation
    lead_s, first_s = settings.lead_ms / 1000, tuning.FIRST_LEAD_S + jitter_s
    is_paced = config.interruptible and options.in_conversation
    return ReplyPlan(
        reply_id=context.new_id("resp"),
        item_id=context.new_id("item"),
        config=config,
        settings=settings,
        sampling=replace(settings.sampling, max_tokens=None if limit == "inf" else limit),
        in_conversation=options.in_conversation,
        filler=settings.filler_sentence(number, context.language) if is_spoken else "",
        lead=Lead(min(first_s, lead_s), lead_s) if is_paced else None,
        metadata=options.metadata,
    )


@dataclass(slots=True)
class Clause:
    """Words whose audio follows them."""

    text: str
    expected_s: float = 0.0
    """Length of that audio, an estimate until it is made."""
    sent_s: float = 0.0
    left_out: bool = False
    """Whether the voice cannot say it; then it is dropped if it has not gone out yet."""

    @property
    def timing(self) -> tuple[str, float]:
        """The text and the seconds of its audio."""
        return self.text, max(self.sent_s, self.expected_s)


WORDS_LATELY = 16
"""About five seconds of speech: no echo is older."""
WORD_TIMES_S = 0.4
"""How far the estimated time of a word may be off."""


@dataclass(slots=True)
class _Message:
    """Words that go out as one item."""

    item: MessageItem
    index: int
    """In the reply."""
    before: str | None
    """The id of the item before it."""
    clauses: list[Clause] = field(default_factory=list)
    audio: list[Pcm] = field(default_factory=list)
    seconds: float = 0.0
    """Length of the audio that was sent."""

    @property
    def open(self) -> bool:
        return self.item.status == "in_progress"

    @property
    def text(self) -> str:
        return "".join(clause.text for clause in self.clauses)

    @property
    def timing(self) -> tuple[tuple[str, float], ...]:
        """Each clause with the seconds of its audio."""
        return tuple(clause.timing for clause in self.clauses)

    @property
    def lacks_sound(self) -> bool:
        """Whether its last words were not sent whole."""
        last = self.clauses[-1] if self.clauses else Clause("")
        return last.expected_s > last.sent_s + 0.001

    def audio_part(self, rate: int) -> AudioPart:
        audio = Recording(np.concatenate((EMPTY, *self.audio)), rate)
        return AudioPart(self.text, self.seconds, audio, self.timing, self.seconds)


class Delivery:
    """Publishes one reply: the message, the calls after it, and a notice of the server's own."""

    def __init__(self, context: SessionContext, plan: ReplyPlan, editor: ItemEditor | None) -> None:
        """``editor``: of the conversation that the items are added to, if any."""
        self.playback = PlaybackClock(context.player_lag_s)
        self._plan = plan
        self._rate = plan.config.output_format.rate
        self._bus = context.bus
        self._new_id = context.new_id
        self._editor = editor
        self._revoked = False
        self._message: _Message | None = None
        self._calls: list[FunctionCallItem] = []
        self._notices: list[_Message] = []
        self._cut_s: float | None = None
        """How much was heard, as the client reported while the reply was still going on."""
        self.follows: str | None = None
        """The item after which the next one is inserted: first the one it answers, then the reply's
        own last. The user may have said more meanwhile."""

    def revoke(self) -> None:
        """From now on, publish only the closing events."""
        self._revoked = True

    def publish(self, event: Event) -> None:
        if not self._revoked:
            self._bus.publish(event)

    @property
    def has_call(self) -> bool:
        """Whether a call has gone out."""
        return bool(self._calls)

    @property
    def has_text(self) -> bool:
        """Whether there are words to read."""
        return self._plan.config.modality == "text" and self._message is not None

    # -- while it goes on

    def say(self, clause: Clause) -> None:
        """Publish words to read, or words whose audio follows."""
        if not self._revoked:
            self._say(self._open_message(), clause)

    def notify(self, text: str) -> None:
        """Begin an item of the server's own, which appears in no prompt. Its audio follows."""
        if self._revoked:
            return
        self._close(self._message, "incomplete")
        for notice in self._notices:
            self._close(notice, "incomplete")
        self._notices.append(self._open(self._new_id("item"), notice=True))
        self._say(self._notices[-1], Clause(text))

    def end_notice(self) -> None:
        """Close the notice: all of it was said."""
        for notice in self._notices:
            self._close(notice, "completed")

    def speak(self, pcm: Pcm, now: float) -> None:
        """Publish audio of the newest words, at the rate of the plan's format."""
        if self._revoked:
            return
        message = self._notices[-1] if self._notices else self._open_message()
        seconds = len(pcm) / self._rate
        self.playback.send(seconds, now)
        message.audio.append(pcm)
        message.seconds += seconds
        if message.clauses:
            message.clauses[-1].sent_s += seconds
        self.publish(
            ReplyAudio(self._plan.reply_id, message.item.id, message.index, pcm, self._rate)
        )

    def call(self, call: ToolCall, *, after_words: bool) -> None:
        """Publish a complete call, which the client can execute at once. ``after_words``: the model
        has written words before it, which may not have gone out yet."""
        if self._revoked:
            return
        if after_words:
            self._open_message()
        item_id, call_id = self._new_id("item"), self._new_id("call")
        tools = {tool.name: tool.origin for tool in self._plan.config.tools}
        origin = tools.get(call.name)
        server = None
        if origin:
            server = ServerCall(
                origin.server,
                origin.name,
                origin.shown,
                offered=origin.offered,
                read_only=origin.read_only,
            )
        item = FunctionCallItem(item_id, call_id, call.name, "", "in_progress", server)
        reply_id, index = self._plan.reply_id, self._next_index
        before = self._add(item)
        self.publish(ReplyItemStarted(reply_id, item, index, before))
        self.publish(ReplyArguments(reply_id, item.id, index, item.call_id, call.arguments))
        complete = replace(item, arguments=call.arguments, status="completed")
        self._update(complete)
        self._calls.append(complete)
        self.publish(ReplyItemFinished(reply_id, complete, index, before))

    def truncate(self, item_id: str, heard_s: float) -> bool:
        """The client reports how much of the message was heard. False if it is not being given.

        Raises ``TooShort`` if less was sent."""
        message = self._message
        if message is None or not message.open or message.item.id != item_id:
            return False
        if self._plan.config.modality == "text":
            return False
        require_sent(message.seconds, heard_s)
        self._cut_s = heard_s
        return True

    # -- the end

    def close(self, status: ItemStatus) -> tuple[OutputItem, ...]:
        """Close open items, even when revoked; return all items."""
        self._close(self._message, status)
        for notice in self._notices:
            self._close(notice, "incomplete")
        message = (self._message.item,) if self._message else ()
        return (*message, *self._calls, *(notice.item for notice in self._notices))

    def heard_message(self, now: float) -> MessageItem | None:
        """The message of an answer that is interrupted now, cut to what the listener has heard."""
        message = self._message
        if message is None:
            return None
        interrupted = self._plan.words is None  # known words are kept, however little was heard
        if self._plan.config.modality == "text" or self._cut_s is not None:
            return replace(self._final(message, "incomplete"), interrupted=interrupted)
        seconds = min(self.playback.heard_seconds(now), message.seconds)
        if not message.open and seconds >= message.seconds:
            return message.item
        return replace(self._heard(message, seconds), interrupted=interrupted)

    def _heard(self, message: _Message, seconds: float) -> MessageItem:
        part = message.audio_part(self._rate)
        part = replace(part, transcript=heard_text(message.timing, seconds), seconds=seconds)
        return replace(message.item, parts=(part,), status="incomplete")

    @property
    def spoken_lately(self) -> str:
        """The newest words whose audio was sent, and the next one: word times are estimates."""
        timings = self._message.timing if self._message else ()
        words = heard_text(timings, self.playback.sent_seconds + WORD_TIMES_S).split()
        return " ".join(words[-WORDS_LATELY:])

    # -- parts

    @property
    def _next_index(self) -> int:
        return len(self._calls) + (self._message is not None) + len(self._notices)

    def _open_message(self) -> _Message:
        if self._message is None:
            self._message = self._open(self._plan.item_id)
        return self._message

    def _open(self, item_id: str, *, notice: bool = False) -> _Message:
        item = MessageItem(item_id, "assistant", (), "in_progress", notice=notice)
        index = self._next_index
        before = self._add(item)
        self.publish(ReplyItemStarted(self._plan.reply_id, item, index, before))
        return _Message(item, index, before)

    def _say(self, message: _Message, clause: Clause) -> None:
        if message.clauses:  # the one before is complete
            message.clauses[-1].expected_s = 0.0
        message.clauses.append(clause)
        self.publish(
            ReplyText(
                self._plan.reply_id, message.item.id, message.index, clause.text, clause.expected_s
            )
        )

    def _close(self, message: _Message | None, status: ItemStatus) -> None:
        if message is None or not message.open:
            return
        message.item = self._final(message, status)
        # Words go out before their sound, which may never have been made.
        cut_off = status == "incomplete" and self._cut_s is None and message.lacks_sound
        self._update(self._heard(message, message.seconds) if cut_off else message.item)
        self._bus.publish(
            ReplyItemFinished(self._plan.reply_id, message.item, message.index, message.before)
        )

    def _final(self, message: _Message, status: ItemStatus) -> MessageItem:
        part: TextPart | AudioPart
        if self._plan.config.modality == "text":
            part = TextPart(message.text)
        else:
            part = message.audio_part(self._rate)
            if self._cut_s is not None and message is self._message:
                part = cut(part, self._cut_s)
        return replace(message.item, parts=(part,), status=status)

    def _add(self, item: OutputItem) -> str | None:
        before = self._editor.append(item, self.follows) if self._editor else None
        self.follows = item.id
        return before

    def _update(self, item: OutputItem) -> None:
        if self._editor:
            self._editor.update(item)
