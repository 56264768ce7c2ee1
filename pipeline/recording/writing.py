"""Records sessions into a folder, with one subfolder per session:

    session.jsonl      first the session's initial state, then each command and event with its time
                       (``at``, seconds since the session began); turn records are among the events
    heard-24000.wav    what the client sent, int16 mono, at the rate in the name
    sent-24000.wav     what the client received

Both sounds share the session's timeline, so they can be played side by side. These files contain
people's words and voices: only their owner can read them.

The event loop only queues data; a thread writes it. If the disk is full or too slow, recording
stops with a warning, and the conversations go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from queue import Full, Queue
from typing import Any, BinaryIO

from pipeline.audio import EMPTY, WAV_HEADER_BYTES, Pcm, pcm_to_bytes, wav_header
from pipeline.bus import Bus, Published
from pipeline.commands import AppendAudio, Command, SessionConfig
from pipeline.conversation.memory import Memory
from pipeline.events import RecordingBegun, ReplyAudio, TurnUnderWay
from pipeline.items import Item
from pipeline.recording.plain import RecordingError, to_plain

log = logging.getLogger("reachy_voice.recording")

FORMAT = 2
"""Raised whenever a program that read older recordings could not read new ones."""

LINES = "session.jsonl"

_numbers = itertools.count(1)

MOST_WAITING = 20_000
"""Most queued writes. A conversation makes about 100 a second."""
MOST_WAITING_BYTES = 64 * 1024 * 1024
"""Most audio in the queue. A client may send 15 MiB at once."""

MOST_WAV_BYTES = 2**32 - 1024
"""RIFF sizes have 32 bits: a day of sound at 24 kHz."""

CLOSE_S = 5.0
"""How long a hanging disk may delay the program's exit."""

PAUSE_S = 0.5
"""A longer gap before a sound is a pause; a shorter one is jitter."""


class Recorder:
    """Writes in a thread, until ``close``."""

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        """``about``: added to the first line of each session. Raises ``RecordingError``."""
        self.problem: str | None = None
        """Why recording has stopped."""
        self._folder = folder
        self._about = about
        self._open: set[SessionFiles] = set()
        """Used by the thread only."""
        self._writes: Queue[tuple[Callable[[], None], int] | None] = Queue(MOST_WAITING)
        self._queued_bytes = 0
        self._written_bytes = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_record(folder, error.strerror or str(error)) from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise _cannot_record(folder, "it cannot be written to")
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()

    def begin(self, config: SessionConfig, items: tuple[Item, ...]) -> SessionFiles:
        """Begin to record a session. ``items``: the conversation that it resumes."""
        date = time.strftime("%Y%m%d-%H%M%S")
        files = SessionFiles(self._folder / f"{date}-{os.getpid()}-{next(_numbers)}")
        head = {"format": FORMAT, **self._about, "config": config, "items": items}

        def begin() -> None:
            self._open.add(files)
            files.open(head)

        self.write(begin)
        return files

    def end(self, files: SessionFiles, line: Mapping[str, Any]) -> None:
        """The session is over; ``line`` is its last line."""

        def end() -> None:
            self._open.discard(files)
            files.line(line)
            files.close()

        self.write(end)

    def write(self, write: Callable[[], None], size_bytes: int = 0) -> None:
        """Call ``write`` in the thread; never waits. It may only read immutable data, of which it
        holds ``size_bytes``."""
        if self.problem:
            return
        self._queued_bytes += size_bytes
        try:
            if self._queued_bytes - self._written_bytes > MOST_WAITING_BYTES:
                raise Full
            self._writes.put_nowait((write, size_bytes))
        except Full:
            self._stop("the disk is too slow")

    def close(self) -> None:
        """Write what is queued, and close the files. Blocks, for twice ``CLOSE_S`` at most."""
        with contextlib.suppress(Full):
            self._writes.put(None, timeout=CLOSE_S)
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self._stop("the disk does not answer")

    def _stop(self, why: str) -> None:
        if self.problem is None:
            self.problem = why
            log.warning("Recording has stopped: %s. The conversations go on.", why)

    def _run(self) -> None:
        while (entry := self._writes.get()) is not None:
            write, size_bytes = entry
            self._written_bytes += size_bytes
            if self.problem:
                continue
            try:
                write()
            except OSError as error:
                self._stop(error.strerror or str(error))
            except Exception as error:
                log.exception("a part of the recording could not be written")
                self._stop(type(error).__name__)
        for files in self._open:
            with contextlib.suppress(OSError):
                files.close()


