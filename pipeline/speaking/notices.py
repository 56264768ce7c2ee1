"""Notices: one short sentence of the server's own, said when an engine fails or is replaced.

On the wire it is a separate item before the response ends as ``failed``. The item is part of the
conversation, so that a client can retrieve, truncate or delete it, but appears in no prompt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

import numpy as np

from pipeline.audio import EMPTY, Pcm, Resampler
from pipeline.engines.stages import TtsStage
from pipeline.errors import ReachyVoiceError
from pipeline.messages import SpeechRequest
from pipeline.speaking import tuning
from pipeline.work import Cancelled, Priority, Work

_MEASURED = "Hello there, this is how I sound."

log = logging.getLogger("reachy_voice.tts")


async def notice(request: SpeechRequest, rate: int, tts: TtsStage, work: Work) -> Pcm:
    """The sentence as speech, at ``rate`` Hz; empty if the voice fails or is too slow."""
    pieces: list[Pcm] = [EMPTY]
    try:
        resampler = Resampler(tts.rate, rate)
        async with (
            asyncio.timeout(tuning.APOLOGY_MOST_S),
            aclosing(tts.synthesize(request, work)) as chunks,
        ):
            async for pcm in chunks:
                pieces.append(resampler.feed(pcm))
    except (ReachyVoiceError, Cancelled, TimeoutError):
        return EMPTY
    except Exception:
        log.exception("a notice failed")
        return EMPTY
    return np.concatenate((*pieces, resampler.flush()))


def _ignore(now: float) -> None:
    pass


class KeptSentences:
    """A ``TtsStage`` for notices: it can say some sentences even while its engine fails.

    Call ``keep`` while the engine works. They are stored in the default voice and pace.
    """

    def __init__(self, tts: TtsStage, sentences: Mapping[str, str]) -> None:
        """``sentences``: sentence -> its language, ISO 639-1; empty: the engine's own. If there are
        none, a sentence is made only to measure the voice."""
        self._tts = tts
        self._sentences = sentences or {_MEASURED: ""}
        self._recordings: dict[str, list[Pcm]] = {}
        self.rtf = 0.0
        """Seconds of work for a second of speech, at best; 0 if the voice makes it in one piece."""

    @property
    def rate(self) -> int:
        return self._tts.rate

    @property
    def voices(self) -> Sequence[str]:
        return self._tts.voices

    async def keep(self) -> None:
        """Synthesise the sentences when the engine has nothing else to do."""
        for text, language in self._sentences.items():
            if text in self._recordings:
                continue
            request = SpeechRequest(text, language=language)
            times: list[float] = []
            try:
                pieces = await self._synthesize(request, Work(Priority.WARM_UP), times.append)
            except (ReachyVoiceError, Cancelled) as error:
                log.warning("the voice could not be tried in advance: %s", error)
                return
            self._recordings[text] = pieces
            # Between the pieces: the time of the first includes waiting for its turn.
            audio_s = sum(map(len, pieces[1:])) / self.rate
            if audio_s:
                rtf = (times[-1] - times[0]) / audio_s
                self.rtf = min(rtf, self.rtf or rtf)
        if self.rtf:
            log.info("the voice takes %.2f s for each second of speech", self.rtf)
        if self.rtf > tuning.RAMP_SLOW:
            log.warning(
                "the voice is slower than speech: answers begin late. "
                "Put it on a GPU (tts.device), or choose a faster one (tts.engine)"
            )

    async def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        """The sentence as requested, or the stored one if that fails."""
        recording = self._recordings.get(request.text)
        try:
            async with asyncio.timeout(tuning.APOLOGY_KEPT_AFTER_S if recording else None):
                pieces = await self._synthesize(request, work)
        except (ReachyVoiceError, TimeoutError):
            if not recording:
                raise
            pieces = []
        for pcm in pieces or recording or ():
            yield pcm

    async def _synthesize(
        self, request: SpeechRequest, work: Work, on_piece: Callable[[float], None] = _ignore
    ) -> list[Pcm]:
        """``on_piece``: called with the time of each piece."""
        pieces: list[Pcm] = []
        async with aclosing(self._tts.synthesize(request, work)) as chunks:
            async for pcm in chunks:
                pieces.append(pcm)
                on_piece(asyncio.get_running_loop().time())
        return pieces
