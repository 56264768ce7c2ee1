"""The replies of one session: how they start and end, and which one owns the loudspeaker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from pipeline.commands import ResponseOptions
from pipeline.context import SessionContext
from pipeline.conversation.chat import Chat
from pipeline.conversation.item_editor import ItemEditor
from pipeline.conversation.memory import LastingConversation, Memory
from pipeline.conversation.prompt import prompt
from pipeline.conversation.reply_prompts import (
    Prompt,
    ReplyPrompts,
    UncommittedSpeech,
    ask_the_same,
    awaits_an_answer,
)
from pipeline.conversation.warm_up import WarmUp
from pipeline.engines.stages import ConversationStage
from pipeline.errors import ReachyVoiceError
from pipeline.events import CancelReason
from pipeline.hearing.arrivals import Arrivals
from pipeline.items import AudioPart, MessageItem
from pipeline.speaking.delivery import KnownWords, ReplyPlan, plan_reply
from pipeline.speaking.ramp import Ramp
from pipeline.speaking.reply import Reply
from pipeline.speaking.response import Response
from pipeline.speaking.tuning import BARELY_HEARD_S
from pipeline.work import Work

MAX_RUNNING = 8
"""Simultaneous replies of one session: the spoken one and out-of-band ones."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """An answer that waits until another reply is over, or until it is known whether the user goes
    on."""

    since: float
    """End of the speech or request that it answers, in the loop's time."""
    options: ResponseOptions
    again: bool = False
    """Whether it was given once before."""
    asked: bool = False
    """The client asks for it, so it is given whatever the last item of the conversation is."""
    text: str = ""
    """What it says, if that is known."""


