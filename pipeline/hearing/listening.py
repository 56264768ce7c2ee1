"""Turns a client's audio into turn signals: resample, remove the echo, score, judge what is near,
and follow the turn (``pipeline.hearing.turn_taker``)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import numpy as np

from pipeline.audio import EMPTY, LISTEN_RATE, AudioFrame, AudioHistory, Pcm, Resampler, ms_of
from pipeline.commands import MAX_PREFIX_PADDING_MS
from pipeline.echo.path import NOTHING_KNOWN, OnsetKind, Playback
from pipeline.engines.stages import Stages
from pipeline.hearing import tuning
from pipeline.hearing.arrivals import AssumedSilence
from pipeline.hearing.client import Hearing
from pipeline.hearing.direction import Directions
from pipeline.hearing.nearness import Nearness, WindowEvidence
from pipeline.hearing.speech_scores import SpeechScores
from pipeline.hearing.timbre import Motor, may_be_voice
from pipeline.hearing.turn_taker import Signal, TurnPause, TurnStart, TurnTaker
from pipeline.settings import Endpointing

HISTORY_SPARE_SECONDS = 2.0
"""Extra history beyond what an onset and the turn detector need: a pause is judged a little late,
and a late onset may last up to a second before it counts."""


class Listener:
    """One microphone stream at ``LISTEN_RATE``, addressed by sample index since it began."""

    def __init__(
        self,
        stages: Stages,
        hearing: Hearing,
        endpointing: Endpointing,
        directions: Directions | None = None,
    ) -> None:
        """``directions``: of a microphone array; speech from outside its sector opens no turn."""
        self._stages = stages
        self._scores = SpeechScores(stages, directions)
        self._nearness = Nearness()
        self._motor = Motor(self.moves)
        self._hearing = hearing
        self._resampler = Resampler(LISTEN_RATE, LISTEN_RATE)
        self._taker = TurnTaker(endpointing)
        self.judge = self._taker.judge
        self.speech_score = self._taker.speech_score
        self.close = self._scores.close
        self._endpointing = endpointing
        self._doubtful: list[Signal] = []
        """Signals of a turn that may be an echo, held back."""
        # A client may ask for more padding later.
        padding_ms = max(endpointing.prefix_padding_ms, MAX_PREFIX_PADDING_MS)
        onset_seconds = (padding_ms + tuning.MAX_BACK_MS) / 1000
        seconds = max(stages.turn.history_seconds, onset_seconds) + HISTORY_SPARE_SECONDS
        self._history = AudioHistory(int(seconds * LISTEN_RATE))
        self.read = self._history.read
        self._room = EMPTY
        """The sound before the newest turn."""
        self._moved = False
        """Whether the timbre of any part of that turn moved, but for the newest."""
        self._taken = 0
        """Samples so far, including those of an incomplete window."""
        self._silence = AssumedSilence()

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
        """Length of what was sent so far."""
        return self.ms_of(self._history.end)

    def ms_of(self, sample: int) -> int:
        """When a sample was sent, in the time of the client's audio."""
        return ms_of(sample - self._silence.before(sample))

    def read_sent(self, start: int, end: int) -> Pcm:
        """As ``read``, without silence that was assumed."""
        ranges = self._silence.between(start, end)
        return np.concatenate((EMPTY, *(self.read(*each) for each in ranges)))

    @property
    def cancels_echo(self) -> bool:
        """Whether an echo of answers is being removed."""
        return self._hearing.cancels_echo

    def hears_the_answer(self) -> bool:
        """Whether the newest turn is found to be an echo after all, now that more was heard."""
        return self.cancels_echo and self._onset_kind == "echo"

    @property
    def certainty(self) -> float:
        """Mean of the VAD's scores of the newest turn, at most of its last two seconds, 0 to 1."""
        return self._taker.certainty

    def moves(self, start: int, end: int) -> bool:
        """Whether the timbre of the sound between two samples moves as a voice's does; True if that
        cannot be told. A long sound, which is a turn, is judged part by part."""
        long = end - start > tuning.TIMBRE_MOST_SAMPLES
        if long and self._moved:
            return True
        room = self._room if long else self.read(start - tuning.TIMBRE_BEFORE_SAMPLES, start)
        sound = self.read(max(start, end - tuning.TIMBRE_MOST_SAMPLES), end)
        least_db = self._stages.vad.least_movement_db
        return may_be_voice(np.concatenate((room, sound)), len(room), least_db)

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

    def assume_silence(self, samples: int) -> None:
        """The next samples to be heard are silence that the client did not send."""
        self._silence.add(self._taken, self._taken + samples)

    async def hear(
        self, pcm: Pcm, playback: Playback = NOTHING_KNOWN
    ) -> AsyncGenerator[list[Signal], None]:
        """Take samples at ``LISTEN_RATE``; yield the signals of each window they complete."""
        now = asyncio.get_running_loop().time()
        self._taken += len(pcm)
        for window in self._hearing.process(pcm, playback, now):
            # The VAD may run on the loop; a burst of audio must not block it.
            await asyncio.sleep(0)
            self._history.append(window.frame.pcm)
            yield self._filter(*self._judge(await self._scores.evidence(window), window.frame))

    def _judge(self, evidence: WindowEvidence, frame: AudioFrame) -> tuple[list[Signal], bool]:
        """The signals of one window, and whether a turn was open before."""
        was_open, settings = self._taker.open, self._endpointing
        is_sound = evidence.score >= settings.silence_threshold
        motor = self._motor.runs(is_sound, frame, self._taker.noticed if was_open else None)
        evidence = replace(evidence, motor=motor)
        score = self._nearness.hear(evidence, frame, was_open, settings)
        signals = self._taker.feed(score.score, frame, *score[1:])
        for each in signals:
            if isinstance(each, TurnStart):
                self._room = self.read(each.start - tuning.TIMBRE_BEFORE_SAMPLES, each.start)
                self._moved = False
        parts, rest = divmod(frame.end - self._taker.noticed, tuning.TIMBRE_MOST_SAMPLES)
        if was_open and parts and rest < len(frame.pcm):
            self._moved = self.moves(self._taker.noticed, frame.end)
        return signals, was_open

    def _filter(self, signals: list[Signal], was_open: bool) -> list[Signal]:
        """Hold a turn's signals back until it is known whether it is an echo, at most until its
        first pause; if it is, forget the turn. A sound that ends undecided counts as an echo while
        echo is being removed."""
        begins = not was_open and any(isinstance(each, TurnStart) for each in signals)
        if not self._doubtful and not begins:
            return signals
        self._doubtful += signals
        kind = self._onset_kind
        if kind == "unknown" and any(isinstance(each, TurnPause) for each in signals):
            kind = "echo" if self.cancels_echo else "speech"
        if kind == "echo":
            self.forget_turn()
        return self.admit() if kind == "speech" else []

    @property
    def _onset_kind(self) -> OnsetKind:
        return self._hearing.classify_onset(self._taker.noticed)

    def admit(self) -> list[Signal]:
        """Release the signals held back: what may be an echo counts as a turn."""
        signals, self._doubtful = self._doubtful, []
        return signals

    @property
    def undecided(self) -> bool:
        """Whether a turn has begun that may be an echo."""
        return bool(self._doubtful)

    @property
    def suspects(self) -> bool:
        """Whether the newest sound may begin a turn that has not been reported yet."""
        return self._taker.suspects or self.undecided

    @property
    def may_be_speech(self) -> bool:
        """As ``suspects``, but every sound that may be speech counts."""
        return self._taker.may_be_speech or self.undecided

    def end_turn(self) -> None:
        """The client ends the newest turn itself."""
        self._taker.reset()
        self._doubtful = []

    def forget_turn(self) -> None:
        self.end_turn()
        self.forget_speaker()

    def forget_speaker(self) -> None:
        """Learn nothing from the newest turn's level: it was not a person's."""
        self._nearness.forget_turn(self._taker.open)
