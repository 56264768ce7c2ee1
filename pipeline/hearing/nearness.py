"""Decides which sound is speech of the person who speaks to the robot. Pure.

``weigh`` combines all that is known about one window: the VAD's certainty, an echo, the direction
and the level. Two voices in a room differ in level by more than one voice does from word to word,
so speech far below the speaker's level is background. ``pipeline.hearing.turn_taker`` still gives
it time to stop or to rise again, because the speaker may only have become softer.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pipeline.audio import LISTEN_RATE, AudioFrame, Pcm, samples_of
from pipeline.echo.gate import near_end
from pipeline.echo.tuning import CANCELLER_NO_DOUBT, DETECTOR_LEAST_LLR
from pipeline.hearing import tuning
from pipeline.settings import Endpointing


@dataclass(frozen=True, slots=True)
class WindowEvidence:
    """What is known about one window."""

    score: float
    """The VAD's score, 0 to 1."""
    post_filtered: float | None = None
    """The VAD's score without most of the residual echo; ``None`` if there can be no echo."""
    llr: float = CANCELLER_NO_DOUBT
    """How much louder the window is than the echo explains."""
    elsewhere: bool = False
    """The array hears no speech from the accepted sector."""
    others: bool = False
    """The array hears speech."""
    motor: bool = False
    """It may be a motor heard lately."""
    below_db: float = 0.0
    """How far the level is below the speaker's; 0 if no speaker is known."""

    @property
    def is_certain(self) -> bool:
        """Whether it is speech that cannot be an echo."""
        return self.score >= tuning.SPEECH_SCORE and self.post_filtered is None


class _Speech(NamedTuple):
    start: int
    level_db: float
    in_turn: bool = False


class _Rise(NamedTuple):
    """Where the speech of a turn becomes louder and stays so, and its level before."""

    start: int
    before_db: float


class WindowScore(NamedTuple):
    score: float
    """0 to 1; it is speech from the threshold on."""
    below_db: float = 0.0
    """How far that speech is below the speaker if it is background, else 0."""
    nearer_from: int | None = None
    """The sample at which a nearer speaker begins, so that the open turn was background until
    then."""
    expected: bool = False
    """It is background where others were heard lately: no reason to hold an answer."""


def weigh(
    evidence: WindowEvidence, turn_is_open: bool, threshold: float, margin_db: float | None
) -> WindowScore:
    """The verdict on one window. ``margin_db``: what is further below the speaker is background;
    ``None``: nothing is. In an open turn, doubt favours speech."""
    doubtful = min(evidence.score, tuning.NO_SPEECH, threshold / 2)
    score = _without_echo(evidence, turn_is_open, doubtful)
    far = margin_db is not None and evidence.below_db > margin_db
    below_db = evidence.below_db if far else 0.0
    if turn_is_open:
        return WindowScore(score, below_db)
    # Other people's speech is not the beginning of the next turn.
    if evidence.elsewhere and evidence.others:
        return WindowScore(0.0, below_db)
    unlikely = evidence.elsewhere or evidence.motor or far
    return WindowScore(min(score, doubtful) if unlikely else score, below_db)


def _without_echo(evidence: WindowEvidence, turn_is_open: bool, doubtful: float) -> float:
    score, second, llr = evidence.score, evidence.post_filtered, evidence.llr
    if second is None:
        return score
    if near_end(score, second, llr):
        return max(score, second, tuning.SPEECH)
    if turn_is_open:
        return score if llr > DETECTOR_LEAST_LLR else min(score, second)
    return doubtful if llr > tuning.EXPLAINED_LLR else 0.0


