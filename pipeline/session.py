"""A session: one listener, one conversation, and the replies to it.

Commands come in through one bounded inbox and are handled one after the other. Audio waits there
too, so a client that sends faster than the session listens is held back. Everything that a session
starts lives in its TaskGroup and ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pipeline import commands
from pipeline.audio import LISTEN_RATE
from pipeline.bus import Bus
from pipeline.context import SessionContext
from pipeline.conversation.chat import Chat
from pipeline.conversation.item_editor import ItemEditor
from pipeline.conversation.memory import LastingConversation, Memory
from pipeline.conversation.reply_prompts import ReplyPrompts
from pipeline.conversation.transcribing import Transcriber
from pipeline.conversation.warm_up import WarmUp
from pipeline.echo.path import Playback
from pipeline.engines.contract import WakeWord
from pipeline.engines.stages import Stages
from pipeline.events import DirectionHeard, InputCleared
from pipeline.hearing.arrivals import Arrivals
from pipeline.hearing.client import ClientHearing, Hearing
from pipeline.hearing.direction import Directions
from pipeline.hearing.listening import Listener
from pipeline.items import MessageItem, ToolServerItem
from pipeline.recording.writing import SessionRecording
from pipeline.settings import Notices, SessionSettings
from pipeline.speaking.announcements import AnnouncementEnd, Announcements
from pipeline.speaking.replies import Replies
from pipeline.speaking.reply_requests import ReplyRequests
from pipeline.telemetry.turn_recorder import TurnRecorder
from pipeline.tools.contract import NoToolServers, ToolServers
from pipeline.tools.server_tools import ServerTools
from pipeline.turn_taking.idle_timer import IdleTimer
from pipeline.turn_taking.input_buffer import InputBuffer
from pipeline.turn_taking.turns import Turns
from pipeline.waking.waking import Waking
from pipeline.work import CLIENT, new_client

INBOX_CAPACITY = 256
"""Commands that may wait. Pieces of audio are at most a second long, so this limits memory."""


class Session:
    """``run`` it in a task; ``submit`` commands; read the bus."""

    def __init__(
        self,
        stages: Stages,
        config: commands.SessionConfig,
        settings: SessionSettings,
        bus: Bus,
        new_id: Callable[[str], str],
        memory: Memory | None = None,
        hearing: Hearing | None = None,
        recording: SessionRecording | None = None,
        tool_servers: ToolServers | None = None,
        wake_word: WakeWord | None = None,
    ) -> None:
        """``new_id(prefix)`` returns a fresh id such as ``item_…``; ``memory``: of the session that
        this one resumes; ``hearing``: how the client is heard; ``recording`` gets its commands;
        ``tool_servers``: whose tools it may call; ``None``: there are none. ``wake_word`` hears the
        robot's call; ``None``: the call is recognised by its words (``settings.wake``)."""
        self._bus = bus
        self._recording = recording
        self._tasks = asyncio.TaskGroup()
        self._context = context = SessionContext(stages, config, settings, bus, self._tasks, new_id)
        self._memory = memory or Memory(Chat(), LastingConversation(stages))
        self._keeps_memory = False
        self._running = False
        self._inbox: asyncio.Queue[commands.Command] = asyncio.Queue(INBOX_CAPACITY)
        self._records = TurnRecorder(answers=config.answers)
        bus.derive(self._records.feed)

        self._arrivals = Arrivals()
        self._least_stall_s = settings.endpointing.stall_ms / 1000
        self._hearing = hearing or ClientHearing(stages.vad.window_samples, settings.echo)
        bus.tap(self._hearing.note)
        self._directions = Directions(settings.accept)
        self._listener = Listener(stages, self._hearing, context.endpointing, self._directions)

        chat = self._memory.chat
        self._editor = ItemEditor(context, chat)
        self._transcriber = Transcriber(context, chat, self._editor)
        prompts = ReplyPrompts(context, chat, self._transcriber)
        self._warm_up = WarmUp(context, self._memory, prompts)
        self._replies = Replies(
            context,
            self._memory,
            prompts,
            self._editor,
            self._warm_up,
            self._arrivals,
            lambda: self._running and not self._turns.busy,
        )
        self._announcements = Announcements(context, chat, self._replies, self._nobody_speaks)
        self._requests = ReplyRequests(context, chat, prompts, self._replies)
        self._waking: Waking | None = None
        if settings.wake.mode != "always":
            self._waking = Waking(
                context,
                self._listener,
                self._directions,
                self._memory,
                wake_word,
                lambda signals, floor: self._turns.follow_call(signals, floor),
                lambda: self._replies.unheard_s,
                lambda: self._turns.busy or not self._replies.idle or self._tools.busy,
            )
        self._turns = Turns(
            context,
            self._listener,
            self._directions,
            self._replies,
            self._transcriber,
            self._warm_up,
            self._waking,
        )
        self._buffer = InputBuffer(
            context, self._listener, self._turns, self._transcriber, self._replies
        )
        self._tools = ServerTools(
            context,
            chat,
            self._editor,
            self._replies,
            tool_servers or NoToolServers(),
            self._warm_up.prompt_changed,
            lambda: self._turns.busy,
        )
        self._idle_timer = IdleTimer(
            context,
            self._listener,
            self._editor,
            self._replies,
            lambda: self._turns.busy or self._tools.busy or self._shall_sleep,
        )

    @property
    def asleep(self) -> bool:
        """Whether only a call or a touch is noticed."""
        return self._turns.asleep

    @property
    def _shall_sleep(self) -> bool:
        """Whether the robot is asleep, or soon will be: nobody has answered its prompt yet."""
        return self._waking is not None and (self.asleep or self._idle_timer.alone)

    @property
    def notices(self) -> Notices:
        """The server's own sentences, in the language of the session."""
        return self._context.notices

    @property
    def language(self) -> str:
        """The language of the conversation, ISO 639-1; empty: not known."""
        return self._context.language

    @property
    def chat(self) -> Chat:
        return self._memory.chat

    # -- life

    async def run(self) -> None:
        """Live until cancelled."""
        CLIENT.set(CLIENT.get() or new_client())
        try:
            async with self._tasks:
                self._running = True
                try:
                    self._begin()
                    while True:
                        await self._next()
                finally:
                    self._end()
        finally:
            self._listener.close()
            self._hearing.close()
            if not self._keeps_memory:
                self._memory.close()
            if self._recording:
                self._recording.end()

    def _begin(self) -> None:
        self._tools.configure(self._context.asked)
        self._context.check_language()
        if self._waking:
            self._waking.begin()
        self._warm_up.prompt_changed()
        self._announcements.open()
        for item in self.chat.items:
            # A resumed conversation may have items that were not transcribed in time.
            if isinstance(item, MessageItem):
                self._transcriber.read(item)

    def _end(self) -> None:
        """End all replies and all work done in idle time."""
        self._running = False
        if self._waking:
            self._waking.end()
        self._warm_up.close()
        self._tools.close()
        self._replies.close()
        self._announcements.close()
        self._idle_timer.stop()
        for record in self._records.close(asyncio.get_running_loop().time()):
            self._bus.publish(record)

    def release(self) -> Memory:
        """Hand over the memory before ``run`` ends, so that it is not closed. Replies still running
        write their end into it."""
        self._keeps_memory = True
        return self._memory

    async def submit(self, command: commands.Command) -> None:
        """Submit a command; waits while the inbox is full."""
        if self._recording:
            self._recording.command(_unheard(command) if self.asleep else command)
        if not isinstance(command, commands.AppendAudio):
            await self._inbox.put(command)
            return
        rate, now = command.rate, asyncio.get_running_loop().time()
        self._arrivals.note(len(command.pcm) / rate, now)
        for start in range(0, len(command.pcm), rate):
            end = start + rate
            piece = replace(
                command,
                pcm=command.pcm[start:end],
                reference=None if command.reference is None else command.reference[start:end],
                reference_moved=command.reference_moved if start == 0 else None,
            )
            await self._inbox.put(piece)

    def offer(self, command: commands.NoteDirection) -> None:
        """Submit a direction without waiting; it is dropped while the inbox is full."""
        if self._recording:
            self._recording.command(command)
        if not self._inbox.full():
            self._inbox.put_nowait(command)

    @property
    def echo_delay_ms(self) -> int | None:
        """How long after being sent an answer comes back through the microphone; ``None``: no echo
        is known."""
        return self._hearing.delay_ms

    def set_player_lag(self, seconds: float) -> None:
        """Set how long after being sent audio is heard, from the next answer on."""
        self._context.player_lag_s = seconds

    async def quiet(self) -> None:
        """Wait until no reply is being given."""
        await self._replies.quiet.wait()

    @property
    def attentive(self) -> bool:
        """Whether a turn is open, or the newest sound may begin one."""
        return self._turns.busy or (self._may_hear_speech and not self.asleep)

    def notify(self, sentence: str) -> bool:
        """Say a sentence of the server's own. False if it would interrupt: the user speaks or waits
        for an answer, or the client asks for every answer itself."""
        config = self._context.config
        if not (self._running and sentence and config.answers_turns and config.modality == "audio"):
            return False
        if self._turns.busy or not self._replies.idle:
            return False
        self._replies.notify(sentence)
        return True

    @property
    def announces(self) -> bool:
        """Whether announcements can be made."""
        return self._announcements.possible

    async def announce(self, text: str, until: float) -> AnnouncementEnd:
        """Say ``text`` in the next pause, if one comes before ``until``, in the loop's time."""
        return await self._announcements.say(text, until)

    def _nobody_speaks(self) -> bool:
        may_speak = self._turns.busy or self._may_hear_speech  # even if the robot is asleep
        return self._running and not may_speak and self._buffer.resting

    @property
    def _may_hear_speech(self) -> bool:
        """Whether the newest sound may be speech, if turns are detected."""
        return self._context.config.turn_detection is not None and self._listener.may_be_speech

    def model_exchanged(self) -> None:
        """The language model was replaced; the new one has read nothing yet."""
        if self._running:
            self._warm_up.prompt_changed()

    def tools_changed(self) -> None:
        """The tools of the owner's tool servers have changed."""
        if self._running:
            self._tools.refresh()

    # -- commands

    async def _next(self) -> None:
        """Handle the next command, or feed silence if the client stalls in what may be speech."""
        awaits_audio = self._turns.open or self._turns.awaits_sound or self._may_hear_speech
        try:
            async with asyncio.timeout_at(self._arrivals.due if awaits_audio else None):
                command = await self._inbox.get()
        except TimeoutError:
            await self._miss_audio()
        else:
            await self._handle(command)

    async def _miss_audio(self) -> None:
        """A muted or stalled client sends nothing: the clock feeds silence, so its turn ends."""
        silence_s = self._arrivals.miss(self._least_stall_s, asyncio.get_running_loop().time())
        if samples := round(silence_s * LISTEN_RATE):
            self._listener.assume_silence(samples)
            await self._turns.hear(np.zeros(samples, np.int16))
            self._announcements.look()

    async def _handle(self, command: commands.Command) -> None:
        match command:
            case commands.AppendAudio():
                await self._hear(command)
                self._arrivals.expect(self._least_stall_s, asyncio.get_running_loop().time())
            case commands.NoteDirection():
                self._note_direction(command)
            case commands.Configure():
                self._configure(command.config)
            case commands.WakeUp():
                if self._waking:
                    self._waking.touch()
            case commands.CommitAudio():
                self._buffer.commit(command)
            case commands.ClearAudio():
                self._buffer.clear()
                self._turns.drop_ended()
                self._bus.publish(InputCleared())
            case commands.AddItem():
                self._add_item(command)
            case commands.DeleteItem():
                self._editor.delete(command)
            case commands.RetrieveItem():
                self._editor.retrieve(command)
            case commands.TruncateItem():
                self._editor.truncate(command, self._replies.truncate)
            case commands.CreateResponse() if self._tools.has_asked(command):
                pass
            case commands.CreateResponse(options):
                if options.in_conversation and options.input is None:
                    self._editor.answer_asked()
                self._requests.create(command)
            case commands.CancelResponse():
                waited = self._tools.interrupt(command.response_id)
                if self._replies.speaking or not waited:
                    self._requests.cancel(command)
                if not self._replies.speaking:
                    self._turns.take_overlap_as_turn()  # there is no answer to overlap any more
        self._announcements.look()

    def _configure(self, config: commands.SessionConfig) -> None:
        heard_as, before = self._context.endpointing, self._context.config
        self._tools.configure(config)
        config = self._context.config
        self._context.check_language()
        if (config.turn_detection is None) != (before.turn_detection is None):
            self._buffer.switch()
        if self._context.endpointing != heard_as:
            self._listener.configure(self._context.endpointing)
        if config.turn_detection != before.turn_detection:
            self._idle_timer.restart()
        self._turns.reconfigure()
        if self._waking:
            self._waking.reconfigure()
        if (config.instructions, config.tools) != (before.instructions, before.tools):
            self._warm_up.prompt_changed()

    def _add_item(self, command: commands.AddItem) -> None:
        item = command.item
        if isinstance(item, ToolServerItem):
            self._tools.answer_approval(command, item)
        elif isinstance(item, MessageItem) and item.unread and self._transcriber.busy:
            message = "Too many recordings wait to be transcribed; wait for the completed events."
            self._context.refuse(command.event_id, "input_audio_buffer_commit_busy", message)
        elif self._editor.add(command) and isinstance(item, MessageItem):
            self._transcriber.read(item)

    def _note_direction(self, command: commands.NoteDirection) -> None:
        self._directions.note(command.direction, asyncio.get_running_loop().time())
        self._bus.publish(DirectionHeard(command.direction))

    async def _hear(self, command: commands.AppendAudio) -> None:
        pcm = self._listener.resample(command.pcm, command.rate)
        if self._context.config.turn_detection:
            played = Playback(command.reference, command.reference_moved)
            await self._turns.hear(pcm, played)  # lets other tasks run between windows
            return
        await asyncio.sleep(0)
        self._buffer.append(command, pcm)


def _unheard(command: commands.Command) -> commands.Command:
    """The command as it is recorded: what is heard while asleep is not kept."""
    if not isinstance(command, commands.AppendAudio):
        return command
    return replace(command, pcm=np.zeros_like(command.pcm), reference=None, reference_moved=None)
