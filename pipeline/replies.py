"""The replies of one session: what is asked, who owns the speaker, how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import dropwhile

from pipeline.chat import AudioPart, Item, MessageItem, UnknownItem, prompt
from pipeline.commands import (
    CancelResponse,
    CreateResponse,
    ItemReference,
    ResponseOptions,
    SessionConfig,
)
from pipeline.delivery import Delivery, ReplyPlan
from pipeline.endpointing import Endpointing
from pipeline.engines import Message, Sampling
from pipeline.events import Bus, CancelReason, OutputItem, Refused, SpeculationDiscarded
from pipeline.item_commands import make_room
from pipeline.memory import Memory
from pipeline.ramp import Ramp
from pipeline.reply import PromptSource, Reply
from pipeline.speculation import Speculation
from pipeline.stages import ConversationStage, Stages
from pipeline.transcribing import Transcriber
from pipeline.utterance import Attempt, Guess
from pipeline.work import Work

MAX_RUNNING = 8
"""Replies of one session at the same time: the spoken one and those out of band."""

SILENCE = Message("user", "(The user has been silent for a while.)")
"""What the model reads in place of words when it speaks because nobody else does."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What the YAML says about every session.

    ``tool_instructions`` are added to the instructions of answers that may call tools.
    """

    endpointing: Endpointing = field(default_factory=Endpointing)
    sampling: Sampling = field(default_factory=Sampling)
    tool_instructions: str = ""
    speculation: Speculation = field(default_factory=Speculation)
    lead_ms: int = 250
    chunk_ms: int = 40
    max_items: int = 2000
    partials: bool = False


class Replies:
    """Starts replies in the session's TaskGroup and ends them, each exactly once.

    Replies to the conversation share its KV sequence; others get one of their own.
    """

    tasks: asyncio.TaskGroup

    def __init__(
        self,
        memory: Memory,
        stages: Stages,
        config: SessionConfig,
        settings: SessionSettings,
        transcriber: Transcriber,
        bus: Bus,
        new_id: Callable[[str], str],
        on_start: Callable[[], None],
        on_end: Callable[[Reply], None],
    ) -> None:
        """``on_start`` is called before each reply, ``on_end`` after it."""
        self.config = config
        self.quiet = asyncio.Event()
        """Set while no reply is being made or given."""
        self.quiet.set()
        self._chat = memory.chat
        self._conversation = memory.conversation
        self._stages = stages
        self._settings = settings
        self._transcriber = transcriber
        self._bus = bus
        self._new_id = new_id
        self._on_start = on_start
        self._on_end = on_end
        self._running: dict[str, Reply] = {}
        self._placed: set[str] = set()
        self._ramp = Ramp()
        self._to_speech: Reply | None = None
        """The newest answer to what was said."""
        self._owed_since: float | None = None
        """End of speech that waits for its answer until another reply is over, or until it is
        known whether somebody goes on."""

    @property
    def speaking(self) -> Reply | None:
        """The reply that owns the speaker, if one is being given."""
        for reply in self._running.values():
            if reply.plan.in_conversation and reply.status == "active":
                return reply
        return None

    # -- what asks for a reply

    def begin(self, guess: Guess, since: float) -> None:
        """Give the guess a reply behind a shut gate, unless another reply is being given.

        ``since``: end of speech, in the loop's time."""
        if self.speaking:
            return

        async def messages() -> list[Message]:
            await self._transcriber.settled()
            return self.prompt(said="" if guess.committed else guess.text)

        guess.reply = self._start(
            ResponseOptions(), messages, guess.work, since, tell_end=guess.tell_end
        )
        guess.reply.mark("transcript")

    def answer(self, attempt: Attempt) -> None:
        """Open the gate of the attempt's reply, or start one now."""
        guess, work = attempt.guess, attempt.work
        reply = guess.reply if guess else None
        active = self.speaking
        if guess and reply and (active or not self._fits(reply)):
            reply.cancel("resumed")
            begun = guess.work
            begun.when_idle(
                lambda: self._bus.publish(
                    SpeculationDiscarded(attempt.item_id, begun.engine_seconds)
                )
            )
            reply, work = None, Work()
        if active:
            self.owe(attempt.paused_at)
            return

        async def messages() -> list[Message]:
            if attempt.error:
                raise attempt.error
            await self._transcriber.settled()
            return self.prompt()

        if reply is None:
            reply = self._start(ResponseOptions(), messages, work, attempt.paused_at)
            reply.mark("transcript")
        self._to_speech = reply
        self._confirm(reply)

    def owe(self, since: float | None) -> None:
        """What was said until ``since``, in the loop's time, is answered later; ``None``: no more.
        Any answer to the conversation settles it."""
        self._owed_since = since

    def settle(self) -> None:
        """Give the answer that is owed, if one is and nothing is in its way."""
        since = self._owed_since
        if since is None or self.speaking:
            return
        self._to_speech = self._start(ResponseOptions(), self._conversation_now, Work(), since)
        self._to_speech.mark("transcript")
        self._confirm(self._to_speech)

    async def _conversation_now(self) -> list[Message]:
        await self._transcriber.settled()
        return self.prompt()

    def _confirm(self, reply: Reply) -> None:
        if reply.plan.in_conversation:
            self._owed_since = None
        reply.confirm()

    @property
    def asked(self) -> str:
        """What the assistant said last, if nobody has answered yet."""
        last = self._chat.items[-1] if self._chat.items else None
        spoken = isinstance(last, MessageItem) and last.role == "assistant"
        return last.text if spoken and isinstance(last, MessageItem) else ""

    def _fits(self, reply: Reply) -> bool:
        """Whether what was begun in the pause is still an answer to what was asked, as it is asked
        now: a client may have changed items or session meanwhile."""
        begun = reply.plan
        now = replace(self._plan(ResponseOptions()), reply_id=begun.reply_id, item_id=begun.item_id)
        return now == begun and reply.prompt_read in (None, self.prompt())

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
                items = self._input_items(options)
            except UnknownItem as unknown:
                text = f"The item with id '{unknown.args[0]}' does not exist."
                self._refuse(command.event_id, "invalid_value", text, "response.input")
            else:
                self._answer_request(options, items)

    def _answer_request(self, options: ResponseOptions, items: list[Item] | None) -> None:
        """``items``: instead of the conversation, as it is now."""
        instructions = self._instructions(options)
        asked = {item.id for item in self._chat.context}

        async def messages() -> list[Message]:
            if items is not None:
                return prompt(instructions, await self._transcriber.with_text(items))
            await self._transcriber.settled()
            return prompt(instructions, [i for i in self._chat.context if i.id in asked])

        now = asyncio.get_running_loop().time()
        self._confirm(self._start(options, messages, Work(), now))

    def break_silence(self) -> None:
        """Speak because nobody else does."""

        async def messages() -> list[Message]:
            return [*self.prompt(), SILENCE]

        now = asyncio.get_running_loop().time()
        self._confirm(self._start(ResponseOptions(), messages, Work(), now))

    def prompt(self, said: str = "", start: str | None = None) -> list[Message]:
        """The conversation as the model reads it; ``said`` is about to be committed. ``start``:
        the item to begin with."""
        items: tuple[Item, ...] = self._chat.context
        if start:
            items = tuple(dropwhile(lambda item: item.id != start, items))
        if said:
            items += (MessageItem("", "user", (AudioPart(said),)),)
        return prompt(self._instructions(ResponseOptions()), items)

    def _instructions(self, options: ResponseOptions) -> str:
        given = options.instructions
        text = self.config.instructions if given is None else given
        tools = self.config.tools if options.tools is None else options.tools
        return f"{text}\n\n{self._settings.tool_instructions}".strip() if tools else text

    def _input_items(self, options: ResponseOptions) -> list[Item] | None:
        """What ``response.input`` means. Raises ``UnknownItem``."""
        if options.input is None:
            return None
        return [
            self._chat.get(item.item_id) if isinstance(item, ItemReference) else item
            for item in options.input
        ]

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

    def interrupt(self) -> None:
        """Somebody speaks: every reply to the conversation ends, out-of-band ones go on."""
        for reply in list(self._running.values()):
            if reply.plan.in_conversation:
                if reply is self._to_speech and reply.barely_heard:
                    self.owe(reply.began_at)
                self._cancel(reply, "turn_detected")

    def close(self) -> None:
        for reply in list(self._running.values()):
            self._cancel(reply, "shutdown")

    def _cancel(self, reply: Reply, reason: CancelReason) -> None:
        """End a reply early; the conversation keeps what was heard of it."""
        heard = reply.heard
        reply.cancel(reason)
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
        tell_end: Callable[[float | None], None] = lambda probability: None,
    ) -> Reply:
        """Begin behind a shut gate. ``began_at``: end of speech, or of the request."""
        self._on_start()
        own = options.in_conversation and options.input is None
        conversation = self._conversation if own else self._stages.llm.open()
        plan = self._plan(options)
        place = self._place_item if options.in_conversation else lambda item: None
        reply = Reply(
            plan,
            messages,
            conversation,
            self._stages.tts,
            self._bus,
            Delivery(plan, self._bus, place, self._new_id),
            work=work,
            forget=self._chat.forget_oldest if own else lambda: False,
            began_at=began_at,
            ramp=self._ramp,
            tell_end=tell_end,
        )
        self._running[plan.reply_id] = reply
        self.quiet.clear()
        self.tasks.create_task(self._run(reply, None if own else conversation))
        return reply

    def _plan(self, options: ResponseOptions) -> ReplyPlan:
        config, settings = self.config, self._settings
        detection = config.turn_detection
        interruptible = detection is not None and detection.interrupt_response
        paced = interruptible and options.in_conversation
        asked = options.max_output_tokens or config.max_output_tokens
        limit = asked or settings.sampling.max_tokens
        return ReplyPlan(
            reply_id=self._new_id("resp"),
            item_id=self._new_id("item"),
            modality=options.modality or config.modality,
            in_conversation=options.in_conversation,
            voice=options.voice or config.voice,
            speed=config.speed,
            language=config.language,
            output_format=options.output_format or config.output_format,
            chunk_ms=settings.chunk_ms,
            lead_s=settings.lead_ms / 1000 if paced else None,
            tools=config.tools if options.tools is None else options.tools,
            tool_choice=options.tool_choice or config.tool_choice,
            sampling=replace(settings.sampling, max_tokens=None if limit == "inf" else limit),
            metadata=options.metadata,
        )

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
                self.quiet.set()
            self._on_end(reply)

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
