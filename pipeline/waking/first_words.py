"""Transcribes the first words of speech heard asleep, and compares them with the call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

import numpy as np

from pipeline.audio import Pcm, samples_of
from pipeline.context import SessionContext
from pipeline.engines.stages import PhraseStage
from pipeline.errors import ReachyVoiceError
from pipeline.hearing.keywords import Keywords
from pipeline.hearing.listening import Listener
from pipeline.hearing.recognition import Recognition
from pipeline.waking import tuning
from pipeline.waking.calls import Calls
from pipeline.waking.gate import SleepUtterance
from pipeline.work import Priority, Work

CallMatch = Literal["words", "sound"]
"""A call is known by its words, or by its sound alone: its words were misheard."""


class FirstWords:
    """Compares one utterance at a time, in a task of the session."""

    def __init__(
        self,
        context: SessionContext,
        listener: Listener,
        calls: Calls,
        tell: Callable[[SleepUtterance, CallMatch | None], None],
    ) -> None:
        """``tell(utterance, match)`` gets each result: how the first words are a call, if at
        all."""
        self._context = context
        self._listener = listener
        self._calls = calls
        self._tell = tell
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._task is not None

    def read(self, utterance: SleepUtterance) -> None:
        """Begin to transcribe ``utterance`` up to its ``read_to``."""
        padding = samples_of(self._context.endpointing.prefix_padding_ms)
        pcm = self._listener.read(utterance.start - padding, utterance.read_to)
        silence = np.zeros(max(0, tuning.FIRST_WORDS_SAMPLES - len(pcm)), np.int16)
        recognition = Recognition(
            self._context.stages,
            self._context.config.language,
            Keywords((), self._context.lexicon),
        )
        recognition.append(np.concatenate((pcm, silence)))  # short sound is misheard
        self._task = self._context.tasks.create_task(self._compare(utterance, recognition))

    def stop(self) -> None:
        """Cancel the comparison under way, if any."""
        task, self._task = self._task, None
        if task:
            task.cancel()

    async def _compare(self, utterance: SleepUtterance, recognition: Recognition) -> None:
        recognition.begin(self._context.tasks)
        work = Work(Priority.SPECULATIVE)
        match: CallMatch | None = None
        try:
            transcript = await recognition.transcript(work)
            if self._calls.begins(transcript.text):
                match = "words"
            elif transcript.text and await self._sounds_called(recognition.audio.pcm, work):
                match = "sound"
        except ReachyVoiceError:  # while it fails, nobody would be understood either
            pass
        finally:
            recognition.stop()
        self._task = None
        self._tell(utterance, match)

    async def prepare(self) -> None:
        """Have the recogniser load what it needs to know a call by its sound, before the first."""
        silence = np.zeros(tuning.FIRST_WORDS_SAMPLES, np.int16)
        with suppress(ReachyVoiceError):  # a call will tell
            await self._sounds_called(silence, Work(Priority.SPECULATIVE))

    async def _sounds_called(self, pcm: Pcm, work: Work) -> bool:
        stt = self._context.stages.stt
        return isinstance(stt, PhraseStage) and any(
            [await stt.begins_with(pcm, call, work) for call in self._calls.texts]
        )
