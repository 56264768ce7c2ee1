"""Transcribes the first words of speech heard asleep, and compares them with the call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

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


class FirstWords:
    """Compares one utterance at a time, in a task of the session."""

    def __init__(
        self,
        context: SessionContext,
        listener: Listener,
        calls: Calls,
        tell: Callable[[SleepUtterance, bool], None],
    ) -> None:
        """``tell(utterance, called)`` gets each result: whether the first words are a call."""
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
        called = False
        try:
            text = (await recognition.transcript(work)).text
            called = bool(text) and await self._called(text, recognition.audio.pcm, work)
        except ReachyVoiceError:  # while it fails, nobody would be understood either
            pass
        finally:
            recognition.stop()
        self._task = None
        self._tell(utterance, called)

    async def prepare(self) -> None:
        """Have the recogniser load what it needs to know a call by its sound, before the first."""
        silence = np.zeros(tuning.FIRST_WORDS_SAMPLES, np.int16)
        with suppress(ReachyVoiceError):  # a call will tell
            await self._called("", silence, Work(Priority.SPECULATIVE))

    async def _called(self, text: str, pcm: Pcm, work: Work) -> bool:
        """Whether the sound, transcribed as ``text``, begins with a call. If other words come
        first, or no call is written, the sound decides where the recogniser can tell."""
        if self._calls.begins(text, 0):
            return True
        stt = self._context.stages.stt
        if not isinstance(stt, PhraseStage):
            return self._calls.begins(text)
        heard = [await stt.begins_with(pcm, call, work) for call in self._calls.texts]
        return any(heard) or (None in heard and self._calls.begins(text))
