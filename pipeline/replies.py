"""The replies of one session: how they are planned, who owns the speaker, how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pipeline.chat import Chat, MessageItem
from pipeline.commands import ResponseOptions, SessionConfig
from pipeline.engines import Sampling
from pipeline.events import Bus, CancelReason
from pipeline.reply import PromptSource, Reply, ReplyPlan
from pipeline.stages import ConversationStage, Stages
from pipeline.turns import Endpointing
from pipeline.work import Work


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What the YAML says about every session."""

    endpointing: Endpointing = field(default_factory=Endpointing)
    sampling: Sampling = field(default_factory=Sampling)
    lead_ms: int = 250
    chunk_ms: int = 40


class Replies:
    """Starts replies in the session's TaskGroup and ends them, each exactly once.

    Replies to the conversation share its KV sequence; others get one of their own.
    """

    tasks: asyncio.TaskGroup

    def __init__(
        self,
        chat: Chat,
        stages: Stages,
        settings: SessionSettings,
        bus: Bus,
        new_id: Callable[[str], str],
        on_quiet: Callable[[], None],
    ) -> None:
        """``on_quiet`` is called when the last reply has ended."""
        self.conversation = stages.llm.open()
        self.quiet = asyncio.Event()
        """Set while no reply is being made or given."""
        self.quiet.set()
        self._chat = chat
        self._stages = stages
        self._settings = settings
        self._bus = bus
        self._new_id = new_id
        self._on_quiet = on_quiet
        self._running: dict[str, Reply] = {}
        self._placed: set[str] = set()

    def get(self, reply_id: str) -> Reply | None:
        return self._running.get(reply_id)

    @property
    def speaking(self) -> Reply | None:
        """The reply that owns the speaker, if one is being given."""
        for reply in self._running.values():
            if reply.plan.in_conversation and reply.status == "active":
                return reply
        return None

    def start(
        self,
        config: SessionConfig,
        options: ResponseOptions,
        messages: PromptSource,
        work: Work,
        *,
        began_at: float,
    ) -> Reply:
        """Begin a reply behind a shut gate. ``began_at``: end of speech, or of the request."""
        own = options.in_conversation and options.input is None
        conversation = self.conversation if own else self._stages.llm.open()
        reply = Reply(
            self._plan(config, options),
            messages,
            conversation,
            self._stages.tts,
            self._bus,
            work=work,
            place_item=self._place_item if options.in_conversation else lambda item: None,
            forget=self._chat.forget_oldest if own else lambda: False,
            began_at=began_at,
        )
        self._running[reply.plan.reply_id] = reply
        self.quiet.clear()
        self.tasks.create_task(self._run(reply, None if own else conversation))
        return reply

    def cancel(self, reply: Reply, reason: CancelReason) -> None:
        """End a reply early; the conversation keeps what was heard of it."""
        heard = reply.heard
        reply.cancel(reason)
        if heard and reply.plan.in_conversation:
            self._place_item(heard)
        self._forget(reply)

    def interrupt(self) -> None:
        """Somebody speaks: every reply to the conversation ends, out-of-band ones go on."""
        for reply in list(self._running.values()):
            if reply.plan.in_conversation:
                self.cancel(reply, "turn_detected")

    def close(self) -> None:
        for reply in list(self._running.values()):
            reply.cancel("shutdown")
        self.conversation.close()

    def _plan(self, config: SessionConfig, options: ResponseOptions) -> ReplyPlan:
        settings = self._settings
        detection = config.turn_detection
        interruptible = detection is not None and detection.interrupt_response
        paced = interruptible and options.in_conversation
        limit = options.max_output_tokens or config.max_output_tokens
        return ReplyPlan(
            reply_id=self._new_id("resp"),
            item_id=self._new_id("item"),
            modality=options.modality or config.modality,
            in_conversation=options.in_conversation,
            voice=options.voice or config.voice,
            output_rate=config.output_rate,
            chunk_ms=settings.chunk_ms,
            lead_s=settings.lead_ms / 1000 if paced else None,
            tools=config.tools if options.tools is None else options.tools,
            sampling=replace(settings.sampling, max_tokens=limit) if limit else settings.sampling,
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
        if self._running.pop(reply.plan.reply_id, None) and not self._running:
            self.quiet.set()
            self._on_quiet()

    def _place_item(self, item: MessageItem) -> str | None:
        """Put an assistant's item at the end, or in the place it already has.

        One that the client has deleted meanwhile stays away.
        """
        if item.id not in self._placed:
            self._placed.add(item.id)
            return self._chat.add(item)
        if not any(other.id == item.id for other in self._chat.items):
            return None
        self._chat.put(item)
        return self._chat.previous_id(item.id)
