"""The replies of one session: what is asked, who owns the speaker, how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from pipeline.bus import Bus
from pipeline.commands import (
    CancelResponse,
    CreateResponse,
    ResponseOptions,
    SessionConfig,
)
from pipeline.conversation.chat import BARELY_HEARD_S, UnknownItem, prompt
from pipeline.conversation.item_commands import make_room
from pipeline.conversation.lasting_conversation import LastingConversation
from pipeline.conversation.memory import Memory
from pipeline.conversation.reply_prompts import (
    SILENCE,
    ReplyPrompts,
    ask_the_same,
    awaits_an_answer,
)
from pipeline.conversation.transcribing import Transcriber
from pipeline.engines.stages import ConversationStage, Stages
from pipeline.errors import ReachyVoiceError
from pipeline.events import CancelReason, OutputItem, Refused, ReplyHeld, ReplyWentOn
from pipeline.hearing.arrivals import Arrivals
from pipeline.items import Item, MessageItem
from pipeline.messages import Message
from pipeline.settings import SessionSettings
from pipeline.speaking import tuning
from pipeline.speaking.delivery import Continuation, Delivery, ReplyPlan
from pipeline.speaking.playback import Lead
from pipeline.speaking.ramp import Ramp
from pipeline.speaking.reply import PromptSource, Reply
from pipeline.work import Work

MAX_RUNNING = 8
"""Replies of one session at the same time: the spoken one and those out of band."""


@dataclass(frozen=True, slots=True)
class _Owed:
    """An answer that waits until another reply is over, or until it is known whether the user goes
    on. ``since``: end of the speech, or request, that it answers, in the loop's time."""

    since: float
    options: ResponseOptions
    again: bool
    """Whether it has begun once."""


