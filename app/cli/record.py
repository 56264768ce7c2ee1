"""``--record FOLDER``: record sessions into a folder."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from app.compose import Assistant
from pipeline.engines.registry import CORE
from pipeline.recording.writing import Recorder

RecordOption = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="FOLDER",
        help="Keep all events and audio of each session in FOLDER.",
    ),
]


@contextmanager
def recording(
    assistant: Assistant, folder: Path | None, tell: Callable[[str], None]
) -> Iterator[None]:
    """Record sessions that start within the context into ``folder``, if given.

    Raises ``RecordingError`` if it cannot be written."""
    if folder is None:
        yield
        return
    about = {
        "reachy_voice": importlib.metadata.version("reachy-voice"),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "engines": {str(kind): assistant.describe(kind) for kind in CORE},
    }
    recorder = Recorder(folder, about)
    tell(f"Everything said is saved in {folder}, with its audio; only you can read it.")
    assistant.recorder = recorder
    try:
        yield
    finally:
        assistant.recorder = None
        recorder.close()