class SessionFiles:
    """The files of one session. Used by the thread only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines: BinaryIO | None = None
        self._sounds: dict[str, _Sound] = {}

    def open(self, head: Mapping[str, Any]) -> None:
        self.folder.mkdir(mode=0o700)
        self._lines = _create(self.folder / LINES)
        self.line({name: to_plain(value) for name, value in head.items()})

    def line(self, fields: Mapping[str, Any]) -> None:
        if self._lines:
            text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
            self._lines.write(text.encode("utf-8", "surrogatepass") + b"\n")
            self._lines.flush()

    def sound(self, source: str, pcm: Pcm, rate: int, at: float) -> dict[str, Any]:
        """Write audio that arrived or left at ``at``. Returns its place in the recording."""
        name = f"{source}-{rate}.wav"
        if name not in self._sounds:
            self._sounds[name] = _Sound(_create(self.folder / name), rate)
        start = self._sounds[name].write(pcm, at)
        return {"file": name, "start": start, "count": len(pcm)}

    def close(self) -> None:
        for sound in self._sounds.values():
            sound.close()
        if self._lines:
            self._lines.close()
        self._sounds, self._lines = {}, None


class _Sound:
    """A growing WAV file. Until it is closed, its header claims more than it holds. Pauses are
    holes in the file, which take no room on most disks."""

    def __init__(self, file: BinaryIO, rate: int) -> None:
        self._file = file
        self._rate = rate
        self._samples = 0
        self._write_header(MOST_WAV_BYTES)

    def write(self, pcm: Pcm, at: float) -> int:
        """Write audio sent or received at ``at`` seconds. Returns the index of its first sample."""
        gap = round(at * self._rate) - self._samples - len(pcm)
        start = self._samples
        if gap > (PAUSE_S if self._samples else 0) * self._rate:
            start += gap
        end = start + len(pcm)
        if 2 * end > MOST_WAV_BYTES:
            raise OSError(
                errno.EFBIG, "the sound of a session has reached 4 GB, a WAV file's limit"
            )
        self._file.seek(WAV_HEADER_BYTES + 2 * start)
        self._file.write(pcm_to_bytes(pcm))
        self._file.flush()
        self._samples = end
        return start

    def close(self) -> None:
        self._write_header(2 * self._samples)
        self._file.close()

    def _write_header(self, size: int) -> None:
        self._file.seek(0)
        self._file.write(wav_header(self._rate, size))


def _create(path: Path) -> BinaryIO:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def _cannot_record(folder: Path, why: str) -> RecordingError:
    fix = "Give --record a new folder, or one that you own"
    return RecordingError(f"Cannot record into {folder}", why=why, fix=fix)


class SessionRecording:
    """Records a session that begins now: its commands, and the events on its bus."""

    def __init__(
        self, recorder: Recorder, bus: Bus, config: SessionConfig, memory: Memory | None
    ) -> None:
        """``memory``: of the session that is resumed, if any."""
        self._recorder = recorder
        # Items that the model has forgotten do not matter.
        self._files = recorder.begin(config, tuple(memory.chat.context) if memory else ())
        self._began_at = asyncio.get_running_loop().time()
        bus.publish(RecordingBegun(str(self._files.folder)))
        bus.tap(self._event)

    def end(self) -> None:
        """The session is over."""
        self._recorder.end(self._files, {"at": self._seconds(), "end": True})

    def command(self, command: Command) -> None:
        """Record a command that the session gets."""
        at = self._seconds()
        if isinstance(command, AppendAudio):
            bare = replace(command, pcm=EMPTY, reference=None, reference_moved=None)
            self._write({"at": at, "command": bare}, "heard", command.pcm, command.rate)
        else:
            self._write({"at": at, "command": command})

    def _event(self, published: Published) -> None:
        at, event = published.at - self._began_at, published.event
        if isinstance(event, ReplyAudio):
            bare = replace(event, pcm=EMPTY)
            self._write({"at": at, "event": bare}, "sent", event.pcm, event.rate)
        elif not isinstance(event, TurnUnderWay):  # its whole record follows
            self._write({"at": at, "event": event})

    def _seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._began_at

    def _write(
        self, line: Mapping[str, Any], sound: str = "", pcm: Pcm = EMPTY, rate: int = 0
    ) -> None:
        """Write a line, and its ``sound``: "heard" or "sent"."""

        def write() -> None:
            plain = {key: to_plain(each) for key, each in line.items()}
            if sound:
                plain["audio"] = self._files.sound(sound, pcm, rate, line["at"])
            self._files.line(plain)

        self._recorder.write(write, pcm.nbytes)
