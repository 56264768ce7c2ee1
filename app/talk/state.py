"""The visible state of a conversation: a fold over its events. Pure, except for ``on_change``."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from app.talk.conversation import Connected, Disconnected
from hardware.sound.alignment import SoundBlock
from pipeline.events import (
    DirectionHeard,
    Event,
    FellAsleep,
    InputCommitted,
    Refused,
    ReplyFinished,
    ReplyStarted,
    ReplyText,
    SpeechIgnored,
    SpeechRejected,
    SpeechStarted,
    SpeechStopped,
    Timeline,
    TranscriptFailed,
    TranscriptPartial,
    TranscriptReady,
    Woke,
)

Doing = Literal[
    "connecting",
    "waiting",
    "muted",
    "released",
    "asleep",
    "listening",
    "hearing",
    "thinking",
    "speaking",
]
"""``muted``, ``released``, ``asleep``: like listening, but the microphone is off, the key is up, or
the robot waits to be called."""

FLOOR_DB = -60.0
_FALL_DB = 2.0
"""Decay of the level per block; it rises at once."""
_SILENT_PEAK = 2
_LINES = 8


def printable(text: str) -> str:
    """One line without terminal control codes: models and servers may write anything."""
    return "".join(character if character.isprintable() else " " for character in text)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of speech, or a notice of ours; printable."""

    who: Literal["you", "reachy", "note"]
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", printable(self.text))


@dataclass
class TalkState:
    lines: deque[Line] = field(default_factory=lambda: deque(maxlen=_LINES))
    partial: str = ""
    saying: str = ""
    level_db: float = FLOOR_DB
    """The microphone's level, dBFS."""
    direction_deg: float | None = None
    """Of the last speech; ``None``: unknown."""
    stages_ms: dict[str, float] = field(default_factory=dict)
    """The latest answer's stages, after the end of speech."""
    devices: str = ""
    missing: str = ""
    """The missing device."""
    disconnected: str = ""
    connected: bool = False
    sounding: bool = False
    muted: bool = False
    pressed: bool | None = None
    """The push-to-talk key; ``None``: not used."""
    asleep: bool = False
    on_change: Callable[[], None] = lambda: None
    """Called on any thread when there is something new to show."""
    _speech_open: bool = False
    _is_answer_due: bool = False
    _in_conversation: set[str] = field(default_factory=set)

    @property
    def doing(self) -> Doing:
        if self.missing:
            return "waiting"
        if not self.connected:
            return "connecting"
        if self.sounding:
            return "speaking"
        if self._speech_open:
            return "hearing"
        if self._is_answer_due:
            return "thinking"
        if self.muted:
            return "muted"
        if self.pressed is False:
            return "released"
        return "asleep" if self.asleep else "listening"

    def say(self, text: str) -> None:
        """Add a notice."""
        self.lines.append(Line("note", text))
        self.on_change()

    def heard(self, block: SoundBlock) -> None:
        """Take a block of microphone and loudspeaker sound."""
        level_db = _level_db(block.pcm)
        self.level_db = max(level_db, self.level_db - _FALL_DB, FLOOR_DB)
        if len(block.reference):
            self.sounding = bool(np.abs(block.reference.astype(np.int32)).max() > _SILENT_PEAK)

    def note(self, event: Event | Connected | Disconnected) -> None:
        """Take an event."""
        match event:
            case Connected():
                self.connected, self.disconnected = True, ""
            case Disconnected():
                self.connected, self.disconnected = False, printable(event.why)
                self._speech_open = self._is_answer_due = self.asleep = False
                self.partial = ""
                self._in_conversation.clear()
                self._end_line(" ...")
            case DirectionHeard():
                if event.direction.speech:
                    self.direction_deg = event.direction.azimuth_deg
            case Refused():
                self.say(event.message)
            case FellAsleep() | Woke():
                self.asleep = isinstance(event, FellAsleep)
            case Timeline():
                names = ("endpoint", "transcript", "first_token", "first_clause", "first_audio")
                stages = {stage: getattr(event, stage) for stage in names}
                self.stages_ms = {name: ms for name, ms in stages.items() if ms is not None}
            case ReplyStarted() | ReplyText() | ReplyFinished():
                self._note_reply(event)
            case _:
                self._note_speech(event)

    def _note_speech(self, event: Event) -> None:
        if isinstance(event, SpeechStarted | SpeechStopped) and event.direction_deg is not None:
            self.direction_deg = event.direction_deg
        match event:
            case SpeechStarted():
                self._speech_open, self._is_answer_due, self.partial = True, False, ""
            case SpeechStopped() | InputCommitted():
                self._speech_open, self._is_answer_due = False, True
            case SpeechRejected():
                self._is_answer_due, self.partial = False, ""
            case TranscriptPartial():
                self.partial += printable(event.text)
            case TranscriptReady():
                self.partial = ""
                if event.text:
                    self.lines.append(Line("you", event.text))
            case TranscriptFailed():
                self._is_answer_due, self.partial = False, ""
                self.say(event.message)
            case SpeechIgnored():
                self.say(f"did not stop for {event.said or 'a sound'} ({event.reason})")

    def _note_reply(self, event: ReplyStarted | ReplyText | ReplyFinished) -> None:
        match event:
            case ReplyStarted(in_conversation=True):
                self._is_answer_due = True
                self.saying = ""
                self._in_conversation.add(event.reply_id)
            case ReplyText() if event.reply_id in self._in_conversation:
                self.saying += printable(event.text)
            case ReplyFinished() if event.reply_id in self._in_conversation:
                self._in_conversation.discard(event.reply_id)
                self._is_answer_due = False
                self._end_line(" ..." if event.status == "cancelled" else "")
                if event.status == "failed":
                    self.say(event.error or "the answer failed")

    def _end_line(self, end: str) -> None:
        text, self.saying = self.saying.strip(), ""
        if text:
            self.lines.append(Line("reachy", text + end))


def _level_db(pcm: np.ndarray) -> float:
    if not len(pcm):
        return FLOOR_DB
    power = float(np.square(pcm.astype(np.float64) / 32768).mean())
    return 10 * math.log10(power) if power > 0 else FLOOR_DB