class Replies:
    """Starts replies in the session's TaskGroup and ends them, each exactly once.

    Replies to the conversation share its KV sequence; others get one of their own.
    """

    def __init__(
        self,
        memory: Memory,
        stages: Stages,
        config: SessionConfig,
        settings: SessionSettings,
        transcriber: Transcriber,
        bus: Bus,
        tasks: asyncio.TaskGroup,
        new_id: Callable[[str], str],
        arrivals: Arrivals,
        on_start: Callable[[], None],
        on_end: Callable[[Reply], None],
    ) -> None:
        """``on_start`` is called before each reply, ``on_end`` after it."""
        self.prompts = ReplyPrompts(memory.chat, config, settings.tool_instructions)
        self.quiet = asyncio.Event()
        """Set while no reply is being made or given."""
        self.quiet.set()
        self._chat = memory.chat
        self._conversation = memory.conversation
        self._stages = stages
        self._settings = settings
        self._transcriber = transcriber
        self._bus = bus
        self._tasks = tasks
        self._new_id = new_id
        self._arrivals = arrivals
        self._on_start = on_start
        self._on_end = on_end
        self._running: dict[str, Reply] = {}
        self._placed: set[str] = set()
        """Items of answers that a client may have deleted since: they must not come back."""
        self._ramp = Ramp()
        self._answers = 0
        """How many have been given."""
        self._latest: Reply | None = None
        """The newest answer to the conversation as it stood, and what was asked of it."""
        self._latest_options = ResponseOptions()
        self._held: Reply | None = None
        """What is held back, if anything."""
        self._given_again: Reply | None = None
        self._owed: _Owed | None = None

    @property
    def speaking(self) -> Reply | None:
        """The reply that owns the speaker, if one is being given."""
        for reply in self._running.values():
            if reply.plan.in_conversation and reply.status == "active":
                return reply
        return None

    @property
    def idle(self) -> bool:
        """Whether no answer is being made or given, and none is owed."""
        return self.quiet.is_set() and self._owed is None

    # -- what asks for a reply

    def speculate(
        self,
        uncommitted: Callable[[], str],
        work: Work,
        since: float,
    ) -> Reply | None:
        """Begin a reply behind a shut gate; ``None`` if another reply is being given.

        ``uncommitted``: words that it answers beside the conversation, as long as they are not in
        it. ``since``: end of speech, in the loop's time."""
        if self.speaking:
            return None

        async def messages() -> list[Message]:
            await self._transcriber.settled()
            return self.prompts.conversation(uncommitted())

        reply = self._start(ResponseOptions(), messages, work, since)
        reply.mark("transcript")
        return reply

    def answer(
        self, reply: Reply | None, work: Work, since: float, error: ReachyVoiceError | None
    ) -> None:
        """Open the gate of ``reply``, or start one now, or later if another one is being given.

        ``since``: end of speech, in the loop's time. ``error``: why nothing was recognised; the
        answer fails with it."""
        if self.speaking:
            self.owe(since)
            return

        async def messages() -> list[Message]:
            if error:
                raise error
            await self._transcriber.settled()
            return self.prompts.conversation()

        if reply is None:
            work = Work() if work.cancelled else work
            reply = self._start(ResponseOptions(), messages, work, since)
            reply.mark("transcript")
        self._confirm(reply, ResponseOptions())

    def owe(self, since: float) -> None:
        """What was said until ``since``, in the loop's time, is answered later. Any answer to the
        conversation settles it."""
        self._owed = _Owed(since, ResponseOptions(), again=False)

    def let_go(self) -> None:
        """Nothing is owed any more: the client sees to it."""
        self._owed = None

    def settle(self) -> None:
        """Give the answer that is owed, if one is and nothing is in its way. Once: what cuts it off
        time and again, such as an echo, would else never end."""
        owed = self._owed
        if owed is None or self.speaking:
            return
        instructions = self.prompts.instructions(owed.options)
        if not awaits_an_answer(prompt(instructions, self._chat.context)):
            self._owed = None  # it was deleted, or answered after all
            return

        async def messages() -> list[Message]:
            await self._transcriber.settled()
            return prompt(instructions, self._chat.context)

        reply = self._start(owed.options, messages, Work(), owed.since)
        reply.mark("transcript")
        if owed.again:
            self._given_again = reply
        self._confirm(reply, owed.options)

    def _confirm(self, reply: Reply, options: ResponseOptions) -> None:
        if options.in_conversation and options.input is None:
            self._owed = None
            self._latest, self._latest_options = reply, options
        reply.confirm()
        self._answers += options.in_conversation

    @property
    def asked(self) -> str:
        """What the assistant said last, if the user has not replied yet."""
        last = self._chat.items[-1] if self._chat.items else None
        spoken = isinstance(last, MessageItem) and last.role == "assistant"
        return last.text if spoken and isinstance(last, MessageItem) else ""

    def fits(self, reply: Reply | None) -> bool:
        """Whether what was begun in the pause is still an answer to what was asked, as it is asked
        now: a client may have changed items or session meanwhile. True if nothing was begun."""
        if reply is None:
            return True
        if self.speaking:
            return False
        begun = reply.plan
        now = replace(self._plan(ResponseOptions()), reply_id=begun.reply_id, item_id=begun.item_id)
        if reply.broken or now != begun:
            return False
        read = reply.prompt_read
        return read is None or ask_the_same(read, self.prompts.conversation())

    def create(self, command: CreateResponse) -> None:
        """``response.create``."""
        options = command.options
        if options.in_conversation and (active := self.speaking):
            self._refuse_second(command.event_id, active)
        elif len(self._running) >= MAX_RUNNING:
            self._refuse(
                command.event_id,
                "too_many_responses",
                f"{MAX_RUNNING} responses are in progress. Wait until one of them is done.",
            )
        else:
            try:
                items = self.prompts.input_items(options)
            except UnknownItem as unknown:
                text = f"The item with id '{unknown.args[0]}' does not exist."
                self._refuse(command.event_id, "invalid_value", text, "response.input")
            else:
                self._answer_request(options, items)

    def _answer_request(self, options: ResponseOptions, items: list[Item] | None) -> None:
        """``items``: instead of the conversation, as it is now."""
        instructions = self.prompts.instructions(options)
        asked = {item.id for item in self._chat.context}

        async def messages() -> list[Message]:
            if items is not None:
                return prompt(instructions, await self._transcriber.with_text(items))
            await self._transcriber.settled()
            return prompt(instructions, [i for i in self._chat.context if i.id in asked])

        now = asyncio.get_running_loop().time()
        self._confirm(self._start(options, messages, Work(), now), options)

    def break_silence(self) -> None:
        """Speak because the user does not (idle timeout)."""

        async def messages() -> list[Message]:
            return [*self.prompts.conversation(), SILENCE]

        now = asyncio.get_running_loop().time()
        options = ResponseOptions()
        self._confirm(self._start(options, messages, Work(), now), options)

    def notify(self, sentence: str) -> None:
        """Say it in our own name; no prompt has it."""

        async def messages() -> list[Message]:
            return []

        now, options = asyncio.get_running_loop().time(), ResponseOptions()
        self._confirm(self._start(options, messages, Work(), now, notice=sentence), options)

    # -- speech over an answer

    def audible(self, just_begun: bool = False) -> bool:
        """Whether an answer is being heard; ``just_begun``: also one of which next to nothing was
        heard so far."""
        heard = self._heard_now
        return heard is not None and heard.audible(0.0 if just_begun else BARELY_HEARD_S)

    def hold(self) -> bool:
        """Send no more of the answer that is being heard. False if none is."""
        heard = self._heard_now
        if heard is None or not heard.audible(0.0):
            return False
        heard.hold()
        if self._held is not heard:
            self._held = heard
            self._bus.publish(ReplyHeld(heard.plan.reply_id))
        return True

    def go_on(self) -> None:
        """Send on what was held back."""
        held, self._held = self._held, None
        if held:
            held.go_on()
            self._bus.publish(ReplyWentOn(held.plan.reply_id))

    @property
    def spoken(self) -> str:
        """What has been heard lately of the answer that speech would interrupt."""
        heard = self._held or self._heard_now
        return heard.spoken_lately if heard else ""

    @property
    def _heard_now(self) -> Reply | None:
        """The answer that is given, or may still be played."""
        return self.speaking or self._latest

    # -- how replies end

    def cancel_asked(self, command: CancelResponse) -> None:
        """``response.cancel``."""
        wanted = command.response_id
        reply = self._running.get(wanted) if wanted else self.speaking
        if reply is None or reply.status != "active":
            text = "Cancellation failed: no active response found"
            self._refuse(command.event_id, "response_cancel_not_active", text)
        else:
            self._cancel(reply, "client_cancelled")

    def truncate(self, item_id: str, heard_s: float) -> bool:
        """``conversation.item.truncate`` of an answer that is still being given; False if it is
        none. Raises ``TooShort``."""
        running = list(self._running.values())
        return any(r.truncate(item_id, heard_s) for r in running if r.plan.in_conversation)

    def interrupt(self) -> Reply | None:
        """The user speaks: every reply to the conversation ends, out-of-band ones go on. Of one
        that has been sent, and not played to its end, the conversation keeps what was heard.

        Gives the answer that was cut off in the middle, for ``resume``."""
        latest = self._latest
        cut = latest if latest and latest.audible(BARELY_HEARD_S) else None
        detection = self.prompts.config.turn_detection
        ours = detection is not None and detection.create_response
        if ours and latest and latest is not self._given_again and latest.barely_heard:
            self._owed = _Owed(latest.began_at, self._latest_options, again=True)
        if latest and latest.status == "finished" and not latest.cancelled and latest.unheard_s > 0:
            if heard := latest.heard:
                self._place_item(heard)
            self._latest = None
        for reply in list(self._running.values()):
            if reply.plan.in_conversation:
                self._cancel(reply, "turn_detected")
        return cut

    def resume(self, cut: Reply, since: float) -> bool:
        """Say the rest of an answer that was interrupted by mistake, as a new one. False if nothing
        is left of it. ``since``: end of the speech that interrupted it, in the loop's time."""
        said = next((item for item in self._chat.items if item.id == cut.plan.item_id), None)
        rest = cut.unsaid(said.text) if isinstance(said, MessageItem) else ""
        if self.speaking or not rest.strip():
            return False

        async def messages() -> list[Message]:
            return self.prompts.conversation()

        options = ResponseOptions()
        continues = Continuation(cut.plan.reply_id, rest)
        self._confirm(self._start(options, messages, Work(), since, continues=continues), options)
        return True

    def close(self) -> None:
        for reply in list(self._running.values()):
            self._cancel(reply, "shutdown")

    def _cancel(self, reply: Reply, reason: CancelReason) -> None:
        """End a reply early; the conversation keeps what was heard of it."""
        heard = reply.heard
        reply.cancel(reason)
        if self._held is reply:
            self._held = None
        if heard and reply.plan.in_conversation:
            self._place_item(heard)
        self._forget(reply)

    def _refuse_second(self, event_id: str | None, active: Reply) -> None:
        self._refuse(
            event_id,
            "conversation_already_has_active_response",
            f"Conversation already has an active response in progress: {active.plan.reply_id}. "
            f"Wait until the response is finished before creating a new one.",
        )

    def _refuse(
        self, event_id: str | None, code: str, message: str, param: str | None = None
    ) -> None:
        self._bus.publish(Refused(event_id, code, message, param))

    # -- one reply

    def _start(
        self,
        options: ResponseOptions,
        messages: PromptSource,
        work: Work,
        began_at: float,
        notice: str = "",
        continues: Continuation | None = None,
    ) -> Reply:
        """Begin behind a shut gate. ``began_at``: end of speech, or of the request."""
        self._on_start()
        own = options.in_conversation and options.input is None
        conversation = self._conversation if own else LastingConversation(self._stages)
        plan = replace(self._plan(options), notice=notice, continues=continues)
        place = self._place_item if options.in_conversation else lambda item: None
        reply = Reply(
            plan,
            messages,
            conversation,
            self._stages,
            self._bus,
            Delivery(plan, self._bus, place, self._new_id),
            work=work,
            forget=lambda: own and reply.confirmed and self._chat.forget_oldest(),
            began_at=began_at,
            ramp=self._ramp,
        )
        self._running[plan.reply_id] = reply
        self.quiet.clear()
        self._tasks.create_task(self._run(reply, None if own else conversation))
        return reply

    def _plan(self, options: ResponseOptions) -> ReplyPlan:
        config, settings = self.prompts.config.with_options(options), self._settings
        detection = config.turn_detection
        interruptible = detection is not None and detection.interrupt_response
        paced = interruptible and options.in_conversation
        limit = config.max_output_tokens or settings.sampling.max_tokens
        spoken = config.modality == "audio" and options.in_conversation
        return ReplyPlan(
            reply_id=self._new_id("resp"),
            item_id=self._new_id("item"),
            config=config,
            settings=settings,
            sampling=replace(settings.sampling, max_tokens=None if limit == "inf" else limit),
            in_conversation=options.in_conversation,
            filler=settings.filler.sentence(self._answers) if spoken else "",
            lead=self._lead() if paced else None,
            metadata=options.metadata,
        )

    def _lead(self) -> Lead:
        lead_s, chunk_s = self._settings.lead_ms / 1000, self._settings.chunk_ms / 1000
        first_s = max(tuning.FIRST_LEAD_S, 2 * chunk_s) + self._arrivals.jitter_s
        return Lead(min(first_s, lead_s), lead_s)

    async def _run(self, reply: Reply, own_conversation: ConversationStage | None) -> None:
        try:
            await reply.run()
        finally:
            if own_conversation:
                own_conversation.close()
            self._forget(reply)

    def _forget(self, reply: Reply) -> None:
        if self._running.pop(reply.plan.reply_id, None):
            if not self._running:
                self._forget_placed()
                self.quiet.set()
            self._on_end(reply)

    def _forget_placed(self) -> None:
        """Of answers that are over, only the latest may still be cut to what was heard."""
        latest = {self._latest.plan.item_id} if self._latest else set()
        self._placed &= latest | {item.id for item in self._chat.items}

    def _place_item(self, item: OutputItem) -> str | None:
        """Put an item of an answer at the end, or in the place it already has.

        One that the client has deleted meanwhile stays away.
        """
        if item.id not in self._placed:
            self._placed.add(item.id)
            make_room(self._chat, self._bus, self._settings.max_items)
            return self._chat.add(item)
        if not any(other.id == item.id for other in self._chat.items):
            return None
        self._chat.put(item)
        return self._chat.previous_id(item.id)