class Nearness:
    """Judges each window of one stream by the level of the person who holds the turn, or held one
    lately. That level is learned from speech without any echo."""

    def __init__(self) -> None:
        self._powers: deque[float] = deque(maxlen=tuning.LEVEL_WINDOWS)
        self._speech: deque[_Speech] = deque(maxlen=tuning.SUNK_WINDOWS)
        """The newest windows of the open turn that are its speaker's."""
        self._before: deque[_Speech] = deque(maxlen=tuning.OTHERS_WINDOWS)
        """The newest windows of speech before the open turn; those of a turn get its level, and are
        forgotten at the next quiet."""
        self._far = False
        """Whether the newest speech of the open turn is background."""
        self._rise: _Rise | None = None
        """In the open turn, within the last second."""
        self._turn_is_open = False
        self._began = 0
        self._loudest_db = 0.0
        """Highest level of the speaker in this turn, over about two seconds."""
        self._sunk = False
        """Whether the open turn, or else the last one, sank to the level of another voice."""
        self._remembered_db: float | None = None
        self._fallen_db = 0.0
        """How much softer than that a speaker may be by now, after the quiet since."""
        self._before_db: float | None = None
        """The level known before the newest turn."""
        self._left_samples = 0
        """How much longer the level is remembered."""
        self._quiet_powers: deque[float] = deque(maxlen=tuning.QUIET_WINDOWS)
        self._quiet_samples = 0
        """Length of the quiet up to now; in a room without others it begins with a head start."""
        self._far_starts: deque[int] = deque(maxlen=tuning.FEWEST_FAR)
        """The newest windows of background while no turn was open."""
        self._floor_db = math.inf
        """The room's level without speech."""

    def hear(
        self, evidence: WindowEvidence, frame: AudioFrame, turn_is_open: bool, settings: Endpointing
    ) -> WindowScore:
        """Judge the next window. ``evidence``: all that is known about it except its level."""
        self._powers.append(_voice_power(frame.pcm))
        power = float(np.mean(self._powers))
        if not turn_is_open:  # a voice rises faster than a mean
            power = max(power, self._powers[-1])
        level_db = float(10 * np.log10(power + 1))
        if turn_is_open != self._turn_is_open:
            self._turn_changes(turn_is_open, frame)
        margin_db, below_db = settings.background_db, self._below_db(level_db)
        if turn_is_open:
            sunk_db = self._sunk_db(frame)
            self._sunk = margin_db is not None and sunk_db > tuning.SUNK_DB
            below_db = sunk_db if self._sunk else below_db
        if margin_db is not None and self._sunk:
            margin_db = min(margin_db, tuning.SUNK_DB)
        elif margin_db is not None and self._others_talk(margin_db, frame):
            margin_db -= tuning.NEARER_DB
        evidence = replace(evidence, below_db=below_db)
        score = weigh(evidence, turn_is_open, settings.speech_threshold, margin_db)
        if evidence.is_certain and score.below_db and not turn_is_open:
            self._far_starts.append(frame.index)
        if score.below_db and not turn_is_open:
            score = score._replace(expected=self._others_heard(frame))
        self._wait_in_quiet(frame, evidence.score)
        if not turn_is_open:
            is_speech = evidence.score >= settings.speech_threshold
            least_db = tuning.SUNK_DB if self._sunk else settings.background_db or 0.0
            self._fade(frame, is_speech and score.below_db - tuning.OPENING_DB > least_db)
            if evidence.is_certain:
                self._before.append(_Speech(frame.index, level_db))
            return score
        if evidence.score >= tuning.SPEECH_SCORE:
            self._far = score.below_db > 0
        if evidence.is_certain and not score.below_db:
            self._speech.append(_Speech(frame.index, level_db))
            return score._replace(nearer_from=self._nearer_from(margin_db))
        return score

    def forget_turn(self, another_is_open: bool = False) -> None:
        """Learn nothing from the newest turn that is over: it was a false one. An open one keeps
        its speaker."""
        if another_is_open:
            self._remembered_db = self._before_db = None
            return
        self._speech.clear()
        self._turn_is_open = False
        self._remembered_db, self._fallen_db = self._before_db, 0.0

    def _turn_changes(self, turn_is_open: bool, frame: AudioFrame) -> None:
        speaker_db = self._known_db
        self._turn_is_open = turn_is_open
        if turn_is_open:
            self._before_db = speaker_db
            self._begin(frame.index)
            return
        if speaker_db is not None:
            if self._sunk:  # what was heard last is not the speaker's
                speaker_db = self._loudest_db
            if self._fallen_db or speaker_db >= (self._remembered_db or 0.0) - tuning.QUIETER_DB:
                self._remembered_db, self._fallen_db = speaker_db, 0.0
                self._left_samples = tuning.REMEMBERED_SAMPLES
            self._before.extend(_Speech(each.start, speaker_db, True) for each in self._speech)
        self._speech.clear()

    def _begin(self, began: int) -> None:
        self._began, self._loudest_db, self._far, self._rise = began, 0.0, False, None
        while self._speech and self._speech[0].start < began:
            self._before.append(self._speech.popleft())

    @property
    def _speaker_db(self) -> float | None:
        """Level of the open turn's speaker, once enough is heard."""
        if len(self._speech) < tuning.FEWEST_WINDOWS:
            return None
        return _loud_db(list(self._speech)[-tuning.SPEAKER_WINDOWS :])

    @property
    def _known_db(self) -> float | None:
        """The speaker's level: in the open turn, or else the level to expect."""
        if self._turn_is_open:
            return self._speaker_db
        return None if self._remembered_db is None else self._remembered_db - self._fallen_db

    def _below_db(self, level_db: float) -> float:
        if (known_db := self._known_db) is None:
            return 0.0
        return known_db - level_db + (0.0 if self._turn_is_open else tuning.OPENING_DB)

    def _fade(self, frame: AudioFrame, far: bool) -> None:
        """Without an open turn, let the memory of the level run out; far speech prolongs it, so
        that it stays known as far."""
        samples_left = self._left_samples + len(frame.pcm) * (tuning.FAR_COUNTS if far else -1)
        self._left_samples = min(samples_left, tuning.REMEMBERED_SAMPLES)
        if samples_left <= 0:
            self._remembered_db, self._fallen_db, self._sunk = None, 0.0, False

    def _wait_in_quiet(self, frame: AudioFrame, score: float) -> None:
        """After each quiet, let a softer speaker begin the next turn, sooner if nobody else was
        heard lately. A television too soft for the VAD still rises above the room's level."""
        level_db = 0.0
        if self._powers[-1]:
            self._quiet_powers.append(self._powers[-1])
            level_db = float(10 * np.log10(np.mean(self._quiet_powers) + 1))
            rise_db = tuning.FLOOR_RISE_DB_S * len(frame.pcm) / LISTEN_RATE
            self._floor_db = min(level_db, self._floor_db + rise_db)
        else:  # a muted microphone tells nothing about the room
            self._quiet_powers.clear()
        speaker_db = self._speaker_db if self._turn_is_open else self._remembered_db
        quiet_db = max(
            self._floor_db + tuning.FLOOR_RANGE_DB, (speaker_db or 0.0) - tuning.SILENT_DB
        )
        self._quiet_samples += len(frame.pcm)
        if score >= tuning.QUIET_SCORE or level_db > quiet_db:
            self._quiet_samples = 0 if self._others_heard(frame) else tuning.HEAD_START_SAMPLES
        elif self._quiet_samples >= tuning.QUIET_SAMPLES and not self._turn_is_open:
            self._quiet_samples = 0
            self._fallen_db, self._sunk = self._fallen_db + tuning.QUIET_FALL_DB, False
            # Those turns were no television's, which would go on.
            others = [each for each in self._before if not each.in_turn]
            self._before = deque(others, tuning.OTHERS_WINDOWS)

    def _others_heard(self, frame: AudioFrame) -> bool:
        """Whether background was heard lately while no turn was open."""
        first = self._far_starts[0] if len(self._far_starts) == tuning.FEWEST_FAR else -math.inf
        return frame.index - first < tuning.REMEMBERED_SAMPLES

    def _others_talk(self, margin_db: float, frame: AudioFrame) -> bool:
        """Whether the newest speech is background that was heard before the speaker, or is heard
        while the speaker is silent: then more of it is likely."""
        known_db = self._known_db
        if known_db is None or (self._turn_is_open and not self._far):
            return False
        limit_db = known_db - margin_db + tuning.NEARER_DB
        since = (self._began if self._turn_is_open else frame.index) - tuning.REMEMBERED_SAMPLES
        before = sum(each.level_db < limit_db and each.start > since for each in self._before)
        if len(self._speech) < tuning.SUNK_WINDOWS:  # these windows begin where the turn does
            background = itertools.takewhile(lambda each: each.level_db < limit_db, self._speech)
            before += sum(1 for _ in background)
        return before >= (
            tuning.FEWEST_OTHERS if self._turn_is_open else tuning.FEWEST_BETWEEN_TURNS
        )

    def _sunk_db(self, frame: AudioFrame) -> float:
        """In a long turn: how far the newest speech is below the loudest. One person's level hardly
        falls for so long, so somebody else has been talking since."""
        if len(self._speech) < tuning.LOUD_WINDOWS:
            return 0.0
        newest = list(self._speech)[-tuning.LOUD_WINDOWS :]
        self._loudest_db = max(self._loudest_db, _loud_db(newest))
        is_long = frame.end - self._began >= tuning.LONG_TURN_SAMPLES
        is_full = len(self._speech) == tuning.SUNK_WINDOWS
        return self._loudest_db - _loud_db(self._speech) if is_long and is_full else 0.0

    def _nearer_from(self, margin_db: float | None) -> int | None:
        """Where a nearer speaker begins in the open turn, if all before was background: the level
        rises, and within a second by more than one voice ever varies."""
        speech = list(self._speech)[-tuning.SPEAKER_WINDOWS :]
        before, newest = speech[: -tuning.NEWEST_WINDOWS], speech[-tuning.NEWEST_WINDOWS :]
        if margin_db is None or len(before) < tuning.FEWEST_BEFORE:
            return None
        level_db = float(np.median([each.level_db for each in newest]))
        if self._rise and newest[0].start - self._rise.start > tuning.RISE_SAMPLES:
            self._rise = None
        if self._rise is None:
            before_db = max(_loud_db(before), self._loudest_db)
            if level_db > before_db + tuning.RISE_DB:
                self._rise = _Rise(_begins_above(speech, before_db), before_db)
        if self._rise is None or level_db <= self._rise.before_db + margin_db:
            return None
        began = self._rise.start
        self._begin(began)
        self._loudest_db = level_db
        return max(0, began - samples_of(tuning.KEPT_MS))


