"""A session that is recorded: its settings, commands, engine calls, ids and events go to a tape.

Words and audio of people are in these lines; nothing of it leaves the tape. Times (``at``) are
seconds since the session began, by the loop's clock.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, replace
from typing import Any

from pipeline.bus import Bus, Published
from pipeline.commands import AddItem, AppendAudio, Command, NoteDirection, SessionConfig
from pipeline.conversation.memory import Memory
from pipeline.echo.path import EchoWindow
from pipeline.echo.sent import ClientEcho
from pipeline.engines.stages import Stages
from pipeline.events import TurnUnderWay
from pipeline.hearing.client import EchoHearing, Hearing
from pipeline.items import AudioPart, MessageItem
from pipeline.recording.engine_calls import Recorder
from pipeline.recording.hearings import RecordedHearing
from pipeline.recording.plain import to_plain, to_plain_fields
from pipeline.recording.tape import Tape
from pipeline.recording.taped_stages import TapedConversation, taped_stages
from pipeline.session import LiveSession, Session
from pipeline.settings import SessionSettings

_numbers = itertools.count(1)


def session_name() -> str:
    """What a session is called in a recording: when it began, and a number."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{next(_numbers)}"


class SessionLog:
    """The lines of one session on a tape. Begins now."""

    def __init__(self, tape: Tape, name: str) -> None:
        self._tape = tape
        self._name = name
        self._began_at = asyncio.get_running_loop().time()

    def now(self) -> float:
        return asyncio.get_running_loop().time() - self._began_at

    def write(
        self, kind: str, at: float, fields: Callable[[], Mapping[str, Any]], audio_bytes: int = 0
    ) -> None:
        name = self._name
        self._tape.write(
            lambda: {"kind": kind, "session": name, "at": round(at, 6), **fields()}, audio_bytes
        )

    def begin(
        self,
        stages: Stages,
        config: SessionConfig,
        settings: SessionSettings,
        memory: Memory | None,
    ) -> None:
        """All that a replay has to know beforehand; ``memory``: of a conversation that goes on."""
        engines = {
            "window_samples": stages.vad.window_samples,
            "history_seconds": stages.turn.history_seconds,
            "streams": stages.stt.streams,
            "rate": stages.tts.rate,
            "voices": list(stages.tts.voices),
            "word_scales": {key: astuple(each) for key, each in stages.word_scales.items()},
        }
        # What the model has forgotten cannot matter to it.
        items = memory.chat.context if memory else ()
        told = {"config": config, "settings": settings, "items": items}
        size = sum(_audio_bytes(item) for item in items)
        self.write("session", 0.0, lambda: {**to_plain_fields(told), "engines": engines}, size)

    def command(self, command: Command) -> None:
        """A command is handed to the session."""
        if isinstance(command, AppendAudio):
            # What it hears is written down without the echo.
            command = replace(command, given=None)
        size = command.pcm.nbytes if isinstance(command, AppendAudio) else 0
        if isinstance(command, AddItem):
            size = _audio_bytes(command.item)
        self.write("command", self.now(), lambda: {"command": to_plain(command)}, size)

    def event(self, published: Published) -> None:
        """The session has published an event."""
        event = published.event
        if isinstance(event, TurnUnderWay):
            return  # its whole record follows
        at = published.at - self._began_at
        self.write("event", at, lambda: {"event": to_plain(event, audio=False)})

    def echo(self, window: EchoWindow) -> None:
        """A window is heard in which there may be an echo."""
        size = window.frame.pcm.nbytes * 2
        self.write("echo", self.now(), lambda: {"window": to_plain(window)}, size)

    def hears_itself(self, index: int, found: bool) -> None:
        """From the window at ``index`` on an echo is being taken off, or not any more."""
        self.write("hears_itself", self.now(), lambda: {"index": index, "found": found})

    def explains(self, index: int, explained: bool | None) -> None:
        """With the window at ``index`` it was asked whether an echo explains what is heard."""
        self.write("explains", self.now(), lambda: {"index": index, "explained": explained})

    def new_id(self, new_id: Callable[[str], str]) -> Callable[[str], str]:
        """The same source of ids, with each of them written down."""
        before = ""

        def told(prefix: str) -> str:
            nonlocal before
            kind, before = id_kind(prefix, before), prefix
            made = new_id(prefix)
            self.write("id", self.now(), lambda: {"of": kind, "id": made})
            return made

        return told

    def stop(self) -> None:
        """The session is told to end."""
        self.write("stop", self.now(), dict)

    def end(self) -> None:
        """The session is over."""
        self.write("end", self.now(), dict)


def id_kind(prefix: str, before: str) -> str:
    """What an id is for. An answer gets its own and its item's in one go, so that item's is known
    by the prefix of the id ``before`` it."""
    return f"{prefix} of {before}" if before == "resp" else prefix


def _audio_bytes(item: object) -> int:
    parts = item.parts if isinstance(item, MessageItem) else ()
    return sum(p.audio.pcm.nbytes for p in parts if isinstance(p, AudioPart) and p.audio)


class RecordedSession(Session):
    """A session that goes to a tape, too."""

    def __init__(
        self,
        tape: Tape,
        stages: Stages,
        config: SessionConfig,
        settings: SessionSettings,
        bus: Bus,
        new_id: Callable[[str], str],
        memory: Memory | None = None,
        hearing: Hearing | None = None,
    ) -> None:
        """As ``Session``. It begins now, and must be run at once."""
        self._recording = log = SessionLog(tape, session_name())
        log.begin(stages, config, settings, memory)
        calls = Recorder(log)
        if memory is not None:
            memory = Memory(memory.chat, TapedConversation(memory.conversation, calls))
        if hearing is None:
            hearing = EchoHearing(ClientEcho(stages.vad.window_samples), settings.echo)
        bus.tap(log.event)
        super().__init__(
            *(taped_stages(stages, calls), config, settings, bus, log.new_id(new_id), memory),
            RecordedHearing(hearing, log),
        )

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self._recording.end()

    def _close(self, live: LiveSession) -> None:
        # Ending takes a moment: this is when it began.
        self._recording.stop()
        super()._close(live)

    def offer(self, command: NoteDirection) -> None:
        self._recording.command(command)
        super().offer(command)

    async def submit(self, command: Command) -> None:
        self._recording.command(command)
        await super().submit(command)
