"""Turn taking: speech scores in, turn signals out. Pure; time is the sample index.

A turn opens when speech has lasted ``onset_ms``; it began where the scores rose
(``pipeline.hearing.onset``). It is *paused* when the voice has faded into the room
(``pipeline.hearing.fading``) or the scores have fallen, whichever comes first: it may be over, and
the session starts a reply behind a shut gate. How long the pause must last before the turn has
*ended* is decided elsewhere (``pipeline.turn_taking.endpointing``) and told here (``judge``). No
turn ends before the scores have fallen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from pipeline.audio import LISTEN_RATE, AudioFrame
from pipeline.hearing import tuning
from pipeline.hearing.fading import Fading
from pipeline.hearing.onset import RecentScores
from pipeline.settings import Endpointing


@dataclass(frozen=True, slots=True)
class Started:
    """Speech began at sample ``start``."""

    start: int


@dataclass(frozen=True, slots=True)
class Paused:
    """Speech ended at sample ``speech_end``, for now; silence was heard up to ``end``."""

    speech_end: int
    end: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """Speech resumed at sample ``start``, before the turn ended. ``within_word``: the voice had
    faded, but the scores never fell, as when the mouth is closed for a consonant."""

    start: int
    within_word: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn is over; its last speech sample is before ``speech_end``."""

    speech_end: int


Signal = Started | Paused | Resumed | Ended


class _State(Enum):
    QUIET = auto()
    SPEAKING = auto()
    FADED = auto()
    """Paused, but the scores have not fallen yet."""
    PAUSED = auto()


class TurnTaker:
    """Follows one stream of scored frames."""

    def __init__(self, settings: Endpointing, rate: int = LISTEN_RATE) -> None:
        self._settings = settings
        self._rate = rate
        self._state = _State.QUIET
        self._recent = RecentScores(rate)
        self._fading = Fading(rate)
        self._onset: int | None = None
        self.noticed = 0
        """First sample that scored as speech, of the newest turn; it may have begun earlier."""
        self._start = 0
        self._speech_end = 0
        self._heard_end = 0
        self._wait_ms = settings.unsure_wait_ms

    def feed(self, score: float, frame: AudioFrame) -> list[Signal]:
        """Take the next frame and its probability of speech."""
        self._heard_end = frame.end
        self._recent.note(score, frame, self._settings.speech_threshold)
        self._fading.note(score, frame)
        match self._state:
            case _State.QUIET:
                return self._quiet(score, frame)
            case _State.SPEAKING:
                return self._speaking(score, frame)
            case _State.FADED:
                return self._faded(score, frame)
            case _State.PAUSED:
                return self._paused(score, frame)

    @property
    def open(self) -> bool:
        """Whether a turn has begun and not ended."""
        return self._state is not _State.QUIET

    @property
    def suspects(self) -> bool:
        """Whether the newest frame may begin a turn that is not open yet."""
        return self._state is _State.QUIET and self._onset is not None

    def judge(self, wait_ms: int) -> list[Signal]:
        """Say how long the reported pause must last. Ignored when the pause is over."""
        if self._state not in (_State.FADED, _State.PAUSED):
            return []
        self._wait_ms = wait_ms
        return self._end_if_due()

    def configure(self, settings: Endpointing) -> None:
        """Go on by other settings; an open turn stays open."""
        self._settings = settings

    def reset(self) -> None:
        """Forget an open turn, as after a manual commit."""
        self._state = _State.QUIET
        self._onset = None

    def _quiet(self, score: float, frame: AudioFrame) -> list[Signal]:
        if score < self._settings.speech_threshold:
            self._onset = None
            return []
        if self._onset is None:
            self._onset = frame.index
        if frame.end - self._onset < self._samples(self._settings.onset_ms):
            return []
        self._state = _State.SPEAKING
        self._fading.forget_speaker()
        begin = self._recent.beginning(self._onset, self._settings.speech_threshold)
        # What was said before belongs to the turn before.
        self._start = max(begin, self._speech_end)
        self.noticed, self._onset = self._onset, None
        self._speech_end = frame.end
        return [Started(self._start)]

    def _speaking(self, score: float, frame: AudioFrame) -> list[Signal]:
        if score >= self._settings.silence_threshold:
            self._speech_end = frame.end
        if frame.end - self._start >= self._settings.max_utterance_s * self._rate:
            self._state = _State.QUIET
            return [Paused(self._speech_end, frame.end), Ended(self._speech_end)]
        pause_samples = self._samples(self._settings.pause_ms)
        faded_from = self._fading.faded_from(frame.end, pause_samples)
        silent = frame.end - self._speech_end >= pause_samples
        if faded_from is None and not silent:
            return []
        if faded_from is not None:
            self._speech_end = max(faded_from, self._start)
        self._state = _State.PAUSED if silent else _State.FADED
        self._wait_ms = self._settings.unsure_wait_ms
        return [Paused(self._speech_end, frame.end)]

    def _faded(self, score: float, frame: AudioFrame) -> list[Signal]:
        if score < self._settings.silence_threshold:
            self._state = _State.PAUSED
            return self._end_if_due()
        too_long = frame.end - self._speech_end >= self._samples(tuning.CLOSURE_MS)
        if too_long or not self._fading.quiet:
            return self._resumed(frame, within_word=True)
        return []

    def _paused(self, score: float, frame: AudioFrame) -> list[Signal]:
        if score >= self._settings.speech_threshold:
            return self._resumed(frame)
        return self._end_if_due()

    def _resumed(self, frame: AudioFrame, within_word: bool = False) -> list[Signal]:
        if self._fading.quiet:
            self._fading.forget_speaker()  # who goes on this softly has not faded
        self._state = _State.SPEAKING
        self._speech_end = frame.end
        return [Resumed(frame.index, within_word)]

    def _end_if_due(self) -> list[Signal]:
        if self._state is _State.FADED:
            return []
        if self._heard_end - self._speech_end < self._samples(self._wait_ms):
            return []
        self._state = _State.QUIET
        return [Ended(self._speech_end)]

    def _samples(self, ms: int) -> int:
        return ms * self._rate // 1000