def _voice_power(pcm: Pcm) -> float:
    """Mean square of what may be a voice: without offset, rumble and mains hum."""
    voice = np.fft.rfft(pcm)[len(pcm) * tuning.RUMBLE_HZ // LISTEN_RATE + 1 :]
    return 2 * float(np.vdot(voice, voice).real) / len(pcm) ** 2


def _loud_db(speech: Sequence[_Speech]) -> float:
    """The 80th percentile of the levels."""
    return sorted(each.level_db for each in speech)[len(speech) * 4 // 5]


def _begins_above(speech: Sequence[_Speech], before_db: float) -> int:
    """Where the voice begins that raised the newest speech above the level before. Its first words
    may be softer, but hardly softer than that level."""
    loud = [each.level_db > before_db + tuning.RISE_DB for each in speech]
    began = loud.index(True, len(speech) - tuning.NEWEST_WINDOWS)
    for at in range(began - 1, -1, -1):
        if speech[at].level_db > before_db + tuning.LEAST_RISE_DB:
            began = at
        elif began - at > tuning.LEVEL_WINDOWS:
            break
    return speech[began].start


class Background:
    """The background speech since the speaker was last heard, with its pauses; may be empty."""

    def __init__(self) -> None:
        self.start = self.end = self._samples = 0
        self._below_db: deque[float] = deque(maxlen=tuning.LOUD_WINDOWS)

    def note(self, frame: AudioFrame, below_db: float) -> None:
        """Take the next frame of speech; ``below_db``: 0 if it is the speaker's."""
        if not below_db:
            self.forget()
            return
        if not self._below_db:
            self.start = frame.index
        self.end = frame.end
        self._samples += len(frame.pcm)
        self._below_db.append(below_db)

    def forget(self) -> None:
        """Start over, as when the speaker is heard."""
        self.start = self.end = self._samples = 0
        self._below_db.clear()

    def is_long(self, now: int) -> bool:
        """Whether it is more than a quiet word, or comes again and again up to sample ``now``."""
        lasts = now - self.start >= samples_of(tuning.QUIET_WORDS_MS)
        return lasts or self._samples >= samples_of(tuning.QUIET_WORD_MS)

    @property
    def below_db(self) -> float:
        """How far it is below the speaker, on average; 0 if there is none."""
        return float(np.mean(self._below_db)) if self._below_db else 0.0
