"""``--record FILE``: what is said to a server goes into a file, for ``reachy-voice replay``."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from app.compose import Assistant
from pipeline.engines.registry import Kind
from pipeline.recording.tape import open_tape

RecordOption = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="FILE",
        help="Keep everything that is said, with its audio, in FILE, for reachy-voice replay.",
    ),
]


@contextmanager
def recording(
    assistant: Assistant, file: Path | None, tell: Callable[[str], None]
) -> Iterator[None]:
    """Sessions that begin within the context are recorded into ``file``, if there is one.

    Raises ``RecordingError`` if it cannot be written."""
    if file is None:
        yield
        return
    header = {
        "reachy_voice": importlib.metadata.version("reachy-voice"),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "engines": {str(kind): assistant.describe(kind) for kind in Kind},
    }
    tape = open_tape(file, header)
    tell(f"Everything that is said is kept in {file}, with its audio; only you can read it.")
    assistant.tape = tape
    try:
        yield
    finally:
        assistant.tape = None
        tape.close()
