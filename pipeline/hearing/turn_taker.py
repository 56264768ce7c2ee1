"""Follows the turns of one stream: speech scores in, turn signals out. Pure.

A turn opens when speech has lasted ``onset_ms``; it began where the scores rose
(``pipeline.hearing.onset``). It is *paused* when the voice has faded into the room
(``pipeline.hearing.fading``) or the scores have fallen, whichever comes first: it may be over, and
the session starts a reply behind a shut gate. ``pipeline.turn_taking.endpointing`` decides how long
the pause must last before the turn has *ended*; ``judge`` sets it. No turn ends before the scores
have fallen, or what still scores as speech is found to be background
(``pipeline.hearing.nearness``): it neither rises nor stops as soon as a quiet word would.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto

from pipeline.audio import LISTEN_RATE, AudioFrame, samples_of
from pipeline.hearing import tuning
from pipeline.hearing.fading import Fading
from pipeline.hearing.nearness import Background
from pipeline.hearing.onset import RecentScores
from pipeline.settings import Endpointing


@dataclass(frozen=True, slots=True)
class TurnStart:
    """Speech began at sample ``start``. If a turn was open, it was only background."""

    start: int


@dataclass(frozen=True, slots=True)
class TurnPause:
    """Speech ended at sample ``speech_end``, for now; silence was heard up to ``end``."""

    speech_end: int
    end: int


@dataclass(frozen=True, slots=True)
class TurnResume:
    """Speech resumed at sample ``start``, before the turn ended."""

    start: int
    within_word: bool = False
    """The voice had faded, but the scores never fell, as when the mouth is closed for a
    consonant."""
    others_to: int = 0
    """In the pause, only others spoke up to this sample; 0: there was no other speech."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The turn is over; its last speech sample is before ``speech_end``."""

    speech_end: int
    below_db: float = 0.0
    """How far below the speaker the background is that goes on; 0: silence."""


Signal = TurnStart | TurnPause | TurnResume | TurnEnd


class _State(Enum):
    QUIET = auto()
    SPEAKING = auto()
    FADED = auto()
    """Paused, but the scores have not fallen yet."""
    PAUSED = auto()


