"""Scenes with scripted engines that are recorded on a tape, for tests in virtual time."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from pipeline.audio import AudioFormat
from pipeline.bus import Bus, Published
from pipeline.commands import SessionConfig
from pipeline.conversation.memory import Memory
from pipeline.engines.stages import Stages, VadStage
from pipeline.recording.reading import HeldSession, read_file
from pipeline.recording.recorded import RecordedSession
from pipeline.recording.tape import Tape
from pipeline.settings import SessionSettings
from tests.support.lexicons import with_words
from tests.support.scripted import (
    LevelVad,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
)
from tests.support.virtual_time import run_virtual

VOICE = SessionConfig(instructions="Be brief.", output_format=AudioFormat(rate=16_000))


class Kept(io.BytesIO):
    """A file whose bytes outlive it."""

    content = b""

    def close(self) -> None:
        if not self.closed:
            self.content = self.getvalue()
        super().close()


@asynccontextmanager
async def recorded_scene(
    tape: Tape,
    *,
    config: SessionConfig = VOICE,
    settings: SessionSettings | None = None,
    turn: ScriptedTurn | None = None,
    stt: ScriptedStt | None = None,
    llm: ScriptedLlm | None = None,
    tts: ScriptedTts | None = None,
    memory: Memory | None = None,
    numbers: Callable[[], int] | None = None,
    vad: VadStage | None = None,
) -> AsyncIterator[Scene]:
    """As ``scripted.scene``, with the session on a tape."""
    stages = Stages(
        vad or LevelVad(),
        turn or ScriptedTurn(),
        stt or ScriptedStt(),
        llm or ScriptedLlm(),
        tts or ScriptedTts(),
    )
    bus, log = Bus(), list[Published]()
    bus.tap(log.append)
    count = numbers or itertools.count(1).__next__
    session = RecordedSession(
        tape,
        stages,
        config,
        with_words(settings),
        bus,
        lambda prefix: f"{prefix}_{count()}",
        memory,
    )
    running = asyncio.create_task(session.run())
    try:
        played = Scene(session, log, stages, asyncio.get_running_loop())
        await played.settle()
        yield played
    finally:
        running.cancel()
        await asyncio.wait({running})


Play = Callable[[Tape], Awaitable[None]]


def record(path: Path, play: Play, file: BinaryIO | None = None) -> None:
    """Play something in virtual time with a tape into ``path``."""
    kept = Kept()
    tape = Tape(file or kept, {"reachy_voice": "test"})

    async def main() -> None:
        await play(tape)

    try:
        run_virtual(main())
    finally:
        tape.close()
    path.write_bytes(kept.content)


def recorded(path: Path, play: Play) -> HeldSession:
    """The one session that ``play`` has recorded."""
    record(path, play)
    held = read_file(path)
    assert held.problems == []
    [session] = held.sessions.values()
    return session
