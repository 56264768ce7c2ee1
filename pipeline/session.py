"""A session: one listener, one conversation, and the replies to it.

Commands come in through one bounded inbox and are handled one after the other; audio waits there
too, so a client that sends faster than we listen is held back. Everything that a session starts
lives in its TaskGroup and ends with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pipeline.audio import LISTEN_RATE
from pipeline.chat import AudioPart, Chat, Item, MessageItem, UnknownItem, prompt
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
    ItemDone,
    Refused,
    TranscriptFailed,
    TranscriptReady,
)
from pipeline.item_commands import carry_out
from pipeline.listening import Listener
from pipeline.replies import Replies, SessionSettings
from pipeline.reply import PromptSource, Reply
from pipeline.stages import Stages
from pipeline.turns import Endpointing
from pipeline.utterance import Attempt, PushToTalkBuffer, Recognition
from pipeline.voice_turns import VoiceTurns
from pipeline.work import Priority, Work

log = logging.getLogger("reachy_voice.session")

INBOX_COMMANDS = 256
MIN_COMMIT_MS = 100
"""The Realtime API refuses to commit less."""
MAX_TRANSCRIBING = 32
"""Committed items of one session that may wait for their transcript."""


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
        stall_samples = settings.endpointing.stall_ms * LISTEN_RATE // 1000
        self._stall_silence = np.zeros(stall_samples, dtype=np.int16)
        limit = int(settings.endpointing.max_utterance_s * LISTEN_RATE)
        self._buffer = PushToTalkBuffer(limit)
        self._replies = Replies(self.chat, stages, settings, bus, new_id, self._replies_are_quiet)
        self._cold = False
        """Whether a warm-up was begun and not finished."""
        self._ending = False

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
                try:
                    await self._follow_commands()
                finally:
                    self._stop_everything()
        finally:
            vad.close()

    async def _follow_commands(self) -> None:
        while True:
            if command := await self._next_command():
                await self._handle(command)
            else:
                await self._turns.hear(self._stall_silence)

    async def submit(self, command: Command) -> None:
        """Hand a command over; waits while the inbox is full."""
        await self._inbox.put(command)

    async def quiet(self) -> None:
        """Wait until no reply is being given."""
        await self._replies.quiet.wait()

    async def _next_command(self) -> Command | None:
        """The next command; ``None`` when a client stalls in the middle of its turn."""
        if not self._turns.open:
            return await self._inbox.get()
        # A muted or stalled client sends nothing: the clock feeds silence, so its turn still ends.
        try:
            async with asyncio.timeout(len(self._stall_silence) / LISTEN_RATE):
                return await self._inbox.get()
        except TimeoutError:
            return None

    def _stop_everything(self) -> None:
        self._ending = True
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
            case AddItem() | DeleteItem() | TruncateItem():
                carry_out(command, self.chat, self._bus)
            case CreateResponse():
                self._create_response(command)
            case CancelResponse():
                self._cancel_response(command)

    def _refuse(self, event_id: str | None, code: str, message: str) -> None:
        self._bus.publish(Refused(event_id, code, message))

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
        ours, asked = self._settings.endpointing, self._config.turn_detection
        return asked.over(ours) if asked else ours

    def _warm(self) -> None:
        """Read instructions, tools and history into the model before anybody asks."""
        self._warm_up.cancel()
        self._warm_up = Work(Priority.WARM_UP)
        self._cold = True
        self._tasks.create_task(self._run_warm_up(self._warm_up))

    async def _run_warm_up(self, work: Work) -> None:
        try:
            await self._replies.conversation.warm(self._prompt(), self._config.tools, work)
        except Cancelled:
            return
        except ReachyVoiceError as error:
            # The reply that needs this prompt meets the same trouble, and reports it.
            log.warning("the session was not warmed up: %s", error)
        self._cold = False

    def _replies_are_quiet(self) -> None:
        """A reply has taken a warm-up's place; let it go on."""
        if self._cold and not self._ending:
            self._warm()

    def _prompt(self, instructions: str | None = None, said: str = "") -> list[Message]:
        items: tuple[Item, ...] = self.chat.context
        if said:
            items += (MessageItem("", "user", (AudioPart(said),)),)
        return prompt(self._config.instructions if instructions is None else instructions, items)

    # -- audio in

    async def _hear(self, command: AppendAudio) -> None:
        # A second at a time: a client may append minutes at once, and others are served too.
        for start in range(0, len(command.pcm), command.rate):
            await asyncio.sleep(0)
            piece = command.pcm[start : start + command.rate]
            pcm = self._listener.resample(piece, command.rate)
            if self._config.turn_detection:
                await self._turns.hear(pcm)
            elif not self._buffer.append(pcm):
                self._refuse(
                    None,
                    "input_audio_buffer_full",
                    "The input audio buffer is full: commit or clear it before you send more.",
                )
                return

    def _clear_input(self) -> None:
        self._buffer.clear()
        self._turns.drop()

    def _commit(self, command: CommitAudio) -> None:
        if len(self._transcribing) >= MAX_TRANSCRIBING:
            message = "Too many commits wait to be transcribed; wait for the completed events."
            self._refuse(command.event_id, "input_audio_buffer_commit_busy", message)
        elif turn := self._turns.take():
            seconds = (turn.fed_to - turn.start) / LISTEN_RATE
            self._commit_heard(turn.item_id, seconds, turn.recognition, turn.recognising)
        elif (held_ms := self._buffer.samples * 1000 / LISTEN_RATE) < MIN_COMMIT_MS:
            message = (
                f"Error committing input audio buffer: buffer too small. Expected at least "
                f"{MIN_COMMIT_MS}ms of audio, but buffer only has {held_ms:.2f}ms of audio."
            )
            self._refuse(command.event_id, "input_audio_buffer_commit_empty", message)
        else:
            pcm = self._buffer.take()
            recognition = Recognition(self._stages.stt, self._config.language)
            recognition.append(pcm)
            recognising = self._tasks.create_task(recognition.run())
            seconds = len(pcm) / LISTEN_RATE
            self._commit_heard(self._new_id("item"), seconds, recognition, recognising)

    def _commit_heard(
        self,
        item_id: str,
        seconds: float,
        recognition: Recognition,
        recognising: asyncio.Task[None],
    ) -> None:
        """Commit at once; the transcript follows, and replies wait for it."""
        item_id = self._commit_item(item_id, seconds)
        self._transcribing[item_id] = self._tasks.create_task(
            self._transcribe(item_id, recognition, recognising)
        )

    async def _transcribe(
        self, item_id: str, recognition: Recognition, recognising: asyncio.Task[None]
    ) -> None:
        said: Transcript | ReachyVoiceError
        try:
            said = await recognition.transcript(Work())
        except ReachyVoiceError as error:
            said = error
        finally:
            recognising.cancel()
        self._transcribed(item_id, said)
        del self._transcribing[item_id]

    # -- what a voice turn asks (pipeline.voice_turns.Speaker)

    def speech_started(self) -> bool:
        detection = self._config.turn_detection
        interrupts = detection is not None and detection.interrupt_response
        if interrupts:
            self._replies.interrupt()
        return interrupts

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
        self._transcribed(self._commit_item(item_id, seconds), said)

    def answer(self, attempt: Attempt) -> None:
        if active := self._replies.speaking:
            if attempt.reply:
                attempt.reply.cancel("resumed")
            self._refuse_second_response(None, active)
            return

        async def messages() -> list[Message]:
            return self._prompt()

        reply = attempt.reply or self._start_reply(
            ResponseOptions(), messages, attempt.work, began_at=attempt.paused_at
        )
        reply.confirm()

    def _commit_item(self, item_id: str, seconds: float) -> str:
        """Add the user's speech to the conversation; returns the id that it has there."""
        if any(item.id == item_id for item in self.chat.items):
            # The client has used the id of its own running speech for something else.
            item_id = self._new_id("item")
        item = MessageItem(item_id, "user", (AudioPart(None, seconds),))
        previous = self.chat.add(item)
        self._bus.publish(InputCommitted(item_id, previous))
        self._bus.publish(ItemAdded(item, previous))
        self._bus.publish(ItemDone(item, previous))
        return item_id

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

    # -- replies

    def _create_response(self, command: CreateResponse) -> None:
        options = command.options
        if options.in_conversation and (active := self._replies.speaking):
            self._refuse_second_response(command.event_id, active)
            return

        async def messages() -> list[Message]:
            for task in list(self._transcribing.values()):
                await asyncio.wait({task})
            if options.input is None:
                return self._prompt(options.instructions)
            return prompt(options.instructions or self._config.instructions, options.input)

        now = asyncio.get_running_loop().time()
        self._start_reply(options, messages, Work(), began_at=now).confirm()

    def _refuse_second_response(self, event_id: str | None, active: Reply) -> None:
        self._refuse(
            event_id,
            "conversation_already_has_active_response",
            f"Conversation already has an active response in progress: {active.plan.reply_id}. "
            f"Wait until the response is finished before creating a new one.",
        )

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
