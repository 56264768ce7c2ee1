"""The idle timeout: after an answer and a silence, the server speaks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pipeline.bus import Published
from pipeline.context import SessionContext
from pipeline.conversation.item_editor import ItemEditor
from pipeline.events import IdleTimeout, InputCommitted, TranscriptReady
from pipeline.hearing.listening import Listener
from pipeline.items import AudioPart
from pipeline.speaking.replies import Replies
from pipeline.speaking.reply import Reply


class IdleTimer:
    """Counts the silence of one session, from the end of an answer to the next commit."""

    def __init__(
        self,
        context: SessionContext,
        listener: Listener,
        editor: ItemEditor,
        replies: Replies,
        busy: Callable[[], bool],
    ) -> None:
        """``busy``: whether the user speaks, or a turn waits to be committed."""
        self._context = context
        self._listener = listener
        self._editor = editor
        self._replies = replies
        self._busy = busy
        self.alone = False
        """Whether the user has said nothing since the server spoke by itself."""
        self._timer: asyncio.TimerHandle | None = None
        self._since_ms = 0
        context.bus.tap(self._follow)
        replies.on_end = self._reply_ended

    def _follow(self, published: Published) -> None:
        if isinstance(published.event, InputCommitted):
            self.alone = False
            self.stop()

    def _reply_ended(self, reply: Reply) -> None:
        if reply.plan.in_conversation and reply.confirmed and reply.response.state != "failed":
            self._count(reply.response.unheard_s)

    def restart(self) -> None:
        """Restart a running timer: the client has changed the timeout."""
        if self._timer:
            self._count(0)

    def stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer:
            timer.cancel()

    def _count(self, from_s: float) -> None:
        """Start the timer. ``from_s``: when silence begins, in seconds from now."""
        detection = self._context.config.turn_detection
        self.stop()
        if detection and detection.idle_timeout_ms and not self._replies.speaking:
            self._since_ms = self._listener.heard_ms + round(from_s * 1000)
            after_s = from_s + detection.idle_timeout_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(after_s, self._break_silence)

    def _break_silence(self) -> None:
        self._timer = None
        if self._replies.speaking:
            return  # silence is counted from the end of the answer
        if self._busy():
            self._count(0)
            return
        item_id = self._context.new_id("item")
        end_ms = max(self._since_ms, self._listener.heard_ms)
        self._context.bus.publish(IdleTimeout(item_id, self._since_ms, end_ms))
        silence = AudioPart("", (end_ms - self._since_ms) / 1000)
        self._editor.commit(item_id, silence)
        self._context.bus.publish(TranscriptReady(item_id, "", silence.seconds))
        self.alone = True
        self._replies.break_silence()