class TurnTaker:
    """Speech scores in, turn signals out. Pure; time is the sample index."""

    def __init__(self, settings: Endpointing) -> None:
        self._settings = settings
        self._state = _State.QUIET
        self._recent = RecentScores()
        self._fading = Fading()
        self._background = Background()
        self._scored_end = 0
        """End of the newest frame that scored as speech, of any voice."""
        self._far = False
        """Whether the newest frame is too soft to be the speaker's voice."""
        self._others_samples = 0
        """Length of the background since the speaker was last heard."""
        self._onset: int | None = None
        self._rising = False
        self._quiet_score = self._quiet_peak = 0.0
        """The newest score while no turn is open, and the highest one lately after which scores
        fell again; the latter fades."""
        self.noticed = 0
        """First sample of the newest turn that scored as speech; the turn may start earlier."""
        self._start = 0
        self._speech_end = 0
        self._heard_end = 0
        self._wait_ms = settings.unsure_wait_ms

    def feed(
        self,
        score: float,
        frame: AudioFrame,
        below_db: float = 0.0,
        nearer_from: int | None = None,
        expected: bool = False,
    ) -> list[Signal]:
        """Take the next frame, its speech probability, and the rest of ``nearness.WindowScore``."""
        self._heard_end = frame.end
        self._recent.note(score, frame, self._settings.speech_threshold)
        rises = score > self._quiet_peak and self._recent.rises(self._settings.speech_threshold)
        self._rising = rises and not expected
        self._fading.note(score, frame)
        self._far = below_db > 0
        if score >= self._settings.silence_threshold:
            if frame.index - self._scored_end >= samples_of(tuning.APART_MS):
                self._background.forget()
            self._scored_end = frame.end
        speaking = self._state is _State.SPEAKING
        if score >= self._settings.speech_threshold and self._far:
            self._others_samples += len(frame.pcm)
        elif score >= self._settings.speech_threshold and speaking:
            self._others_samples = 0
        least = self._settings.silence_threshold if speaking else self._settings.speech_threshold
        if score >= least and not self._fading.quiet:  # else the VAD has yet to notice the silence
            self._background.note(frame, below_db)
        if self.open and nearer_from is not None:
            return self._begin(nearer_from, nearer_from, frame)
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
    def kept_to(self) -> int:
        """Sample up to which the newest sound is the speaker's, or may end the last word."""
        if not (self._far and self._background.end):
            return self._heard_end
        return min(self._heard_end, self._background.start + samples_of(tuning.KEPT_MS))

    @property
    def certainty(self) -> float:
        """Mean score of the newest turn, at most of its last two seconds, 0 to 1."""
        return self._recent.mean_since(self._start)

    def speech_score(self, end: int) -> float:
        """Mean score of the newest turn's speech from where it was noticed up to sample ``end``,
        without its pauses. A noise may come before that, which the VAD did not take for speech."""
        return self._recent.speech_score(self.noticed, end, self._settings.silence_threshold)

    @property
    def suspects(self) -> bool:
        """Whether the newest frame may begin a turn that is not open yet. A weak score counts only
        while it rises above those that came to nothing lately, so that noise seldom holds an
        answer."""
        return self._state is _State.QUIET and (self._rising or self._onset is not None)

    @property
    def may_be_speech(self) -> bool:
        """Whether the newest frame may be speech, even if it seldom comes to anything here."""
        return self._recent.may_be_speech(self._settings.speech_threshold)

    def judge(self, wait_ms: int) -> list[TurnEnd]:
        """Set how long the reported pause must last. Ignored if the pause is over."""
        if self._state not in (_State.FADED, _State.PAUSED):
            return []
        self._wait_ms = wait_ms
        return self._end_if_due()

    def configure(self, settings: Endpointing) -> None:
        """Use other settings from now on; an open turn stays open."""
        self._settings = settings

    def reset(self) -> None:
        """Forget an open turn, as after a manual commit."""
        self._state = _State.QUIET
        self._onset, self._rising = None, False

    def _quiet(self, score: float, frame: AudioFrame) -> list[Signal]:
        if score < self._settings.speech_threshold:
            self._onset = None
            self._quiet_peak *= math.exp(-frame.seconds / tuning.QUIET_PEAK_S)
            if score < self._quiet_score:
                self._quiet_peak = max(self._quiet_score, self._quiet_peak)
            self._quiet_score = score
            return []
        if self._onset is None:
            self._onset = frame.index
        if frame.end - self._onset < samples_of(self._settings.onset_ms):
            return []
        begin = self._recent.beginning(self._onset, self._settings.speech_threshold)
        # Earlier speech belongs to the previous turn.
        return self._begin(max(begin, self._speech_end), self._onset, frame)

    def _begin(self, start: int, noticed: int, frame: AudioFrame) -> list[Signal]:
        self._state = _State.SPEAKING
        self._fading.forget_speaker()
        self._background.forget()
        self._start, self.noticed, self._onset = start, noticed, None
        self._quiet_score = 0.0
        self._speech_end = frame.end
        return [TurnStart(start)]

    def _speaking(self, score: float, frame: AudioFrame) -> list[Signal]:
        if score >= self._settings.silence_threshold:
            self._speech_end = frame.end
        if frame.end - self._start >= self._settings.max_utterance_s * LISTEN_RATE:
            self._state = _State.QUIET
            return [TurnPause(self._speech_end, frame.end), TurnEnd(self._speech_end)]
        far_from = self._background.start
        if self._background.end == frame.end and frame.end - far_from >= samples_of(tuning.FAR_MS):
            self._speech_end = max(far_from, self._start)
            self._state, self._wait_ms = _State.PAUSED, self._settings.unsure_wait_ms
            return [TurnPause(self._speech_end, self.kept_to)]
        pause_samples = samples_of(self._settings.pause_ms)
        faded_from = self._fading.faded_from(frame.end, pause_samples)
        silent = frame.end - self._speech_end >= pause_samples
        if faded_from is None and not silent:
            return []
        if faded_from is not None:
            self._speech_end = max(faded_from, self._start)
        self._state = _State.PAUSED if silent else _State.FADED
        self._wait_ms = self._settings.unsure_wait_ms
        return [TurnPause(self._speech_end, frame.end)]

    def _faded(self, score: float, frame: AudioFrame) -> list[Signal]:
        too_long = frame.end - self._speech_end >= samples_of(tuning.CLOSURE_MS)
        goes_on = too_long or not self._fading.quiet
        if score < self._settings.silence_threshold or (goes_on and self._far):
            self._state = _State.PAUSED
            return [*self._end_if_due()]
        return self._resume(frame, within_word=True) if goes_on else []

    def _paused(self, score: float, frame: AudioFrame) -> list[Signal]:
        if score >= self._settings.speech_threshold and not self._far:
            return self._resume(frame)
        return self._quiet_word(frame) or [*self._end_if_due()]

    def _quiet_word(self, frame: AudioFrame) -> list[Signal]:
        """Add background that stopped soon to the turn: it was the end of what the speaker said."""
        start, end = max(self._background.start, self._speech_end), self._background.end
        stopped = frame.end - self._scored_end >= samples_of(tuning.STOPPED_MS)
        if end <= self._speech_end or not stopped or self._background.is_long(frame.end):
            return []
        self._speech_end, self._wait_ms = end, self._settings.unsure_wait_ms
        return [TurnResume(start, within_word=True), TurnPause(end, frame.end)]

    def _resume(self, frame: AudioFrame, within_word: bool = False) -> list[Signal]:
        if self._fading.quiet:
            self._fading.forget_speaker()  # a voice that goes on this softly has not faded
        self._background.forget()
        self._state = _State.SPEAKING
        self._speech_end = frame.end
        others = self._others_samples >= samples_of(tuning.QUIET_WORD_MS)
        self._others_samples = 0
        kept_from = frame.index - samples_of(tuning.KEPT_MS)
        return [TurnResume(frame.index, within_word, kept_from if others else 0)]

    def _end_if_due(self) -> list[TurnEnd]:
        followed = self._background.end > self._speech_end
        if self._state is _State.FADED or (
            followed and not self._background.is_long(self._heard_end)
        ):
            return []
        if self._heard_end - self._speech_end < samples_of(self._wait_ms):
            return []
        self._state = _State.QUIET
        return [TurnEnd(self._speech_end, self._background.below_db if followed else 0.0)]
