"""A session: one listener, one conversation, and the replies to it.

Commands come in through one bounded inbox and are handled one after the other; audio waits there
too, so a client that sends faster than we listen is held back. Everything that a session starts
lives in its TaskGroup and ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.chat import AudioPart, Chat, DuplicateItem, Item, MessageItem, UnknownItem, prompt
from pipeline.commands import (
    AddItem,
    AppendAudio,
    CancelResponse,
    ClearAudio,
    Command,
    CommitAudio,
    Configure,
    CreateResponse,
    DeleteItem,
    ResponseOptions,
    SessionConfig,
    TruncateItem,
)
from pipeline.engines import Cancelled, Message, Transcript
from pipeline.errors import ReachyVoiceError
from pipeline.events import (
    Bus,
    InputCleared,
    InputCommitted,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemTruncated,
    Refused,
    TranscriptFailed,
    TranscriptReady,
)
from pipeline.listening import Listener
from pipeline.replies import Replies, SessionSettings
from pipeline.reply import PromptSource, Reply
from pipeline.stages import Stages
from pipeline.turns import Endpointing
from pipeline.utterance import Attempt, PushToTalkBuffer, Recognition
from pipeline.voice_turns import VoiceTurns
from pipeline.work import Priority, Work

INBOX_COMMANDS = 256
MIN_COMMIT_MS = 100
"""The Realtime API refuses to commit less."""


class Session:
    """``run`` it in a task; ``submit`` commands; read the bus."""

    def __init__(
        self,
        stages: Stages,
        config: SessionConfig,
        settings: SessionSettings,
        bus: Bus,
        new_id: Callable[[str], str],
    ) -> None:
        """``new_id(prefix)`` gives a fresh id such as ``item_…``."""
        self.chat = Chat()
        self._stages = stages
        self._config = config
        self._settings = settings
        self._bus = bus
        self._new_id = new_id
        self._inbox: asyncio.Queue[Command] = asyncio.Queue(INBOX_COMMANDS)
        self._transcribing: dict[str, asyncio.Task[None]] = {}
        self._warm_up = Work(Priority.WARM_UP)
        limit = int(settings.endpointing.max_utterance_s * LISTEN_RATE)
        self._buffer = PushToTalkBuffer(limit)
        self._replies = Replies(self.chat, stages, settings, bus, new_id)

    # -- life

    async def run(self) -> None:
        """Live until cancelled."""
        vad = await self._stages.vad.open()
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._replies.tasks = self._tasks
                self._listener = Listener(
                    vad,
                    self._stages.vad.window_samples,
                    self._stages.turn.history_seconds,
                    self._endpointing(),
                )
                self._turns = VoiceTurns(
                    self, self._listener, self._stages, self._bus, self._tasks, self._new_id
                )
                self._configure_turns()
                self._warm()
                while True:
                    await self._handle(await self._next_command())
        finally:
            self._stop_everything()
            vad.close()

    async def submit(self, command: Command) -> None:
        """Hand a command over; waits while the inbox is full."""
        await self._inbox.put(command)

    async def quiet(self) -> None:
        """Wait until no reply is being given."""
        await self._replies.quiet.wait()

    @property
    def busy(self) -> bool:
        """Whether a reply is being made or given."""
        return not self._replies.quiet.is_set()

    async def _next_command(self) -> Command:
        if not self._turns.open:
            return await self._inbox.get()
        # A muted or stalled client sends nothing: the clock feeds silence, so its turn still ends.
        stall_ms = self._settings.endpointing.stall_ms
        try:
            async with asyncio.timeout(stall_ms / 1000):
                return await self._inbox.get()
        except TimeoutError:
            silence = np.zeros(LISTEN_RATE * stall_ms // 1000, dtype=np.int16)
            return AppendAudio(silence, LISTEN_RATE)

    def _stop_everything(self) -> None:
        self._replies.close()
        self._warm_up.cancel()

    async def _handle(self, command: Command) -> None:
        match command:
            case AppendAudio():
                await self._hear(command)
            case Configure():
                self._configure(command.config)
            case CommitAudio():
                self._commit(command)
            case ClearAudio():
                self._clear_input()
                self._bus.publish(InputCleared())
            case AddItem():
                self._add_item(command)
            case DeleteItem():
                self._delete_item(command)
            case TruncateItem():
                self._truncate_item(command)
            case CreateResponse():
                self._create_response(command)
            case CancelResponse():
                self._cancel_response(command)

    def _refuse(self, event_id: str | None, code: str, message: str, param: str = "") -> None:
        self._bus.publish(Refused(event_id, code, message, param or None))

    # -- configuration

    def _configure(self, config: SessionConfig) -> None:
        before, self._config = self._config, config
        if config.turn_detection != before.turn_detection:
            self._clear_input()
            self._listener.configure(self._endpointing())
        self._configure_turns()
        if (config.instructions, config.tools) != (before.instructions, before.tools):
            self._warm()

    def _configure_turns(self) -> None:
        detection = self._config.turn_detection
        wants_reply = detection is not None and detection.create_response
        self._turns.configure(self._endpointing(), self._config.language, wants_reply)

    def _endpointing(self) -> Endpointing:
        """The YAML's endpointing, with what the client asked for on top."""
        ours = self._settings.endpointing
        asked = self._config.turn_detection
        changes: dict[str, float] = {}
        if asked and asked.threshold is not None:
            changes["speech_threshold"] = asked.threshold
            changes["silence_threshold"] = min(ours.silence_threshold, asked.threshold)
        if asked and asked.prefix_padding_ms is not None:
            changes["prefix_padding_ms"] = asked.prefix_padding_ms
        if asked and asked.silence_duration_ms is not None:
            limit = asked.silence_duration_ms
            changes["clear_wait_ms"] = min(ours.clear_wait_ms, limit)
            changes["likely_wait_ms"] = min(ours.likely_wait_ms, limit)
        return ours.model_copy(update=changes)

    def _warm(self) -> None:
        """Read instructions, tools and history into the model before anybody asks."""
        self._warm_up.cancel()
        self._warm_up = Work(Priority.WARM_UP)
        self._tasks.create_task(self._run_warm_up(self._warm_up))

    async def _run_warm_up(self, work: Work) -> None:
        try:
            await self._replies.conversation.warm(self._prompt(), self._config.tools, work)
        except (ReachyVoiceError, Cancelled):
            # The reply that needs this prompt meets the same trouble, and reports it.
            return

    def _prompt(self, instructions: str | None = None, said: str = "") -> list[Message]:
        items: tuple[Item, ...] = self.chat.context
        if said:
            items += (MessageItem("", "user", (AudioPart(said),)),)
        return prompt(self._config.instructions if instructions is None else instructions, items)

    # -- audio in

    async def _hear(self, command: AppendAudio) -> None:
        pcm = self._listener.resample(command.pcm, command.rate)
        if self._config.turn_detection:
            await self._turns.hear(pcm)
        elif not self._buffer.append(pcm):
            self._refuse(
                None,
                "input_audio_buffer_full",
                "The input audio buffer is full: commit or clear it before you send more.",
            )

    def _clear_input(self) -> None:
        self._buffer.clear()
        self._turns.drop()

    def _commit(self, command: CommitAudio) -> None:
        if self._turns.commit_now():
            return
        held_ms = self._buffer.samples * 1000 / LISTEN_RATE
        if held_ms < MIN_COMMIT_MS:
            self._refuse(
                command.event_id,
                "input_audio_buffer_commit_empty",
                f"Error committing input audio buffer: buffer too small. Expected at least "
                f"{MIN_COMMIT_MS}ms of audio, but buffer only has {held_ms:.2f}ms of audio.",
            )
            return
        pcm = self._buffer.take()
        item_id = self._new_id("item")
        self._commit_item(item_id, MessageItem(item_id, "user", (_audio_part(pcm),)))
        self._transcribing[item_id] = self._tasks.create_task(self._transcribe(item_id, pcm))

    async def _transcribe(self, item_id: str, pcm: Pcm) -> None:
        recognition = Recognition(self._stages.stt, self._config.language)
        recognition.append(pcm)
        said: Transcript | ReachyVoiceError
        try:
            async with asyncio.TaskGroup() as group:
                running = group.create_task(recognition.run())
                said = await recognition.transcript(Work())
                running.cancel()
        except* ReachyVoiceError as errors:
            said = _first(errors)
        self._transcribed(item_id, said)
        del self._transcribing[item_id]

    # -- what a voice turn asks (pipeline.voice_turns.Speaker)

    def speech_started(self) -> None:
        detection = self._config.turn_detection
        if detection and detection.interrupt_response:
            self._replies.interrupt()

    def begin_reply(self, said: str, attempt: Attempt) -> Reply | None:
        if self._replies.speaking:
            return None

        async def messages() -> list[Message]:
            return self._prompt(said=said)

        reply = self._start_reply(
            ResponseOptions(), messages, attempt.work, began_at=attempt.paused_at
        )
        reply.mark("transcript")
        return reply

    def commit_speech(
        self, item_id: str, said: Transcript | ReachyVoiceError, seconds: float
    ) -> None:
        self._commit_item(item_id, MessageItem(item_id, "user", (AudioPart(None, seconds),)))
        self._transcribed(item_id, said)

    def _commit_item(self, item_id: str, item: MessageItem) -> None:
        previous = self.chat.add(item)
        self._bus.publish(InputCommitted(item_id, previous))
        self._bus.publish(ItemAdded(item, previous))
        self._bus.publish(ItemDone(item, previous))

    def _transcribed(self, item_id: str, said: Transcript | ReachyVoiceError) -> None:
        if isinstance(said, ReachyVoiceError):
            self._bus.publish(TranscriptFailed(item_id, str(said)))
            return
        self._bus.publish(TranscriptReady(item_id, said.text, said.seconds))
        try:
            item = self.chat.get(item_id)
        except UnknownItem:
            return
        if isinstance(item, MessageItem):
            self.chat.put(replace(item, parts=(AudioPart(said.text, said.seconds),)))

    # -- conversation

    def _add_item(self, command: AddItem) -> None:
        try:
            previous = self.chat.add(command.item, command.after)
        except DuplicateItem:
            self._refuse(
                command.event_id,
                "item_create_duplicate_item_id",
                f"Error adding item: an item with id '{command.item.id}' already exists.",
                "item.id",
            )
        except UnknownItem:
            self._refuse(
                command.event_id,
                "item_create_invalid_previous_item_id",
                f"Error adding item: the previous item with id '{command.after}' does not exist.",
                "previous_item_id",
            )
        else:
            self._bus.publish(ItemAdded(command.item, previous))
            self._bus.publish(ItemDone(command.item, previous))

    def _delete_item(self, command: DeleteItem) -> None:
        try:
            self.chat.delete(command.item_id)
        except UnknownItem:
            self._refuse(
                command.event_id,
                "item_delete_invalid_item_id",
                f"Error deleting item: the item with id '{command.item_id}' does not exist.",
                "item_id",
            )
        else:
            self._bus.publish(ItemDeleted(command.item_id))

    def _truncate_item(self, command: TruncateItem) -> None:
        try:
            self.chat.truncate(command.item_id, command.audio_end_ms / 1000)
        except UnknownItem:
            self._refuse(
                command.event_id,
                "item_truncate_invalid_item_id",
                f"Error truncating item: no spoken item with id '{command.item_id}'.",
                "item_id",
            )
        else:
            self._bus.publish(
                ItemTruncated(command.item_id, command.content_index, command.audio_end_ms)
            )

    # -- replies

    def _create_response(self, command: CreateResponse) -> None:
        options = command.options
        if options.in_conversation and (active := self._replies.speaking):
            self._refuse(
                command.event_id,
                "conversation_already_has_active_response",
                f"Conversation already has an active response in progress: "
                f"{active.plan.reply_id}. Wait until the response is finished before creating "
                f"a new one.",
            )
            return

        async def messages() -> list[Message]:
            for task in list(self._transcribing.values()):
                await asyncio.wait({task})
            if options.input is None:
                return self._prompt(options.instructions)
            return prompt(options.instructions or self._config.instructions, options.input)

        now = asyncio.get_running_loop().time()
        self._start_reply(options, messages, Work(), began_at=now).confirm()

    def _start_reply(
        self, options: ResponseOptions, messages: PromptSource, work: Work, *, began_at: float
    ) -> Reply:
        self._warm_up.cancel()
        return self._replies.start(self._config, options, messages, work, began_at=began_at)

    def _cancel_response(self, command: CancelResponse) -> None:
        reply_id = command.response_id
        reply = self._replies.get(reply_id) if reply_id else self._replies.speaking
        if reply is None or reply.status != "active":
            self._refuse(
                command.event_id,
                "response_cancel_not_active",
                "Cancellation failed: no active response found",
            )
        else:
            self._replies.cancel(reply, "client_cancelled")


def _audio_part(pcm: Pcm) -> AudioPart:
    return AudioPart(None, len(pcm) / LISTEN_RATE)


def _first(errors: BaseExceptionGroup[ReachyVoiceError]) -> ReachyVoiceError:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ReachyVoiceError)
    return error
