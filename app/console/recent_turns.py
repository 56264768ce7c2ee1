"""The latest turns of all sessions, in memory, for the browser console."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.audio import LISTEN_RATE, Recording
from pipeline.bus import Bus, Published
from pipeline.events import ItemAdded, RecordingBegun, TurnUnderWay
from pipeline.items import AudioPart, MessageItem
from pipeline.turn_record import TurnRecord

WAITING = 64
"""Turns that a reader may lag behind; a slower reader is dropped and starts again."""


MOST_UNRECORDED = 16
"""Most items of a session whose levels wait for a turn record, which not every item gets."""

LEVEL_MS = 20
LISTEN_MARGIN_S = 0.5
"""Seconds of the recording played before and after the turn."""


@dataclass(frozen=True, slots=True)
class RecordingSpan:
    """Position of a turn in the recording of its session, in seconds from its start."""

    folder: Path
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class RecentTurn:
    number: int
    at: float
    """Unix time of its end, or of its first audio while it is ``under_way``."""
    session: int
    """Counts this server's sessions from 1."""
    place: str
    """Address of its client."""
    record: TurnRecord
    under_way: bool = False
    """If so, its complete record follows under the same ``number``."""
    levels: tuple[int, ...] = ()
    """Peaks of the committed speech, one per ``LEVEL_MS``, 0 to 100."""
    sound: RecordingSpan | None = None


class _Session:
    """The turns of one session, built from its events."""

    def __init__(self, number: int, place: str, tell: Callable[[RecentTurn], None]) -> None:
        self._number = number
        self._place = place
        self._tell = tell
        self._under_way: dict[str | None, int] = {}
        """Turn numbers by the id of the answer."""
        self._levels: dict[str | None, tuple[int, ...]] = {}
        """Levels of speech whose turn has not ended, by item."""
        self._recording: tuple[Path, float] | None = None
        """The folder, and when recording began."""

    def note(self, published: Published, numbers: Iterator[int], now: float) -> None:
        match published.event:
            case ItemAdded(
                item=MessageItem(item_id, "user", (AudioPart(audio=Recording() as audio),))
            ):
                self._levels[item_id] = levels(audio)
                if len(self._levels) > MOST_UNRECORDED:
                    del self._levels[next(iter(self._levels))]
            case RecordingBegun(folder):
                self._recording = (Path(folder), published.at)
            case TurnUnderWay(record):
                number = self._under_way[record.reply_id] = next(numbers)
                peaks = self._levels.get(record.item_id, ())
                whose = (self._number, self._place)
                self._tell(RecentTurn(number, now, *whose, record, under_way=True, levels=peaks))
            case TurnRecord() as record:
                number = self._under_way.pop(record.reply_id, 0) or next(numbers)
                peaks = self._levels.pop(record.item_id, ())
                sound = self._sound(record, published.at)
                whose = (self._number, self._place)
                self._tell(RecentTurn(number, now, *whose, record, levels=peaks, sound=sound))

    def _sound(self, record: TurnRecord, at: float) -> RecordingSpan | None:
        if self._recording is None or record.ended_ms is None:
            return None
        folder, began_at = self._recording
        end_s = at - began_at
        speech_end_s = end_s - record.ended_ms / 1000
        speech = (record.speech_end_sample or 0) - (record.speech_start_sample or 0)
        start_s = max(0.0, speech_end_s - speech / LISTEN_RATE - LISTEN_MARGIN_S)
        return RecordingSpan(folder, start_s, end_s + LISTEN_MARGIN_S)


def levels(audio: Recording) -> tuple[int, ...]:
    """The ``levels`` of a ``RecentTurn``."""
    size = audio.rate * LEVEL_MS // 1000
    whole = audio.pcm[: len(audio.pcm) // size * size].reshape(-1, size)
    peaks = np.maximum(whole.max(axis=1).astype(np.int32), -whole.min(axis=1).astype(np.int32))
    return tuple((peaks * 100 // 32768).tolist())


class RecentTurns:
    """The last ``kept`` turns. 0 turns this off."""

    def __init__(self, kept: int = 200) -> None:
        self.kept = kept
        self._turns: deque[RecentTurn] = deque(maxlen=kept)
        self._numbers = itertools.count(1)
        self._sessions = itertools.count(1)
        self._readers: set[asyncio.Queue[RecentTurn | None]] = set()

    def watch(self, bus: Bus, place: str) -> None:
        """Keep the turns of a session whose events ``bus`` carries."""
        if self._turns.maxlen == 0:
            return
        session = _Session(next(self._sessions), place, self._tell)
        bus.tap(lambda published: session.note(published, self._numbers, time.time()))

    def sound_of(self, number: int) -> RecordingSpan | None:
        """The recording of a kept turn."""
        return next((turn.sound for turn in self._turns if turn.number == number), None)

    def _tell(self, turn: RecentTurn) -> None:
        if not turn.under_way:
            self._turns.append(turn)
        for reader in list(self._readers):
            if reader.full():
                self._dismiss(reader)
            else:
                reader.put_nowait(turn)

    def _dismiss(self, reader: asyncio.Queue[RecentTurn | None]) -> None:
        self._readers.remove(reader)
        while not reader.empty():
            reader.get_nowait()
        reader.put_nowait(None)

    def close(self) -> None:
        """End all readers."""
        for reader in list(self._readers):
            self._dismiss(reader)

    async def follow(self) -> AsyncGenerator[RecentTurn, None]:
        """The kept turns, then each new one. Ends for a reader that fell behind, and at
        ``close``."""
        reader: asyncio.Queue[RecentTurn | None] = asyncio.Queue(WAITING)
        self._readers.add(reader)
        try:
            for turn in list(self._turns):
                yield turn
            while (turn_or_end := await reader.get()) is not None:
                yield turn_or_end
        finally:
            self._readers.discard(reader)
