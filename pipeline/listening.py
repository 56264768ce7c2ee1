"""From a client's audio to turn signals: resample, cut into windows, score, follow the turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from pipeline.audio import LISTEN_RATE, AudioHistory, Framer, Pcm, Resampler
from pipeline.commands import MAX_PREFIX_PADDING_MS
from pipeline.endpointing import Endpointing
from pipeline.onset import MAX_BACK_MS
from pipeline.stages import VadStreamStage
from pipeline.turns import Signal, TurnTaker

HISTORY_SPARE_SECONDS = 2.0
"""More history than an onset and the turn detector ask for: a pause is judged a little late, and
a late onset may last up to a second before it counts."""


class Listener:
    """One microphone stream at ``LISTEN_RATE``, addressed by sample index since it began."""

    def __init__(
        self,
        vad: VadStreamStage,
        window_samples: int,
        history_seconds: float,
        endpointing: Endpointing,
    ) -> None:
        self._vad = vad
        self._framer = Framer(window_samples)
        self._resampler = Resampler(LISTEN_RATE, LISTEN_RATE)
        self._taker = TurnTaker(endpointing)
        # A client may ask for more padding later.
        padding_ms = max(endpointing.prefix_padding_ms, MAX_PREFIX_PADDING_MS)
        onset_seconds = (padding_ms + MAX_BACK_MS) / 1000
        seconds = max(history_seconds, onset_seconds) + HISTORY_SPARE_SECONDS
        self._history = AudioHistory(int(seconds * LISTEN_RATE))

    @property
    def heard_end(self) -> int:
        """Index of the sample after the newest one."""
        return self._history.end

    def configure(self, endpointing: Endpointing) -> None:
        """Take turns by other settings from now on."""
        self._taker.configure(endpointing)

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
        for frame in self._framer.feed(pcm):
            # The VAD may run on the loop; audio that comes in a burst must not keep it.
            await asyncio.sleep(0)
            self._history.append(frame.pcm)
            score = await self._vad.score(frame.pcm)
            yield self._taker.feed(score, frame)

    @property
    def suspects(self) -> bool:
        """See ``TurnTaker``."""
        return self._taker.suspects

    def judge(self, wait_ms: int) -> list[Signal]:
        return self._taker.judge(wait_ms)

    def forget_turn(self) -> None:
        self._taker.reset()

    def read(self, start: int, end: int) -> Pcm:
        return self._history.read(start, end)
