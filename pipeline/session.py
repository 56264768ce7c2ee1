"""A session: one listener, one conversation, and the replies to it.

Commands come in through one bounded inbox and are handled one after the other; audio waits there
too, so a client that sends faster than we listen is held back. Everything that a session starts
lives in its TaskGroup and ends with it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable

import numpy as np

from pipeline.audio import LISTEN_RATE, Recording
from pipeline.bus import Bus
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
    NoteDirection,
    RetrieveItem,
    SessionConfig,
    TruncateItem,
)
from pipeline.conversation.chat import Chat
from pipeline.conversation.item_commands import ItemCommands
from pipeline.conversation.lasting_conversation import LastingConversation
from pipeline.conversation.memory import Memory
from pipeline.conversation.transcribing import Transcriber
from pipeline.conversation.user_speech import UserSpeech
from pipeline.conversation.warm_up import WarmUp
from pipeline.echo.sent import ClientEcho
from pipeline.engines.stages import Stages
from pipeline.events import DirectionHeard, IdleTimeout, InputCleared, Refused, TranscriptReady
from pipeline.hearing.arrivals import Arrivals
from pipeline.hearing.client import EchoHearing, Hearing
from pipeline.hearing.direction import Directions
from pipeline.hearing.listening import Listener, SpeechScores
from pipeline.hearing.recognition import Recognition
from pipeline.inbox import Inbox, PushToTalkBuffer
from pipeline.items import AudioPart, MessageItem
from pipeline.settings import Endpointing, SessionSettings
from pipeline.speaking.replies import Replies
from pipeline.speaking.reply import Reply
from pipeline.telemetry.turn_recorder import TurnRecorder
from pipeline.turn_taking.idle import IdleTimer
from pipeline.turn_taking.user_turn import UserTurn
from pipeline.turn_taking.voice_turns import VoiceTurns
from pipeline.work import CLIENT

log = logging.getLogger("reachy_voice.session")

_numbers = itertools.count(1)

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
        memory: Memory | None = None,
        hearing: Hearing | None = None,
    ) -> None:
        """``new_id(prefix)`` gives a fresh id such as ``item_…``; ``memory`` is that of a session
        that this one goes on with; ``hearing``: through which the client is heard."""
        self._memory = memory or Memory(Chat(), LastingConversation(stages))
        self._keeps_memory = False
        self._stages = stages
        self._config = config
        self._settings = settings
        self._bus = bus
        self._new_id = new_id
        self._records = TurnRecorder(answers=config.answers)
        bus.derive(self._records.feed)
        self._hearing = hearing or EchoHearing(ClientEcho(stages.vad.window_samples), settings.echo)
        bus.tap(self._hearing.note)
        self._inbox = Inbox()
        self._arrivals = Arrivals()
        self._live: LiveSession | None = None
        """Set while ``run`` follows commands."""

    @property
    def chat(self) -> Chat:
        return self._memory.chat

    async def run(self) -> None:
        """Live until cancelled."""
        CLIENT.set(next(_numbers))
        directions = Directions(self._settings.accept)
        scores = await SpeechScores.open(self._stages, directions)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._live = LiveSession(
                    self._memory,
                    self._hearing,
                    self._arrivals,
                    directions,
                    scores,
                    self._stages,
                    self._config,
                    self._settings,
                    self._bus,
                    tasks,
                    self._new_id,
                )
                try:
                    await self._live.follow(self._inbox)
                finally:
                    self._live.close()
                    self._live = None
                    for record in self._records.close(asyncio.get_running_loop().time()):
                        self._bus.publish(record)
        finally:
            scores.close()
            self._hearing.close()
            if not self._keeps_memory:
                self._memory.close()

    def release(self) -> Memory:
        """Hand the memory over, before ``run`` ends: it is not closed then. What runs still writes
        its end into it."""
        self._keeps_memory = True
        return self._memory

    async def submit(self, command: Command) -> None:
        """Hand a command over; waits while the inbox is full."""
        if isinstance(command, AppendAudio):
            now = asyncio.get_running_loop().time()
            self._arrivals.note(len(command.pcm) / command.rate, now)
        await self._inbox.put(command)

    def offer(self, command: NoteDirection) -> None:
        """Hand a direction over, at once; it is lost while the inbox is full."""
        self._inbox.offer(command)

    @property
    def echo_delay_ms(self) -> int | None:
        """How long after it is sent an answer comes back through the microphone; ``None`` as long
        as none is known to."""
        return self._hearing.delay_ms

    async def quiet(self) -> None:
        """Wait until no reply is being given."""
        if self._live:
            await self._live.replies.quiet.wait()

    def notify(self, sentence: str) -> bool:
        """Say something in our own name. False if it would interrupt: the user speaks or is owed
        an answer, or the client asks for every answer itself."""
        return self._live is not None and self._live.notify(sentence)

    def model_exchanged(self) -> None:
        """There is another language model, which has read nothing yet."""
        if self._live:
            self._live.model_exchanged()


class LiveSession:
    """The parts of a session that runs, all built here, and what becomes of each command."""

    def __init__(
        self,
        memory: Memory,
        hearing: Hearing,
        arrivals: Arrivals,
        directions: Directions,
        scores: SpeechScores,
        stages: Stages,
        config: SessionConfig,
        settings: SessionSettings,
        bus: Bus,
        tasks: asyncio.TaskGroup,
        new_id: Callable[[str], str],
    ) -> None:
        self._stages = stages
        self._config = config
        self._settings = settings
        self._bus = bus
        self._tasks = tasks
        self._new_id = new_id
        self._hearing = hearing
        self._directions = directions
        chat = memory.chat
        self._transcriber = Transcriber(stages, chat, bus, tasks)
        self.replies = Replies(
            *(memory, stages, config, settings, self._transcriber, bus, tasks, new_id),
            *(arrivals, self._reply_starts, self._reply_ended),
        )
        self._warm_up = WarmUp(memory, self.replies.prompts, tasks)
        self._speech = UserSpeech(
            chat, bus, self._transcriber, settings.max_items, new_id, self._committing
        )
        self._items = ItemCommands(chat, bus, settings.max_items, self.replies.truncate)
        self._listener = Listener(scores, hearing, stages.turn.history_seconds, self._endpointing())
        self._turns = VoiceTurns(
            *(self._listener, hearing, directions, stages, self.replies, self._speech),
            *(self._warm_up, bus, tasks, new_id, settings),
        )
        limit = int(settings.endpointing.max_utterance_s * LISTEN_RATE)
        self._buffer = PushToTalkBuffer(limit)
        self._overflowed = False
        """Whether a piece of what was appended last did not fit; then the rest is left out."""
        stall_samples = settings.endpointing.stall_ms * LISTEN_RATE // 1000
        self._stall_silence = np.zeros(stall_samples, dtype=np.int16)
        self._idle = IdleTimer(self._nobody_speaks)
        self._idle_since_ms = 0
        self._ending = False
        self._configure_turns()
        self._warm_up.begin()
        for item in chat.items:
            # Of a conversation that goes on, whose client was lost before it was read.
            if isinstance(item, MessageItem):
                self._transcriber.read(item)

    # -- life

    async def follow(self, inbox: Inbox) -> None:
        """Handle commands one after the other, until cancelled."""
        while True:
            if command := await self._next_command(inbox):
                await self._handle(command)
            else:
                await self._turns.hear(self._stall_silence)

    def close(self) -> None:
        """End every reply and what runs in idle time."""
        self._ending = True
        self._idle.disarm()
        self.replies.close()
        self._warm_up.cancel()

    def notify(self, sentence: str) -> bool:
        """See ``Session.notify``."""
        config, detection = self._config, self._config.turn_detection
        if not (sentence and config.answers and config.modality == "audio"):
            return False
        if not (detection and detection.create_response):
            return False
        if self._turns.open or self._turns.ending or not self.replies.idle:
            return False
        self.replies.notify(sentence)
        return True

    def model_exchanged(self) -> None:
        """See ``Session.model_exchanged``."""
        self._warm_up.due = True
        if self.replies.quiet.is_set():
            self._warm_up.begin()

    async def _next_command(self, inbox: Inbox) -> Command | None:
        """The next command; ``None`` when a client stalls in the middle of its turn."""
        if not (self._turns.open or self._turns.suspecting):
            return await inbox.get()
        # A muted or stalled client sends nothing: the clock feeds silence, so its turn still ends.
        # An array goes on to tell of directions then.
        now = asyncio.get_running_loop().time
        until = now() + len(self._stall_silence) / LISTEN_RATE
        while isinstance(command := await inbox.get_within(until - now()), NoteDirection):
            await self._handle(command)
        return command

    async def _handle(self, command: Command) -> None:
        match command:
            case AppendAudio():
                await self._hear(command)
            case NoteDirection():
                self._directions.note(command.direction, asyncio.get_running_loop().time())
                self._bus.publish(DirectionHeard(command.direction))
            case Configure():
                self._configure(command.config)
            case CommitAudio():
                self._commit(command)
            case ClearAudio():
                self._clear_input()
                self._turns.drop_ended()
                self._settle()
                self._bus.publish(InputCleared())
            case AddItem():
                self._add_item(command)
            case DeleteItem() | RetrieveItem() | TruncateItem():
                self._items.carry_out(command)
            case CreateResponse():
                self.replies.create(command)
            case CancelResponse():
                self.replies.cancel_asked(command)
                if not self.replies.speaking:
                    self._turns.claim()  # it is not over an answer any more

    def _refuse(self, event_id: str | None, code: str, message: str) -> None:
        self._bus.publish(Refused(event_id, code, message))

    # -- configuration

    def _configure(self, config: SessionConfig) -> None:
        before, self._config = self._config, config
        self.replies.prompts.config = config
        if (config.turn_detection is None) != (before.turn_detection is None):
            self._clear_input()
            self._settle()
        if config.turn_detection != before.turn_detection:
            self._listener.configure(self._endpointing())
            if self._idle.disarm():
                self._count_silence(0)
        self._configure_turns()
        if (config.instructions, config.tools) != (before.instructions, before.tools):
            self._warm_up.begin()

    def _configure_turns(self) -> None:
        self._transcriber.language = self._config.language
        self._turns.configure(self._endpointing(), self._config)

    def _endpointing(self) -> Endpointing:
        """The YAML's endpointing, with what the client asked for on top."""
        ours, asked = self._settings.endpointing, self._config.turn_detection
        return asked.over(ours) if asked else ours

    # -- replies

    def _reply_starts(self) -> None:
        self._warm_up.cancel()

    def _reply_ended(self, reply: Reply) -> None:
        if self._ending:
            return
        self._settle()
        if self.replies.quiet.is_set() and (self._warm_up.due or reply.confirmed):
            # It has taken a warm-up's place; or there is an answer that was not read yet.
            self._warm_up.begin()
        if reply.plan.in_conversation and reply.confirmed and not reply.failed:
            self._count_silence(reply.unheard_s)

    def _settle(self) -> None:
        if not (self._turns.open or self._turns.ending):
            self.replies.settle()

    def _count_silence(self, from_s: float) -> None:
        """``from_s``: when silence begins, in seconds from now."""
        detection = self._config.turn_detection
        if detection and detection.idle_timeout_ms and not self.replies.speaking:
            self._idle_since_ms = self._heard_ms + round(from_s * 1000)
            self._idle.arm(from_s + detection.idle_timeout_ms / 1000)

    def _nobody_speaks(self) -> None:
        if self.replies.speaking:
            return  # it is counted from its end
        if self._turns.open or self._turns.ending:
            self._count_silence(0)
            return
        item_id = self._new_id("item")
        end_ms = max(self._idle_since_ms, self._heard_ms)
        self._bus.publish(IdleTimeout(item_id, self._idle_since_ms, end_ms))
        silence = AudioPart("", (end_ms - self._idle_since_ms) / 1000)
        self._speech.commit_part(item_id, silence)
        self._bus.publish(TranscriptReady(item_id, "", silence.seconds))
        self.replies.break_silence()

    @property
    def _heard_ms(self) -> int:
        return self._listener.heard_end * 1000 // LISTEN_RATE

    # -- audio in

    async def _hear(self, command: AppendAudio) -> None:
        pcm = self._listener.resample(command.pcm, command.rate)
        if command.begins:
            self._overflowed = False
        if self._config.turn_detection:
            if command.given is not None:
                self._hearing.given(command.given, command.given_moved)
            await self._turns.hear(pcm)  # lets others in between two windows
            return
        await asyncio.sleep(0)
        if not self._overflowed and not self._buffer.append(pcm):
            self._overflowed = True
            self._refuse(
                command.event_id,
                "input_audio_buffer_full",
                "The input audio buffer is full: commit or clear it before you send more.",
            )

    def _clear_input(self) -> None:
        self._listener.end_of_input()
        self._buffer.clear()
        self._turns.drop()
        self._warm_up.said = ""

    def _commit(self, command: CommitAudio) -> None:
        if self._config.turn_detection is None:
            self._buffer.append(self._listener.end_of_input())
        if self._transcriber.busy:
            message = "Too many commits wait to be transcribed; wait for the completed events."
            self._refuse(command.event_id, "input_audio_buffer_commit_busy", message)
        elif turn := self._turns.take():
            self._commit_turns(turn)
        elif (held_ms := self._buffer.samples * 1000 / LISTEN_RATE) < MIN_COMMIT_MS:
            message = (
                f"Error committing input audio buffer: buffer too small. Expected at least "
                f"{MIN_COMMIT_MS}ms of audio, but buffer only has {held_ms:.2f}ms of audio."
            )
            self._refuse(command.event_id, "input_audio_buffer_commit_empty", message)
        else:
            audio = Recording(self._buffer.take(), LISTEN_RATE)
            recognition = Recognition(self._stages, self._config.language)
            recognition.append(audio.pcm)
            recognising = self._tasks.create_task(recognition.run())
            self._commit_turns()
            self._speech.commit(self._new_id("item"), audio, recognition, recognising)

    def _commit_turns(self, *last: UserTurn) -> None:
        """In the order in which they were spoken. The client asks for answers itself."""
        self.replies.let_go()
        for turn in (*self._turns.take_ended(), *last):
            self._speech.commit(turn.item_id, turn.audio, turn.recognition, turn.recognising)

    def _committing(self) -> None:
        self._idle.disarm()
        self._warm_up.said = ""

    def _add_item(self, command: AddItem) -> None:
        spoken = isinstance(command.item, MessageItem) and command.item.unread
        if spoken and self._transcriber.busy:
            message = "Too many recordings wait to be transcribed; wait for the completed events."
            self._refuse(command.event_id, "input_audio_buffer_commit_busy", message)
        elif not self._items.carry_out(command):
            return
        elif isinstance(command.item, MessageItem):
            self._transcriber.read(command.item)
        elif self.replies.quiet.is_set():
            # What a tool has said is read before the client asks for an answer to it.
            self._warm_up.begin()
