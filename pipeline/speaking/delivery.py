"""What of a reply is given out: its items, words, audio and calls, and how much of it was heard.

A reply reaches the bus only through its delivery. ``revoke`` comes first when it is cancelled, so
nothing stale can be heard; the closing events go past that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pipeline.audio import EMPTY, Pcm, Recording
from pipeline.bus import Bus
from pipeline.commands import SessionConfig
from pipeline.conversation.chat import cut, require_sent
from pipeline.conversation.heard import heard_text
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
from pipeline.items import AudioPart, FunctionCallItem, ItemStatus, MessageItem, TextPart
from pipeline.messages import Sampling
from pipeline.settings import SessionSettings
from pipeline.speaking.playback import Lead, PlaybackClock


@dataclass(frozen=True, slots=True)
class Continuation:
    """The rest of an answer: ``text`` that the listener has not heard of ``reply_id``."""

    reply_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ReplyPlan:
    """What a reply is to be."""

    reply_id: str
    item_id: str
    config: SessionConfig
    """With the overrides of this response."""
    settings: SessionSettings
    sampling: Sampling
    in_conversation: bool = True
    notice: str = ""
    """Said instead of an answer: a sentence in our own name."""
    filler: str = ""
    """Said if there are no words after ``settings.filler.after_ms``; empty: nothing."""
    lead: Lead | None = field(default=None, compare=False)
    """How far ahead of the player audio is sent; ``None``: in a burst. It follows the network, and
    plans that differ in it alone are the same."""
    metadata: Mapping[str, str] | None = None
    continues: Continuation | None = None
    """Said instead of an answer: the rest of one that was interrupted by mistake."""


@dataclass(slots=True)
class Clause:
    """Words whose audio goes out after them. ``expected_s``: how much that will be in all, an
    estimate until it is made."""

    text: str
    expected_s: float = 0.0
    sent_s: float = 0.0
    left_out: bool = False
    """It cannot be said: if its words have not gone out yet, they never do."""

    @property
    def timed(self) -> tuple[str, float]:
        """With the seconds of its audio."""
        return self.text, max(self.sent_s, self.expected_s)


WORDS_LATELY = 16
"""Some five seconds of speech: an echo is not older."""


@dataclass(slots=True)
class _Notice:
    """What is said in our own name. ``place``: the id of the item before it."""

    item: MessageItem
    index: int
    place: str | None
    text: str
    audio: list[Pcm] = field(default_factory=list)
    seconds: float = 0.0


PlaceItem = Callable[[OutputItem], str | None]
"""Puts an item into the conversation, or in the place it has there; gives the id before it."""


class Delivery:
    """Gives out one reply. A message comes first, calls follow it."""

    def __init__(
        self, plan: ReplyPlan, bus: Bus, place_item: PlaceItem, new_id: Callable[[str], str]
    ) -> None:
        self.playback = PlaybackClock()
        self._plan = plan
        self._rate = plan.config.output_format.rate
        self._bus = bus
        self._revoked = False
        self._place_item = place_item
        self._new_id = new_id
        self._message: MessageItem | None = None
        self._message_place: str | None = None
        self._message_closed = False
        self._calls: list[FunctionCallItem] = []
        self._clauses: list[Clause] = []
        self._audio: list[Pcm] = []
        self._notice: _Notice | None = None
        self._cut_s: float | None = None
        """The client's own word on how much was heard, while the reply still goes on."""

    def revoke(self) -> None:
        """From now on nothing but the closing events goes out."""
        self._revoked = True

    def publish(self, event: Event) -> None:
        if not self._revoked:
            self._bus.publish(event)

    @property
    def called(self) -> bool:
        """Whether a call has gone out."""
        return bool(self._calls)

    @property
    def written(self) -> bool:
        """Whether there are words to read."""
        return self._plan.config.modality == "text" and self._message is not None

    # -- while it goes on

    def say(self, clause: Clause) -> None:
        """Words that are written, or whose audio follows."""
        if self._revoked:
            return
        item = self._open_message()
        if self._clauses:  # the one before is complete
            self._clauses[-1].expected_s = 0.0
        self._clauses.append(clause)
        reply_id = self._plan.reply_id
        self.publish(ReplyText(reply_id, item.id, 0, clause.text, clause.expected_s))

    def speak(self, pcm: Pcm, now: float) -> None:
        """Audio of the newest words, at the rate of the plan's format."""
        if self._revoked:
            return
        item = self._open_message()
        rate = self._rate
        seconds = len(pcm) / rate
        self.playback.send(seconds, now)
        self._audio.append(pcm)
        if self._clauses:
            self._clauses[-1].sent_s += seconds
        self.publish(ReplyAudio(self._plan.reply_id, item.id, 0, pcm, rate))

    def call(self, call: ToolCall) -> None:
        """A whole call, at once: a client acts on it, and answers when the reply has ended."""
        if self._revoked:
            return
        self._close_message("completed")
        item = FunctionCallItem(
            self._new_id("item"), self._new_id("call"), call.name, "", "in_progress"
        )
        reply_id, index = self._plan.reply_id, self._next_index
        previous = self._place_item(item)
        self.publish(ReplyItemStarted(reply_id, item, index, previous))
        self.publish(ReplyArguments(reply_id, item.id, index, item.call_id, call.arguments))
        done = replace(item, arguments=call.arguments, status="completed")
        self._place_item(done)
        self._calls.append(done)
        self.publish(ReplyItemFinished(reply_id, done, index, previous))

    def truncate(self, item_id: str, heard_s: float) -> bool:
        """The client says how much it heard of the message. False if that is not being given.

        Raises ``TooShort`` if less was sent."""
        if self._message is None or self._message_closed or self._message.id != item_id:
            return False
        if self._plan.config.modality == "text":
            return False
        require_sent(self.playback.sent_seconds, heard_s)
        self._cut_s = heard_s
        return True

    # -- a word of our own

    def notify(self, text: str) -> None:
        """Begin an item that the model has not said: no prompt has it. Its audio follows."""
        if self._revoked:
            return
        self._close_message("incomplete")
        index = self._next_index
        item = MessageItem(self._new_id("item"), "assistant", (), "in_progress", notice=True)
        self._notice = _Notice(item, index, self._place_item(item), text)
        reply_id = self._plan.reply_id
        self.publish(ReplyItemStarted(reply_id, item, index, self._notice.place))
        self.publish(ReplyText(reply_id, item.id, index, text))

    def speak_notice(self, pcm: Pcm, now: float) -> None:
        """Its audio, at the rate of the plan's format."""
        notice, rate = self._notice, self._rate
        if self._revoked or notice is None:
            return
        self.playback.send(len(pcm) / rate, now)
        notice.audio.append(pcm)
        notice.seconds += len(pcm) / rate
        self.publish(ReplyAudio(self._plan.reply_id, notice.item.id, notice.index, pcm, rate))

    def end_notice(self, status: ItemStatus = "completed") -> None:
        """It is whole, or was cut."""
        notice = self._notice
        if notice is None or notice.item.status != "in_progress":
            return
        audio = Recording(np.concatenate((EMPTY, *notice.audio)), self._rate)
        part = AudioPart(notice.text, notice.seconds, audio, sent_seconds=notice.seconds)
        notice.item = replace(notice.item, parts=(part,), status=status)
        self._place_item(notice.item)
        self._bus.publish(
            ReplyItemFinished(self._plan.reply_id, notice.item, notice.index, notice.place)
        )

    # -- the end

    def close(self, status: ItemStatus) -> tuple[OutputItem, ...]:
        """Close what is open, even when revoked; the items as they now stand."""
        self._close_message(status)
        self.end_notice("incomplete")
        message = (self._message,) if self._message else ()
        notice = (self._notice.item,) if self._notice else ()
        return (*message, *self._calls, *notice)

    def heard(self, now: float) -> MessageItem | None:
        """The message cut to what the listener has heard by now."""
        if self._message is None or self._plan.config.modality == "text":
            return self._message and self._final_message("incomplete")
        if self._cut_s is not None:
            return self._final_message("incomplete")
        seconds = min(self.playback.heard_seconds(now), self._message_s)
        if self._message_closed and seconds >= self._message_s:
            return self._message
        part = replace(self._spoken(), transcript=heard_text(self._timed, seconds), seconds=seconds)
        return MessageItem(self._message.id, "assistant", (part,), "incomplete")

    @property
    def spoken_lately(self) -> str:
        """The newest words whose audio was sent."""
        words = heard_text(self._timed, self.playback.sent_seconds).split()
        return " ".join(words[-WORDS_LATELY:])

    # -- parts

    @property
    def _next_index(self) -> int:
        return len(self._calls) + (self._message is not None)

    @property
    def _message_s(self) -> float:
        """Seconds of audio that were sent of the message; a notice comes behind it."""
        return self.playback.sent_seconds - (self._notice.seconds if self._notice else 0.0)

    def _open_message(self) -> MessageItem:
        if self._message is None:
            self._message = MessageItem(self._plan.item_id, "assistant", (), "in_progress")
            self._message_place = self._place_item(self._message)
            self.publish(
                ReplyItemStarted(self._plan.reply_id, self._message, 0, self._message_place)
            )
        return self._message

    def _close_message(self, status: ItemStatus) -> None:
        if self._message is None or self._message_closed:
            return
        self._message_closed = True
        self._message = self._final_message(status)
        self._place_item(self._message)
        self._bus.publish(
            ReplyItemFinished(self._plan.reply_id, self._message, 0, self._message_place)
        )

    def _final_message(self, status: ItemStatus) -> MessageItem:
        assert self._message
        if self._plan.config.modality == "text":
            part: TextPart | AudioPart = TextPart("".join(clause.text for clause in self._clauses))
        else:
            part = self._spoken()
        return MessageItem(self._message.id, "assistant", (part,), status)

    @property
    def _timed(self) -> tuple[tuple[str, float], ...]:
        return tuple(clause.timed for clause in self._clauses)

    def _spoken(self) -> AudioPart:
        said = "".join(clause.text for clause in self._clauses)
        audio = Recording(np.concatenate((EMPTY, *self._audio)), self._rate)
        sent_s = self._message_s
        part = AudioPart(said, sent_s, audio, self._timed, sent_s)
        return part if self._cut_s is None else cut(part, self._cut_s)
