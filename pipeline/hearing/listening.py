"""Turns a client's audio into turn signals: resample, remove the echo, score, follow the turn.

A turn opens when speech has lasted ``onset_ms``; it began where the scores rose
(``pipeline.hearing.onset``). It is *paused* when the voice has faded into the room
(``pipeline.hearing.fading``) or the scores have fallen, whichever comes first: it may be over, and
the session starts a reply behind a shut gate. ``pipeline.turn_taking.endpointing`` decides how long
the pause must last before the turn has *ended*; ``judge`` sets it. No turn ends before the scores
have fallen, or what still scores as speech is found to be background
(``pipeline.hearing.nearness``): it neither rises nor stops as soon as a quiet word does.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import Enum, auto

from pipeline.audio import (
    LISTEN_RATE,
    AudioFrame,
    AudioHistory,
    Pcm,
    Resampler,
    ms_of,
    samples_of,
)
from pipeline.commands import MAX_PREFIX_PADDING_MS
from pipeline.engines.stages import Stages
from pipeline.hearing import tuning
from pipeline.hearing.client_echo import Hearing
from pipeline.hearing.direction import Directions
from pipeline.hearing.fading import Fading
from pipeline.hearing.nearness import Background, Nearness
from pipeline.hearing.onset import RecentScores
from pipeline.hearing.speech_scores import SpeechScores
from pipeline.hearing.timbre import movement_db
from pipeline.settings import Endpointing

HISTORY_SPARE_SECONDS = 2.0
"""Extra history beyond what an onset and the turn detector need: a pause is judged a little late,
and a late onset may last up to a second before it counts."""


@dataclass(frozen=True, slots=True)
class Started:
    """Speech began at sample ``start``. In an open turn: all before was background, and no turn."""

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
    """The turn is over; its last speech sample is before ``speech_end``. ``below_db``: how far
    the background that goes on is below the speaker; 0: none does."""

    speech_end: int
    below_db: float = 0.0


Signal = Started | Paused | Resumed | Ended


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
        self._onset: int | None = None
        self._rising = False
        self._quiet_score = self._quiet_peak = 0.0
        """The newest score while no turn is open, and the highest lately after which scores fell
        again; it fades."""
        self.noticed = 0
        """First sample of the newest turn that scored as speech; the turn may start earlier."""
        self._start = 0
        self._speech_end = 0
        self._heard_end = 0
        self._wait_ms = settings.unsure_wait_ms

    def feed(
        self, score: float, frame: AudioFrame, below_db: float = 0.0, nearer_from: int | None = None
    ) -> list[Signal]:
        """Take the next frame, its probability of speech, and the rest of ``nearness.Heard``."""
        self._heard_end = frame.end
        self._recent.note(score, frame, self._settings.speech_threshold)
        self._rising = score > self._quiet_peak and self._recent.rises(
            self._settings.speech_threshold
        )
        self._fading.note(score, frame)
        self._far = below_db > 0
        if score >= self._settings.silence_threshold:
            if frame.index - self._scored_end >= samples_of(tuning.APART_MS):
                self._background.forget()
            self._scored_end = frame.end
        speaking = self._state is _State.SPEAKING
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
        """Mean score since the newest turn began, 0 to 1."""
        return self._recent.mean_since(self._start)

    def speech_score(self, end: int) -> float:
        """Mean score of the newest turn's speech up to sample ``end``, without its pauses."""
        return self._recent.speech_score(self._start, end, self._settings.silence_threshold)

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

    def judge(self, wait_ms: int) -> list[Signal]:
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
        return [Started(start)]

    def _speaking(self, score: float, frame: AudioFrame) -> list[Signal]:
        if score >= self._settings.silence_threshold:
            self._speech_end = frame.end
        if frame.end - self._start >= self._settings.max_utterance_s * LISTEN_RATE:
            self._state = _State.QUIET
            return [Paused(self._speech_end, frame.end), Ended(self._speech_end)]
        far_from = self._background.start
        if self._background.end == frame.end and frame.end - far_from >= samples_of(tuning.FAR_MS):
            self._speech_end = max(far_from, self._start)
            self._state, self._wait_ms = _State.PAUSED, self._settings.unsure_wait_ms
            return [Paused(self._speech_end, self.kept_to)]
        pause_samples = samples_of(self._settings.pause_ms)
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
        too_long = frame.end - self._speech_end >= samples_of(tuning.CLOSURE_MS)
        goes_on = too_long or not self._fading.quiet
        if score < self._settings.silence_threshold or (goes_on and self._far):
            self._state = _State.PAUSED
            return self._end_if_due()
        return self._resumed(frame, within_word=True) if goes_on else []

    def _paused(self, score: float, frame: AudioFrame) -> list[Signal]:
        if score >= self._settings.speech_threshold and not self._far:
            return self._resumed(frame)
        return self._quiet_word(frame) or self._end_if_due()

    def _quiet_word(self, frame: AudioFrame) -> list[Signal]:
        """Background that has stopped so soon was the end of what the speaker said."""
        start, end = max(self._background.start, self._speech_end), self._background.end
        stopped = frame.end - self._scored_end >= samples_of(tuning.STOPPED_MS)
        if end <= self._speech_end or not stopped or self._background.is_long(frame.end):
            return []
        self._speech_end, self._wait_ms = end, self._settings.unsure_wait_ms
        return [Resumed(start, within_word=True), Paused(end, frame.end)]

    def _resumed(self, frame: AudioFrame, within_word: bool = False) -> list[Signal]:
        if self._fading.quiet:
            self._fading.forget_speaker()  # a voice that goes on this softly has not faded
        self._background.forget()
        self._state = _State.SPEAKING
        self._speech_end = frame.end
        return [Resumed(frame.index, within_word)]

    def _end_if_due(self) -> list[Signal]:
        followed = self._background.end > self._speech_end
        if self._state is _State.FADED or (
            followed and not self._background.is_long(self._heard_end)
        ):
            return []
        if self._heard_end - self._speech_end < samples_of(self._wait_ms):
            return []
        self._state = _State.QUIET
        return [Ended(self._speech_end, self._background.below_db if followed else 0.0)]


