"""Feeds speech to the recogniser as it is heard, and asks for its text in each pause."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pipeline.audio import EMPTY, LISTEN_RATE, Pcm, Recording
from pipeline.context import SessionContext
from pipeline.engines.contract import Partial, Transcript
from pipeline.engines.stages import Stages, UtteranceStage
from pipeline.errors import EngineCrashed, EngineError, ReachyVoiceError, Rejection, Unreachable
from pipeline.hearing.keywords import Keywords, keywords_of
from pipeline.spoken.language import UNSPACED
from pipeline.work import Cancelled, Work


class StableWords:
    """Turns partial transcripts into append-only text: words that two passes in a row agree on."""

    def __init__(self) -> None:
        self.text = ""
        """All stable words so far."""
        self.newest = ""
        """The newest partial transcript, with the words that may still change."""
        self.settled = False
        """Whether the newest pass found nothing new, so that the text may be complete."""
        self._stable_count = 0
        self._before: list[str] = []

    def feed(self, partial: Partial) -> str:
        """The newly stable words; begins with a space if words came before."""
        words = partial.text.split()
        if not words:
            return ""
        self.newest = partial.text
        stable = max(len(partial.committed.split()), self._agreement(words))
        self.settled = words == self._before
        self._before = words
        more = words[self._stable_count : stable]
        if not more:
            return ""
        glue = " " if self._stable_count else ""
        self._stable_count = stable
        new = glue + " ".join(more)
        self.text += new
        return new

    def _agreement(self, words: list[str]) -> int:
        """How many leading words both passes share; the newest word may still grow."""
        count = 0
        for word, before in zip(words[:-1], self._before, strict=False):
            if word != before:
                break
            count += 1
        return count


OnWords = Callable[[str, StableWords], None]
"""Gets the new words, possibly empty, and all that is known."""


class Recognition:
    """Feeds one utterance to speech-to-text as it is heard; asks for its text at every pause.

    ``keywords`` take the place of their near-misses in every text. ``on_words`` gets the words that
    will not change, as they become known; without it, partial transcripts are not asked for.

    ``begin`` it, and ``stop`` it at the end. Feeding is never cancelled in the middle, so a
    discarded attempt neither loses nor repeats audio. If the engine dies, the next one gets all the
    audio again, once, without partial transcripts, because their words were published. If it
    refuses, or dies again, it gets the audio without the language, which it may not know.
    """

    def __init__(
        self, stages: Stages, language: str, keywords: Keywords, on_words: OnWords | None = None
    ) -> None:
        self._stages = stages
        self._language = language
        self._keywords = keywords
        self._refused_language = ""
        """A language that was left out, because it may be why the engine refused."""
        self._on_words = on_words
        self._stable = StableWords()
        self.work = Work()
        """The work of feeding, partial transcripts included."""
        self._queue: list[Pcm] = []
        self._fed: list[Pcm] = []
        self._begun_again = self._ended = False
        self._feeding = True
        self._changed = asyncio.Event()
        self._utterance: UtteranceStage | None = None
        self._error: ReachyVoiceError | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def audio(self) -> Recording:
        """Everything appended so far."""
        return Recording(np.concatenate((EMPTY, *self._fed, *self._queue)), LISTEN_RATE)

    def begin(self, tasks: asyncio.TaskGroup) -> Recognition:
        """Feed the engine in a task of its own."""
        self._task = tasks.create_task(self.run())
        return self

    def stop(self) -> None:
        """Stop feeding and release the engine."""
        if self._task:
            self._task.cancel()

    def append(self, pcm: Pcm) -> None:
        self._queue.append(pcm)
        self._wake()

    async def run(self) -> None:
        release: Callable[[], None] | None = None
        try:
            release = await self._stages.leases.take()
            while True:
                await self._follow()
        except ReachyVoiceError as error:
            self._error = error
        except Cancelled:
            self._error = EngineError("The utterance was not recognised", why="it was stopped")
        finally:
            self._ended = True
            self._feeding = False
            self._wake()
            if self._utterance:
                self._utterance.close()
            if release:
                release()

    async def transcript(self, work: Work) -> Transcript:
        """The final text of everything appended so far. Raises ``ReachyVoiceError``."""
        while True:
            while (self._queue or self._feeding) and not self._error:
                await self._change()
            if self._error:
                raise self._error
            utterance = self._utterance
            if utterance is None:
                raise EngineError("The utterance was closed before it was recognised")
            try:
                transcript = await utterance.finish(work)
                if self._refused_language:
                    self._stages.refused_languages[self._refused_language] = self._stages.stt
                return replace(transcript, text=self._keywords.put_into(transcript.text))
            except EngineError as error:
                if work.cancelled or not self._begin_again(utterance, error):
                    raise
            except Cancelled:
                raise EngineError(
                    "The utterance was not recognised", why="the engine is stopping"
                ) from None

    async def _follow(self) -> None:
        """Feed one utterance of the engine, until it is lost."""
        utterance: UtteranceStage | None = None
        try:
            with_partials = self._on_words is not None
            utterance = await self._stages.stt.open(self._language, with_partials, self.work)
            self._utterance = utterance
            while self._utterance is utterance:
                await self._feed_all(utterance)
        except EngineError as error:
            if not self._begin_again(utterance, error):
                raise

    def _begin_again(self, utterance: UtteranceStage | None, error: EngineError) -> bool:
        """Begin the utterance again after its engine died or refused. False if it has failed."""
        if self._utterance is not utterance:
            return True
        again = isinstance(error, EngineCrashed) and not self._begun_again
        refused = not again and self._may_refuse_language(utterance, error)
        if self._ended or not (again or refused):
            return False
        if refused:
            self._refused_language, self._language = self._language, ""
        self._begun_again = self._feeding = True
        self._utterance = self._on_words = None
        if utterance:
            utterance.close()
        self._queue, self._fed = [*self._fed, *self._queue], []
        self._wake()
        return True

    def _may_refuse_language(self, utterance: UtteranceStage | None, error: EngineError) -> bool:
        """Whether the engine may have refused to open or to transcribe the utterance because of the
        language. An engine's own errors are plain ``EngineError``; other kinds have other reasons.
        Some servers answer a language that they do not know with HTTP 500."""
        unlisted = bool(self._language) and self._language not in self._stages.stt.languages
        own = type(error) is EngineError or isinstance(error, Rejection | EngineCrashed)
        return unlisted and not isinstance(error, Unreachable) and (own or utterance is None)

    async def _feed_all(self, utterance: UtteranceStage) -> None:
        """Feed what has been appended, then wait for more."""
        self._feeding = True
        while self._queue:
            pcm = np.concatenate(self._queue)
            self._fed += self._queue
            self._queue.clear()
            partial = await utterance.feed(pcm, self.work)
            if self._on_words:
                before = self._stable.settled
                texts = (partial.committed, partial.tentative)
                words = self._stable.feed(Partial(*map(self._keywords.put_into, texts)))
                if words or self._stable.settled != before:
                    self._on_words(words, self._stable)
            if self._utterance is not utterance:
                return
        self._feeding = False
        self._wake()
        await self._change()

    def _wake(self) -> None:
        """Wake all waiting tasks."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self) -> None:
        await self._changed.wait()


def recognition_of(context: SessionContext, on_words: OnWords | None = None) -> Recognition:
    """In the language of the session, with its keywords."""
    return Recognition(context.stages, context.config.language, keywords_of(context), on_words)


def same_words(one: str, other: str) -> bool:
    """Whether two transcripts say the same, apart from case and punctuation."""
    return plain_words(one) == plain_words(other)


def plain_words(text: str) -> list[str]:
    """The words in lower case, without punctuation; hyphens and apostrophes split them. In scripts
    without spaces, each letter counts as a word."""
    return _PLAIN_WORD.findall(text.lower())


def without_accents(text: str) -> str:
    """``text`` as recognisers often write it: "suscribete" for "suscríbete"."""
    letters = (c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))
    return unicodedata.normalize("NFC", "".join(letters))


_PLAIN_WORD = re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])[^\W_])+")
