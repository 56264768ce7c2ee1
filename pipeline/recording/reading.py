"""Reads what ``writing`` has written, complete or not."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import soxr

from pipeline.audio import Pcm, pcm_to_bytes
from pipeline.commands import Command, SessionConfig
from pipeline.events import Event
from pipeline.items import Item
from pipeline.recording.plain import RecordingError, can_read, from_plain
from pipeline.recording.writing import FORMAT, LINES, WAV_HEADER_BYTES
from pipeline.turn_record import TurnRecord

EXCERPT_RATE = 24_000


@dataclass(slots=True)
class RecordedRun:
    """One recorded session."""

    name: str
    version: str
    config: SessionConfig
    items: tuple[Item, ...]
    """The conversation that it resumed."""
    steps: list[tuple[float, Command | Event]] = field(default_factory=list)
    """Commands, and the events that a replay needs, in order, with seconds since the session
    began."""
    records: list[tuple[float, TurnRecord]] = field(default_factory=list)
    whole: bool = False
    """Whether the end was recorded."""
    last_at: float = 0.0


def read_recording(folder: Path) -> list[RecordedRun]:
    """The sessions in ``folder``, earliest first; it may also be the folder of one session. Raises
    ``RecordingError``."""
    if folder.is_file():
        raise _not_played(folder)
    if (folder / LINES).exists():
        return [_read(folder)]
    inner = sorted((path.parent for path in folder.glob(f"*/{LINES}")), key=_when)
    if not inner:
        raise RecordingError(
            f"There is no recorded session in {folder}",
            why="no client has talked to that server" if folder.is_dir() else "No such folder",
            fix="Record one: reachy-voice serve --record FOLDER",
        )
    return [_read(each) for each in inner]


def _when(folder: Path) -> tuple[str, int]:
    began, _, number = folder.name.rpartition("-")
    return began, int(number) if number.isdigit() else 0


def _not_played(file: Path) -> RecordingError:
    with file.open("rb") as lines:
        first = lines.read(64)
    if first.startswith(b'{"kind":"file",'):
        why = "it was recorded before recordings were folders"
        fix = "Replay it with the version of reachy-voice that recorded it (its first line)"
    else:
        why, fix = "it is a file", "Name the folder that was given to --record"
    return RecordingError(f"{file} cannot be played", why=why, fix=fix)


def _read(folder: Path) -> RecordedRun:
    try:
        with (folder / LINES).open("rb") as file:
            lines = [line for line in map(_parsed, file) if line is not None]
    except OSError as error:
        why = error.strerror or str(error)
        raise RecordingError(f"Cannot read {folder}", why=why, fix="Name another one") from error
    if not lines or lines[0].get("format") != FORMAT:
        found = lines[0].get("format") if lines else "none"
        raise RecordingError(
            f"{folder} cannot be played",
            why=f"its format is {found}, and this version reads {FORMAT}",
            fix="Replay it with the version of reachy-voice that recorded it (its first line)",
        )
    head = lines[0]
    try:
        config, items = from_plain(head["config"]), from_plain(head["items"])
        run = RecordedRun(folder.name, str(head.get("reachy_voice", "unknown")), config, items)
        for line in lines[1:]:
            _take(run, folder, line)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordingError(
            f"{folder / LINES} is damaged",
            why=f"{type(error).__name__}: {error}",
            fix="Remove the lines that were changed, or replay another session",
        ) from error
    return run


def _parsed(text: bytes) -> dict[str, Any] | None:
    """A line as data; ``None`` if it is incomplete because the server was killed."""
    try:
        line = json.loads(text.decode("utf-8", "surrogatepass"))
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _take(run: RecordedRun, folder: Path, line: Mapping[str, Any]) -> None:
    at = run.last_at = float(line["at"])
    run.whole |= "end" in line
    plain = line.get("command") or line.get("event")
    if not plain or ("event" in line and not can_read(plain)):
        return
    step = from_plain(plain)
    if isinstance(step, TurnRecord):
        run.records.append((at, step))
        return
    if "audio" in line:
        step = replace(step, pcm=_samples(folder, **line["audio"]))
    run.steps.append((at, step))


def _samples(folder: Path, file: str, start: int, count: int) -> Pcm:
    try:
        offset = WAV_HEADER_BYTES + 2 * start
        sound = folder / Path(file).name  # always in this folder, whatever a line says
        return np.fromfile(sound, "<i2", count, offset=offset).astype(np.int16)
    except OSError as error:
        raise RecordingError(
            f"Cannot read {folder / file}", why=error.strerror or str(error), fix="Restore it"
        ) from error


def excerpt(folder: Path, start_s: float, end_s: float) -> bytes:
    """A WAV file of part of a session, in seconds since it began: input left, output right, 24 kHz.
    Raises ``RecordingError``."""
    both = np.zeros((round((end_s - start_s) * EXCERPT_RATE), 2), np.int16)
    for channel, which in enumerate(("heard", "sent")):
        for path in sorted(folder.glob(f"{which}-*.wav")):
            rate = int(path.stem.rpartition("-")[2])
            pcm = _samples(
                folder, path.name, round(start_s * rate), round((end_s - start_s) * rate)
            )
            if rate != EXCERPT_RATE:
                pcm = soxr.resample(pcm, rate, EXCERPT_RATE)
            # After a change of rate the session goes on in another file; the first is silent then.
            both[: len(pcm), channel] |= pcm[: len(both)]
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setparams((2, 2, EXCERPT_RATE, 0, "NONE", ""))
        written.writeframes(pcm_to_bytes(both.reshape(-1)))
    return file.getvalue()