class Listener:
    """One microphone stream at ``LISTEN_RATE``, addressed by sample index since it began."""

    def __init__(
        self,
        stages: Stages,
        hearing: Hearing,
        endpointing: Endpointing,
        directions: Directions | None = None,
    ) -> None:
        """``directions``: of an array; speech from elsewhere opens no turn."""
        self._stages = stages
        self._scores = SpeechScores(stages, directions)
        self._nearness = Nearness()
        self._hearing = hearing
        self._resampler = Resampler(LISTEN_RATE, LISTEN_RATE)
        self._taker = TurnTaker(endpointing)
        self._endpointing = endpointing
        self._unexplained: list[Signal] = []
        """Signals of a turn that may be an echo, held back."""
        # A client may ask for more padding later.
        padding_ms = max(endpointing.prefix_padding_ms, MAX_PREFIX_PADDING_MS)
        onset_seconds = (padding_ms + tuning.MAX_BACK_MS) / 1000
        seconds = max(stages.turn.history_seconds, onset_seconds) + HISTORY_SPARE_SECONDS
        self._history = AudioHistory(int(seconds * LISTEN_RATE))

    @property
    def heard_end(self) -> int:
        """Index of the sample after the newest one."""
        return self._history.end

    @property
    def kept_to(self) -> int:
        """As ``heard_end``, without what may be background."""
        return self._taker.kept_to

    @property
    def heard_ms(self) -> int:
        """Length of the stream so far."""
        return ms_of(self._history.end)

    @property
    def hears_itself(self) -> bool:
        """Whether an echo of answers is being removed."""
        return self._hearing.itself

    def hears_the_answer(self) -> bool:
        """Whether the newest turn is found to be an echo after all, now that more was heard."""
        return self.hears_itself and bool(self._hearing.explains(self._taker.noticed))

    @property
    def certainty(self) -> float:
        """Mean of the VAD's scores since the newest turn began, 0 to 1."""
        return self._taker.certainty

    def speech_score(self, end: int) -> float:
        """Mean of the VAD's scores of the newest turn's speech up to sample ``end``, 0 to 1."""
        return self._taker.speech_score(end)

    def moves(self, start: int, end: int) -> bool:
        """Whether the timbre of the sound between two samples moves as a voice's does, as far as
        can be told."""
        short = end - start < tuning.TIMBRE_SHORT_SAMPLES
        least_db = getattr(self._stages.vad, "least_movement_db", 0.0)
        least_db *= tuning.TIMBRE_SHORT if short else 1.0
        first = max(0, start - tuning.TIMBRE_BEFORE_SAMPLES)
        pcm = self.read(first, end)
        known = least_db and len(pcm) == end - first
        found_db = movement_db(pcm, start - first) if known else None
        return found_db is None or found_db >= least_db

    def configure(self, endpointing: Endpointing) -> None:
        """Use other settings from now on."""
        self._taker.configure(endpointing)
        self._endpointing = endpointing

    def resample(self, pcm: Pcm, rate: int) -> Pcm:
        """Convert a client's audio to ``LISTEN_RATE``; keeps state between calls."""
        if rate != self._resampler.from_rate:
            self._resampler = Resampler(rate, LISTEN_RATE)
        return self._resampler.feed(pcm)

    def end_of_input(self) -> Pcm:
        """The resampler's remaining audio, at ``LISTEN_RATE``; the next audio starts afresh."""
        rest = self._resampler.flush()
        self._resampler = Resampler(self._resampler.from_rate, LISTEN_RATE)
        return rest

    async def hear(self, pcm: Pcm) -> AsyncGenerator[list[Signal], None]:
        """Take samples at ``LISTEN_RATE``; yield the signals of each window they complete."""
        now = asyncio.get_running_loop().time()
        for window in self._hearing.windows(pcm, now):
            # The VAD may run on the loop; a burst of audio must not block it.
            await asyncio.sleep(0)
            self._history.append(window.frame.pcm)
            evidence, frame = await self._scores.evidence(window), window.frame
            was_open = self._taker.open
            heard = self._nearness.hear(evidence, frame, was_open, self._endpointing)
            yield self._explained(self._taker.feed(heard.score, frame, *heard[1:]), was_open)

    def _explained(self, signals: list[Signal], was_open: bool) -> list[Signal]:
        """Hold a turn's signals back until it is known whether it is an echo, at most until its
        first pause; forget the turn if it is. While echoes are heard, a sound that ends undecided
        counts as one."""
        begins = not was_open and any(isinstance(each, Started) for each in signals)
        if not self._unexplained and not begins:
            return signals
        self._unexplained += signals
        explained = self._hearing.explains(self._taker.noticed)
        if explained is None and any(isinstance(each, Paused) for each in signals):
            explained = self.hears_itself
        if explained:
            self.forget_turn()
        return [] if explained or explained is None else self.admit()

    def admit(self) -> list[Signal]:
        """Release the signals held back: a possible echo counts as a turn."""
        signals, self._unexplained = self._unexplained, []
        return signals

    @property
    def undecided(self) -> bool:
        """Whether a turn has begun that may be an echo."""
        return bool(self._unexplained)

    @property
    def suspects(self) -> bool:
        """Whether the newest sound may begin a turn that has not been reported yet."""
        return self._taker.suspects or self.undecided

    @property
    def may_be_speech(self) -> bool:
        """As ``suspects``, but every sound that may be speech counts."""
        return self._taker.may_be_speech or self.undecided

    def judge(self, wait_ms: int) -> list[Signal]:
        return self._taker.judge(wait_ms)

    def forget_turn(self) -> None:
        self._taker.reset()
        self.forget_speaker()
        self._unexplained = []

    def forget_speaker(self) -> None:
        """The newest turn was no person's: nothing is learned from its level."""
        self._nearness.forget_turn()

    def read(self, start: int, end: int) -> Pcm:
        return self._history.read(start, end)

    def close(self) -> None:
        self._scores.close()
