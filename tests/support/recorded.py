"""Sessions with scripted engines that are recorded, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pipeline.recording.reading import RecordedRun, read_recording
from pipeline.recording.writing import Recorder
from tests.support.scripted import Scene, scene
from tests.support.virtual_time import run_virtual

Play = Callable[[Scene], Awaitable[None]]
ABOUT = {"reachy_voice": "test"}


async def question(played: Scene) -> None:
    await played.say(1.0)
    await played.hear(6.0)


def record(folder: Path, play: Play, **engines: Any) -> Path:
    """The folder of the one session in which ``play`` happens."""
    known = set(folder.iterdir()) if folder.exists() else set()
    recorder = Recorder(folder, ABOUT)

    async def main() -> None:
        async with scene(recorder=recorder, **engines) as played:
            await play(played)

    run_virtual(main())
    recorder.close()
    [session] = set(folder.iterdir()) - known
    return session


def recorded(folder: Path, play: Play, **engines: Any) -> RecordedRun:
    [run] = read_recording(record(folder, play, **engines))
    return run
