"""From a client's audio to turn signals: resample, take off the echo, score, follow the turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from pipeline.audio import LISTEN_RATE, AudioHistory, Pcm, Resampler
from pipeline.commands import MAX_PREFIX_PADDING_MS
from pipeline.echo.detector import Evidence
from pipeline.echo.path import EchoWindow
from pipeline.engines.stages import Stages, VadStage
from pipeline.errors import ReachyVoiceError
from pipeline.hearing import tuning
from pipeline.hearing.client import Hearing
from pipeline.hearing.direction import Directions
from pipeline.hearing.turn_signals import Paused, Signal, Started, TurnTaker
from pipeline.hearing.vad_memory import VadMemory
from pipeline.settings import Endpointing
from pipeline.work import Cancelled

log = logging.getLogger("reachy_voice.session")

HISTORY_SPARE_SECONDS = 2.0
"""More history than an onset and the turn detector ask for: a pause is judged a little late, and
a late onset may last up to a second before it counts."""


class SpeechScores:
    """How likely each window is speech, and not the echo of an answer.

    Where the engine fails all is silence, so that a turn that is open ends and is answered."""

    def __init__(
        self,
        stages: Stages,
        stage: VadStage,
        vad: VadMemory,
        directions: Directions | None = None,
    ) -> None:
        self._stages = stages
        self._stage = stage
        self._vad = vad
        self._left: tuple[VadMemory, VadMemory] | None = None
        """Hear what is left of one stretch of echo, and that with even more taken off."""
        self._since_echo_samples = 0
        self._rule = Evidence()
        self._directions = directions
        self._deaf = False

    @classmethod
    async def open(cls, stages: Stages, directions: Directions | None = None) -> SpeechScores:
        """``directions``: what an array says; who speaks from elsewhere opens no turn."""
        stage = stages.vad
        return cls(stages, stage, await VadMemory.open(stage), directions)

    async def score(self, window: EchoWindow, turn_is_open: bool, threshold: float) -> float:
        """0 to 1; from ``threshold`` on it counts as speech. In an open turn a doubt is in favour
        of whoever speaks."""
        if self._stage is not self._stages.vad:
            await self._exchange()
        try:
            return await self._score(window, turn_is_open, threshold)
        except Cancelled:
            if self._stage is self._stages.vad:
                raise
            await self._exchange()  # it was closed under this window
            return await self._score(window, turn_is_open, threshold)

    async def _score(self, window: EchoWindow, turn_is_open: bool, threshold: float) -> float:
        score = await self._without_echo(window, turn_is_open, threshold)
        if turn_is_open or self._directions is None:
            return score
        now = asyncio.get_running_loop().time()
        if not self._directions.elsewhere(now):
            return score
        # What others have said is no beginning of what is heard next.
        return 0.0 if self._directions.others(now) else min(score, tuning.NO_SPEECH, threshold / 2)

    async def _without_echo(
        self, window: EchoWindow, turn_is_open: bool, threshold: float
    ) -> float:
        if window.post_filtered is None:
            return await self._after_echo(window.frame.pcm)
        if self._left is None:
            self._left = await self._echo_begins()
        self._since_echo_samples = 0
        first, more = self._left
        score = await self._heard(first, window.frame.pcm)
        second = await self._heard(more, window.post_filtered)
        if self._rule.holds(score, second, window.llr):
            return max(score, second, tuning.SPEECH)
        if turn_is_open:
            return score if window.llr > self._rule.least_llr else min(score, second)
        return (
            min(score, tuning.NO_SPEECH, threshold / 2)
            if window.llr > tuning.EXPLAINED_LLR
            else 0.0
        )

    async def _echo_begins(self) -> tuple[VadMemory, VadMemory]:
        """Whoever speaks then is heard out by the VAD that has heard the beginning."""
        first, more = await VadMemory.open(self._stage), await VadMemory.open(self._stage)
        if not self._vad.silent:
            first, self._vad = self._vad, first
        return first, more

    async def _after_echo(self, pcm: Pcm) -> float:
        """Whoever speaks when an echo ends is heard out, too. After 3 s of that, the VAD that does
        so has heard enough of the room to stay."""
        if self._left and self._left[0].silent:
            self._forget_echo()
        if self._left and self._since_echo_samples >= tuning.HEARD_OUT_SAMPLES:
            self._vad.close()
            self._vad, more = self._left
            self._left = None
            more.close()
        if self._left is None:
            return await self._heard(self._vad, pcm)
        self._since_echo_samples += len(pcm)
        first, more = self._left
        # Its score counts again when the echo goes on.
        await self._heard(more, pcm)
        return await self._heard(first, pcm)

    def _forget_echo(self) -> None:
        for vad in self._left or ():
            vad.close()
        self._left = None

    async def _exchange(self) -> None:
        """There is another VAD now. It begins as a new one does."""
        stage = self._stages.vad
        vad = await VadMemory.open(stage)
        self.close()
        self._stage, self._vad = stage, vad

    async def _heard(self, vad: VadMemory, pcm: Pcm) -> float:
        try:
            score = await vad.score(pcm)
        except ReachyVoiceError as error:
            if not self._deaf:
                log.error("a session hears nothing for now: %s", error)
            score, self._deaf = 0.0, True
        else:
            self._deaf = False
        return score

    def close(self) -> None:
        self._vad.close()
        self._forget_echo()


class Listener:
    """One microphone stream at ``LISTEN_RATE``, addressed by sample index since it began."""

    def __init__(
        self,
        scores: SpeechScores,
        hearing: Hearing,
        history_seconds: float,
        endpointing: Endpointing,
    ) -> None:
        self._scores = scores
        self._hearing = hearing
        self._resampler = Resampler(LISTEN_RATE, LISTEN_RATE)
        self._taker = TurnTaker(endpointing)
        self._threshold = endpointing.speech_threshold
        self._unexplained: list[Signal] = []
        """Signals of a turn that may be an echo, held back."""
        # A client may ask for more padding later.
        padding_ms = max(endpointing.prefix_padding_ms, MAX_PREFIX_PADDING_MS)
        onset_seconds = (padding_ms + tuning.MAX_BACK_MS) / 1000
        seconds = max(history_seconds, onset_seconds) + HISTORY_SPARE_SECONDS
        self._history = AudioHistory(int(seconds * LISTEN_RATE))

    @property
    def heard_end(self) -> int:
        """Index of the sample after the newest one."""
        return self._history.end

    def configure(self, endpointing: Endpointing) -> None:
        """Take turns by other settings from now on."""
        self._taker.configure(endpointing)
        self._threshold = endpointing.speech_threshold

    def resample(self, pcm: Pcm, rate: int) -> Pcm:
        """Bring a client's audio to ``LISTEN_RATE``, with state kept between calls."""
        if rate != self._resampler.from_rate:
            self._resampler = Resampler(rate, LISTEN_RATE)
        return self._resampler.feed(pcm)

    def end_of_input(self) -> Pcm:
        """What the conversion still holds, at ``LISTEN_RATE``; audio that comes next is new."""
        rest = self._resampler.flush()
        self._resampler = Resampler(self._resampler.from_rate, LISTEN_RATE)
        return rest

    async def hear(self, pcm: Pcm) -> AsyncGenerator[list[Signal], None]:
        """Take samples at ``LISTEN_RATE``; yield the signals of each window they complete."""
        now = asyncio.get_running_loop().time()
        for window in self._hearing.windows(pcm, now):
            # The VAD may run on the loop; audio that comes in a burst must not keep it.
            await asyncio.sleep(0)
            self._history.append(window.frame.pcm)
            score = await self._scores.score(window, self._taker.open, self._threshold)
            yield self._explained(self._taker.feed(score, window.frame))

    def _explained(self, signals: list[Signal]) -> list[Signal]:
        """Hold a turn's signals back until it is known whether an echo began it, at most until its
        first pause; forget the turn if one did."""
        if not self._unexplained and not any(isinstance(each, Started) for each in signals):
            return signals
        self._unexplained += signals
        explained = self._hearing.explains(self._taker.noticed)
        if explained:
            self.forget_turn()
            return []
        if explained is None and not any(isinstance(each, Paused) for each in signals):
            return []
        return self.admit()

    def admit(self) -> list[Signal]:
        """The signals held back: what may be an echo counts as a turn."""
        signals, self._unexplained = self._unexplained, []
        return signals

    @property
    def undecided(self) -> bool:
        """Whether a turn has begun that may be an echo."""
        return bool(self._unexplained)

    @property
    def suspects(self) -> bool:
        """Whether what is heard may begin a turn whose signals have not been given out."""
        return self._taker.suspects or self.undecided

    def judge(self, wait_ms: int) -> list[Signal]:
        return self._taker.judge(wait_ms)

    def forget_turn(self) -> None:
        self._taker.reset()
        self._unexplained = []

    def read(self, start: int, end: int) -> Pcm:
        return self._history.read(start, end)
