"""Announcements: what somebody wants said, by the robot in its own name.

They never begin over a person: each waits until the conversation has rested for a moment. Then
speech may interrupt it like any answer. One that was interrupted before a word of it was heard
waits for the next pause.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from pipeline.bus import Published
from pipeline.context import SessionContext
from pipeline.conversation.chat import Chat
from pipeline.events import ReplyFinished, ReplyItemStarted, ReplyStarted
from pipeline.items import MessageItem
from pipeline.speaking.replies import Replies

PAUSE_S = 0.8
"""Rest before an announcement, in case the user replies to what was said last. A guess."""
MOST_WAITING = 16
"""Most announcements that may wait in one conversation."""

Outcome = Literal["said", "interrupted", "busy", "failed", "gone", "full"]
"""All of it was said; speech or the client ended it; there was no pause in time; the voice failed;
the conversation has ended, or only transcribes; too many wait already."""


@dataclass(frozen=True, slots=True)
class AnnouncementEnd:
    """What became of an announcement, and which of its words were heard."""

    outcome: Outcome
    heard: str = ""


@dataclass(slots=True, eq=False)
class _Announcement:
    text: str
    result: asyncio.Future[AnnouncementEnd]
    reply_id: str = ""
    item_ids: list[str] = field(default_factory=list)
    is_cut: bool = False
    """Whether it was cut off, and may still go on."""
    is_late: bool = False


class Announcements:
    """The announcements of one session. Call ``look`` whenever the conversation may have come to
    rest or stopped resting."""

    def __init__(
        self,
        context: SessionContext,
        chat: Chat,
        replies: Replies,
        nobody_speaks: Callable[[], bool],
    ) -> None:
        """``nobody_speaks``: whether the session runs and the user neither speaks nor may be
        beginning to."""
        self._context = context
        self._chat = chat
        self._replies = replies
        self._nobody_speaks = nobody_speaks
        self._waiting: deque[_Announcement] = deque()
        self._current: _Announcement | None = None
        self._rests_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._home: contextvars.Context | None = None
        """The session's context, in which timers run."""
        context.bus.tap(self._follow)
        replies.on_gap = self.look

    @property
    def possible(self) -> bool:
        """Whether anything can be said: the session goes on, and answers."""
        return not self._closed and self._context.config.answers

    async def say(self, text: str, until: float) -> AnnouncementEnd:
        """Say ``text`` in the next pause, if one comes before ``until``, in the loop's time. If the
        caller is cancelled before it begins, it is not said."""
        if not self.possible:
            return AnnouncementEnd("gone")
        if len(self._waiting) >= MOST_WAITING:
            return AnnouncementEnd("full")
        loop = asyncio.get_running_loop()
        announcement = _Announcement(text, loop.create_future())
        self._waiting.append(announcement)
        expiry = loop.call_at(until, self._expire, announcement)
        self.look()
        try:
            return await announcement.result
        finally:
            expiry.cancel()
            self._withdraw(announcement)

    def open(self) -> None:
        """Make announcements from now on, in the session's context instead of the caller's."""
        self._home = contextvars.copy_context()
        self.look()

    def look(self) -> None:
        if not self._rests():
            self._stop_rest()
            return
        loop = asyncio.get_running_loop()
        since = loop.time() + self._replies.unheard_s
        if self._rests_since is None or since < self._rests_since:  # the client cut an answer short
            self._stop_rest()
            self._rests_since = since
            self._settle_cut()
        if self._waiting and not self._timer:
            at = self._rests_since + PAUSE_S
            self._timer = loop.call_at(at, self._begin, context=self._home)

    def close(self) -> None:
        """Conclude all announcements: the session and its replies have ended."""
        self._closed = True
        self._stop_rest()
        for announcement in filter(None, (self._current, *self._waiting)):
            _conclude(announcement, "gone", self._heard(announcement))
        self._waiting.clear()

    def _rests(self) -> bool:
        return self._nobody_speaks() and self._replies.idle

    def _stop_rest(self) -> None:
        self._rests_since = None
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        if self._waiting and self._rests():
            self._current = self._waiting.popleft()
            self._current.reply_id = self._replies.announce(self._current.text).plan.reply_id

    def _follow(self, published: Published) -> None:
        current = self._current
        match published.event:
            case ReplyStarted(in_conversation=True) as started:
                self._stop_rest()
                if current and started.continues == current.reply_id:
                    current.reply_id, current.is_cut = started.reply_id, False
            case ReplyItemStarted(reply_id, item) if current and reply_id == current.reply_id:
                current.item_ids.append(item.id)
            case ReplyFinished(reply_id, status) if current and reply_id == current.reply_id:
                if status == "cancelled":
                    current.is_cut = True  # what was heard of it is not known yet
                    return
                self._current = None
                if status == "failed":
                    _conclude(current, "failed")
                else:
                    _conclude(current, "said", self._heard(current))

    def _settle_cut(self) -> None:
        """Conclude an announcement that was cut off and does not go on, or let it wait again."""
        current = self._current
        if current is None or not current.is_cut:
            return
        self._current = None
        heard = self._heard(current)
        if heard:
            _conclude(current, "interrupted", heard)
        elif current.is_late:
            _conclude(current, "busy")
        elif not current.result.done():
            current.is_cut = False
            self._waiting.appendleft(current)

    def _heard(self, announcement: _Announcement) -> str:
        ids = announcement.item_ids
        items = (self._chat.get(item_id) for item_id in ids if item_id in self._chat)
        return " ".join(item.text.strip() for item in items if isinstance(item, MessageItem))

    def _expire(self, announcement: _Announcement) -> None:
        announcement.is_late = True
        if self._withdraw(announcement):
            _conclude(announcement, "busy")

    def _withdraw(self, announcement: _Announcement) -> bool:
        if announcement not in self._waiting:
            return False
        self._waiting.remove(announcement)
        return True


def _conclude(announcement: _Announcement, outcome: Outcome, heard: str = "") -> None:
    if not announcement.result.done():  # otherwise nobody waits for it any more
        announcement.result.set_result(AnnouncementEnd(outcome, heard.strip()))