class Replies:
    """Starts replies in the session's TaskGroup and ends them, each exactly once.

    Replies to the conversation share its KV sequence; other replies get their own.
    """

    def __init__(
        self,
        context: SessionContext,
        memory: Memory,
        prompts: ReplyPrompts,
        editor: ItemEditor,
        warm_up: WarmUp,
        arrivals: Arrivals,
        may_answer: Callable[[], bool],
    ) -> None:
        """``may_answer``: whether no turn of the user is open or waiting to be committed."""
        self.quiet = asyncio.Event()
        """Set while no reply is running."""
        self.quiet.set()
        self._context = context
        self._chat = memory.chat
        self._conversation = memory.conversation
        self._prompts = prompts
        self._editor = editor
        self._warm_up = warm_up
        self._arrivals = arrivals
        self._may_answer = may_answer
        self.on_end: Callable[[Reply], None] = lambda reply: None
        """Called after each reply."""
        self.on_gap: Callable[[], None] = lambda: None
        """Called when an answer could begin and none is pending."""
        self._replies: list[Reply] = []
        self._ramp = Ramp()
        self._answers = 0
        """Number of answers given."""
        self._latest: Reply | None = None
        """The newest answer to the conversation; its options are ``latest_options``."""
        self.latest_options = ResponseOptions()
        self._retry: Reply | None = None
        """An answer given for the second time, as it was cut off when it had hardly begun. There is
        no third time."""
        self._pending: _Pending | None = None

    @property
    def speaking(self) -> Reply | None:
        """The reply that owns the loudspeaker, if one is being given."""
        for reply in self._replies:
            if reply.plan.in_conversation and reply.response.state == "active":
                return reply
        return None

    @property
    def idle(self) -> bool:
        """Whether no reply is running and none is pending."""
        return self.quiet.is_set() and self._pending is None

    @property
    def unheard_s(self) -> float:
        """Seconds of the newest answer that were sent and are not heard yet."""
        return self._latest.response.unheard_s if self._latest else 0.0

    @property
    def full(self) -> bool:
        """Whether the client may not request any more replies for now."""
        return len(self._replies) >= MAX_RUNNING

    # -- answering the user

    def speculate(self, speech: UncommittedSpeech, work: Work, since: float) -> Reply | None:
        """Begin a reply to ``speech`` behind a shut gate; ``None`` if another reply is being given.
        ``since``: end of speech, in the loop's time."""
        if self.speaking:
            return None
        return self._start_to_speech(Prompt(speech=speech), work, since)

    def answer(
        self, reply: Reply | None, work: Work, since: float, error: ReachyVoiceError | None
    ) -> None:
        """Open the gate of ``reply``, or start a reply if it is ``None``: now, or after the one
        being given.

        ``since``: end of speech, in the loop's time. ``error``: why recognition failed; the answer
        fails with it."""
        if self.speaking:
            self.answer_later(since)
            return
        if reply is None:
            work = Work() if work.cancelled else work
            reply = self._start_to_speech(Prompt(error=error), work, since)
        self._confirm(reply, ResponseOptions())

    def answer_later(
        self,
        since: float,
        options: ResponseOptions | None = None,
        *,
        asked: bool = False,
        text: str = "",
    ) -> None:
        """Answer what was said until ``since`` (loop's time) later, unless another answer to the
        conversation comes first. ``asked``: the client asks for it. ``text``: what to say."""
        self._pending = _Pending(since, options or ResponseOptions(), asked=asked, text=text)

    @property
    def awaited_options(self) -> ResponseOptions | None:
        """The options of the answer that will be given next, or else is being given."""
        if self._pending:
            return self._pending.options
        return self.latest_options if self.speaking else None

    def forget_pending(self) -> None:
        """Drop the pending answer: the client asks for answers itself."""
        self._pending = None

    def answer_pending(self) -> None:
        """Give the pending answer, unless the user speaks or another one is being given. It is
        tried only once: otherwise an echo, for example, could cut it off for ever."""
        pending = self._pending
        if pending is None:
            self.on_gap()
            return
        if self.speaking or not self._may_answer():
            return
        self._pending = None
        instructions = self._prompts.instructions(pending.options)
        items = self._prompts.input_items(pending.options)
        read = prompt(instructions, self._chat.context if items is None else items)
        if not (pending.asked or pending.text or awaits_an_answer(read)):
            self.on_gap()  # its turn was deleted, or answered after all
            return
        if pending.text:
            words = KnownWords(pending.text, answers=True)
            self.give(Prompt(), pending.options, pending.since, words=words)
            return
        asked = Prompt(instructions, items)
        reply = self._start_to_speech(asked, Work(), pending.since, pending.options)
        if pending.again:
            self._retry = reply
        self._confirm(reply, pending.options)

    @property
    def last_question(self) -> str:
        """What the assistant said last, if the user has not replied yet."""
        messages = (item for item in self._chat.newest_first if isinstance(item, MessageItem))
        last = next((each for each in messages if each.role != "system"), None)
        return last.text if last and last.role == "assistant" else ""

    @property
    def last_speaker(self) -> str:
        """Whose voice the user's newest speech was; empty: nobody known."""
        spoken = (
            part.speaker
            for item in self._chat.newest_first
            if isinstance(item, MessageItem) and item.role == "user"
            for part in item.parts
            if isinstance(part, AudioPart)
        )
        return next(spoken, "")

    def fits(self, reply: Reply | None) -> bool:
        """Whether the reply begun in the pause still fits: the client may have changed items or the
        session meanwhile. True if no reply was begun."""
        if reply is None:
            return True
        if self.speaking:
            return False
        plan = reply.plan
        now = replace(self._plan(ResponseOptions()), reply_id=plan.reply_id, item_id=plan.item_id)
        if reply.response.state != "waiting" or now != plan:
            return False
        return reply.messages is None or ask_the_same(reply.messages, self._prompts.conversation())

    # -- other reasons to reply

    def break_silence(self) -> None:
        """Speak because the user does not (idle timeout)."""
        self.give(Prompt(silence=True))

    def notify(self, sentence: str) -> None:
        """Say a sentence of the server's own; it appears in no prompt."""
        self.give(Prompt(), notice=sentence)

    def announce(self, text: str) -> Reply:
        """Say what somebody wants said; later prompts contain it."""
        return self.give(Prompt(), words=KnownWords(text))

    # -- speech over an answer

    @property
    def is_retry(self) -> bool:
        """Whether the answer being heard was cut off before, just after it had begun."""
        return self._retry is not None and self.heard_now is self._retry

    @property
    def heard_now(self) -> Reply | None:
        """The answer being given, or the latest one, which may still be played."""
        return self.speaking or self._latest

    def interrupt(self) -> Reply | None:
        """The user speaks: end all replies to the conversation; out-of-band replies go on. The
        conversation keeps what was heard of an answer.

        Returns the answer that was cut off in the middle, for ``resume``."""
        latest = self._latest
        unfinished = latest if latest and latest.response.audible_s > BARELY_HEARD_S else None
        ours = self._context.config.answers_turns  # else the client asks for every answer
        if ours and latest and latest is not self._retry and latest.response.is_talked_over:
            if latest.plan.words:
                unfinished = latest
            else:
                self._pending = _Pending(latest.response.began_at, self.latest_options, again=True)
        if latest:
            self.stop_playing(latest.plan.reply_id)
        for reply in list(self._replies):
            if reply.plan.in_conversation:
                self._cancel(reply, "turn_detected")
        return unfinished

    def stop_playing(self, reply_id: str | None, least_s: float = 0.0) -> None:
        """No more is played of a reply that was sent; the conversation keeps what was heard, unless
        only ``least_s`` seconds are not."""
        response = self._latest.response if self._latest else None
        if response is None or response.plan.reply_id != reply_id or not response.is_over:
            return
        if response.state != "cancelled" and response.unheard_s > least_s:
            if message := response.heard_message:
                self._editor.update(message)
            self._latest = None

    def resume(self, answer: Reply, since: float) -> bool:
        """Say the rest of an answer that was interrupted by mistake, as a new reply. False if
        nothing is left, or if the client has deleted it. ``since``: end of the interrupting speech,
        in the loop's time."""
        item = self._chat.get(own) if (own := answer.plan.item_id) in self._chat else None
        text = item.text if isinstance(item, MessageItem) else ""
        playback = answer.response.delivery.playback
        deleted = item is None and playback.sent_seconds > 0
        rest = "" if deleted or self.speaking else answer.unsaid(text)
        if not rest.strip():
            return False
        if isinstance(item, MessageItem):
            self._editor.update(replace(item, interrupted=False))
        rest_of_it = KnownWords(rest, answer.plan.reply_id)
        reply = self.give(Prompt(), since=since, words=rest_of_it)
        if answer.plan.words and playback.heard_seconds(since) <= BARELY_HEARD_S:
            self._retry = reply
        return True

    # -- how replies end

    def cancel(self, reply_id: str | None) -> bool:
        """The client cancels a reply; ``None``: the one being given, and another that it has asked
        for meanwhile. False if the reply is not active."""
        replies = [reply for reply in self._replies if reply.plan.reply_id == reply_id]
        reply = next(iter(replies), None) if reply_id else self.speaking
        if reply is None or reply.response.state != "active":
            return False
        if reply_id is None and self._pending and self._pending.asked:
            self._pending = None
        self._cancel(reply, "client_cancelled")
        return True

    def truncate(self, item_id: str, heard_s: float) -> bool:
        """Apply ``conversation.item.truncate`` to an answer that is still being given; False if it
        has ended. Raises ``TooShort``."""
        replies = (reply for reply in self._replies if reply.plan.in_conversation)
        if any(reply.response.delivery.truncate(item_id, heard_s) for reply in replies):
            return True
        latest = self._latest
        if latest and latest.plan.item_id == item_id and heard_s <= latest.response.sent_s:
            self._latest = None  # the client plays no more of it
        return False

    def close(self) -> None:
        for reply in list(self._replies):
            self._cancel(reply, "shutdown")

    def _cancel(self, reply: Reply, reason: CancelReason) -> None:
        """End a reply early; the conversation keeps what was heard of it."""
        message = reply.response.heard_message
        reply.cancel(reason)
        if message and reply.plan.in_conversation:
            self._editor.update(message)
        self._forget(reply)

    # -- one reply

    def give(
        self,
        prompt: Prompt,
        options: ResponseOptions | None = None,
        since: float | None = None,
        notice: str = "",
        words: KnownWords | None = None,
    ) -> Reply:
        """Begin a reply with an open gate. ``since``: as for ``_start``; ``None``: now."""
        options = options or ResponseOptions()
        since = asyncio.get_running_loop().time() if since is None else since
        plan = replace(self._plan(options), notice=notice, words=words)
        reply = self._start(options, plan, prompt, Work(), since)
        self._confirm(reply, options)
        return reply

    def _start_to_speech(
        self,
        prompt: Prompt,
        work: Work,
        since: float,
        options: ResponseOptions | None = None,
    ) -> Reply:
        """Begin a reply to known words behind a shut gate."""
        options = options or ResponseOptions()
        reply = self._start(options, self._plan(options), prompt, work, since)
        reply.response.mark("transcript")
        return reply

    def _start(
        self,
        options: ResponseOptions,
        plan: ReplyPlan,
        prompt: Prompt,
        work: Work,
        began_at: float,
    ) -> Reply:
        """Begin a reply behind a shut gate. ``began_at``: end of speech, or time of the request."""
        self._warm_up.reply_began()
        own = options.in_conversation and options.input is None
        conversation = self._conversation if own else LastingConversation(self._context.stages)
        editor = self._editor if options.in_conversation else None
        response = Response(self._context, plan, editor, began_at)
        reply = Reply(
            self._context, response, self._prompts, prompt, conversation, work, self._ramp
        )
        self._replies.append(reply)
        self.quiet.clear()
        self._context.tasks.create_task(self._run(reply, None if own else conversation))
        return reply

    def _plan(self, options: ResponseOptions) -> ReplyPlan:
        return plan_reply(self._context, options, self._answers, self._arrivals.jitter_s)

    def _confirm(self, reply: Reply, options: ResponseOptions) -> None:
        if options.in_conversation:
            self._latest, self.latest_options = reply, options
            if options.input is None:
                self._pending = None
        last = self._chat.answered_id if reply.plan.announces else self._chat.last_id
        reply.response.delivery.follows = last or Chat.ROOT
        reply.confirm()
        self._answers += options.in_conversation

    async def _run(self, reply: Reply, own_conversation: ConversationStage | None) -> None:
        try:
            await reply.run()
        finally:
            if own_conversation:
                own_conversation.close()
            self._forget(reply)

    def _forget(self, reply: Reply) -> None:
        if reply in self._replies:
            self._replies.remove(reply)
            if not self._replies:
                self.quiet.set()
            self.answer_pending()
            self._warm_up.reply_ended()
            self.on_end(reply)
