"""What is said when an engine fails, or is exchanged: one short sentence, in our own name.

It stands on the wire as an item of its own before the response ends as ``failed``. The conversation
has that item, so that a client can retrieve, truncate or delete it; no prompt does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import numpy as np

from pipeline.audio import EMPTY, Pcm, Resampler
from pipeline.engines.stages import TtsStage, spoken_in
from pipeline.errors import ReachyVoiceError
from pipeline.speaking.delivery import Delivery, ReplyPlan
from pipeline.work import Cancelled, Priority, Work

log = logging.getLogger("reachy_voice.tts")

MOST_S = 4.0
"""Longer nobody waits for it."""
KEPT_AFTER_S = 2.0
"""After this time without audio, what was kept is taken."""


async def say_notice(
    sentence: str,
    plan: ReplyPlan,
    tts: TtsStage,
    delivery: Delivery,
    work: Work,
    sending: asyncio.Event,
) -> None:
    """Say it in place of a spoken answer to the conversation, paced as that would be. Says nothing
    where the voice fails, and waits while ``sending`` is not set."""
    if not sentence or plan.modality == "text" or not plan.in_conversation:
        return
    try:
        async with asyncio.timeout(MOST_S):
            pcm = await _spoken(sentence, plan, tts, work)
    except (ReachyVoiceError, Cancelled, TimeoutError):
        return
    except Exception:
        log.exception("a notice failed")
        return
    if not len(pcm):
        return
    size = plan.output_format.rate * plan.chunk_ms // 1000
    now = asyncio.get_running_loop().time
    delivery.notify(sentence)
    for start in range(0, len(pcm), size):
        if plan.lead_s is not None and (delay := delivery.playback.delay(plan.lead_s, now())):
            await asyncio.sleep(delay)
        await sending.wait()
        delivery.speak_notice(pcm[start : start + size], now())
    delivery.end_notice()


async def _spoken(sentence: str, plan: ReplyPlan, tts: TtsStage, work: Work) -> Pcm:
    """All of it, at the rate of the plan's format."""
    resampler = Resampler(tts.rate, plan.output_format.rate)
    made: list[Pcm] = [EMPTY]
    async with aclosing(tts.synthesize(sentence, plan.voice, plan.speed, work)) as chunks:
        async for pcm in chunks:
            made.append(resampler.feed(pcm))
    return np.concatenate((*made, resampler.flush()))


class KeptSentence:
    """A ``TtsStage`` that can say one sentence even when its engine fails.

    ``keep`` it while the engine works. What is kept has the default voice, at its own pace.
    """

    def __init__(self, tts: TtsStage, sentence: str, language: str = "") -> None:
        """``language``: that the sentence is in, ISO 639-1; empty: the engine's own."""
        self._tts = tts
        self._sentence = sentence
        self._language = language
        self._kept: list[Pcm] = []

    @property
    def rate(self) -> int:
        return self._tts.rate

    @property
    def voices(self) -> Sequence[str]:
        return self._tts.voices

    def in_language(self, language: str) -> KeptSentence:
        """What was kept is the same in all of them: the sentence has a language of its own."""
        other = KeptSentence(spoken_in(self._tts, language), self._sentence, self._language)
        other._kept = self._kept
        return other

    async def keep(self) -> None:
        """Synthesise the sentence, when the engine has nothing else to do."""
        if self._kept or not self._sentence:
            return
        try:
            tts = spoken_in(self._tts, self._language)
            stream = tts.synthesize(self._sentence, "", 1.0, Work(Priority.WARM_UP))
            async with aclosing(stream) as chunks:
                self._kept = [pcm async for pcm in chunks]
        except (ReachyVoiceError, Cancelled) as error:
            log.warning("no sentence is kept for a failing voice: %s", error)

    async def synthesize(
        self, text: str, voice: str, speed: float, work: Work, attempt: int = 0
    ) -> AsyncGenerator[Pcm, None]:
        if text == self._sentence and self._kept:
            for pcm in await self._sure(voice, speed, work):
                yield pcm
            return
        async with aclosing(self._tts.synthesize(text, voice, speed, work, attempt)) as chunks:
            async for pcm in chunks:
                yield pcm

    async def _sure(self, voice: str, speed: float, work: Work) -> list[Pcm]:
        """The sentence in the voice that is asked for, or else as it was kept."""
        stream = self._tts.synthesize(self._sentence, voice, speed, work)
        try:
            async with asyncio.timeout(KEPT_AFTER_S), aclosing(stream) as chunks:
                made = [pcm async for pcm in chunks]
        except (ReachyVoiceError, TimeoutError):
            return self._kept
        return made or self._kept
