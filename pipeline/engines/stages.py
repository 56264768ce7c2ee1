"""The engines as the session sees them: typed and awaitable.

The ``*Stage`` protocols list what a session needs. ``pipeline.workers.stages`` implements them for
engines in workers; engines by URL (``pipeline.engines.by_url``) implement them directly; tests in
virtual time use scripted ones.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from pipeline.audio import Pcm
from pipeline.engines.contract import Delta, Embedding, Partial, Transcript, Warmed
from pipeline.engines.leases import Leases
from pipeline.engines.voices import Person
from pipeline.engines.word_scale import WordScale
from pipeline.messages import LlmRequest, SpeechRequest
from pipeline.spoken.language_codes import asks_to_detect, language_code
from pipeline.work import Work

log = logging.getLogger("reachy_voice.tts")

MOST_TOLD = 20
"""Most languages that the log warns about: clients may ask for any string."""


class VadStreamStage(Protocol):
    async def score(self, pcm: Pcm) -> float: ...

    def close(self) -> None: ...


@runtime_checkable
class VadStage(Protocol):
    @property
    def window_samples(self) -> int: ...

    @property
    def least_movement_db(self) -> float:
        """See ``pipeline.engines.contract.Vad``; 0: no such check."""
        ...

    async def open(self, work: Work) -> VadStreamStage: ...


@runtime_checkable
class TurnStage(Protocol):
    @property
    def history_seconds(self) -> float: ...

    async def score(self, pcm: Pcm, text: str, work: Work) -> float: ...


class UtteranceStage(Protocol):
    async def feed(self, pcm: Pcm, work: Work) -> Partial: ...

    async def finish(self, work: Work) -> Transcript: ...

    def close(self) -> None: ...


@runtime_checkable
class SttStage(Protocol):
    @property
    def streams(self) -> bool: ...

    @property
    def languages(self) -> Sequence[str]: ...

    async def open(self, language: str, partials: bool, work: Work) -> UtteranceStage: ...


@runtime_checkable
class PhraseStage(Protocol):
    """An ``SttStage`` that can look for given words (``contract.PhraseListener``)."""

    async def begins_with(self, pcm: Pcm, phrase: str, work: Work) -> bool | None: ...


@runtime_checkable
class SpeakerStage(Protocol):
    async def embed(self, pcm: Pcm, work: Work) -> Embedding: ...


class ConversationStage(Protocol):
    async def warm(self, request: LlmRequest, work: Work) -> Warmed: ...

    def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]: ...

    def close(self) -> None: ...


@runtime_checkable
class LlmStage(Protocol):
    @property
    def may_load(self) -> bool:
        """Whether a late first word may mean that a server is loading the model."""
        ...

    def open(self) -> ConversationStage: ...


@runtime_checkable
class TtsStage(Protocol):
    @property
    def rate(self) -> int: ...

    @property
    def voices(self) -> Sequence[str]: ...

    def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]: ...


class KeptVoice(TtsStage, Protocol):
    """A voice that keeps the audio of some sentences."""

    rtf: float
    """See ``Stages.voice_rtf``."""


class LanguageChoice:
    """Chooses a language that a voice speaks, and warns once per language that it does not."""

    def __init__(self) -> None:
        self._gaps: set[str] = set()

    def choose(self, language: str, languages: Sequence[str]) -> str:
        """``language`` if it is one of ``languages``; else empty."""
        if language in languages:
            return language
        if language and languages and language not in self._gaps and len(self._gaps) < MOST_TOLD:
            self._gaps.add(language)
            log.warning(
                "The voice does not speak %r and will read it with its own sounds (it speaks: %s). "
                "Choose another voice in `tts`, or set conversation.language",
                language[:20],
                ", ".join(languages),
            )
        return ""


@dataclass(slots=True, eq=False)
class Stages:
    """Everything a session needs to hear, think and speak. Any stage may be replaced at any time;
    code that needs the same stages for longer than one call holds one of ``leases``."""

    vad: VadStage
    turn: TurnStage
    stt: SttStage
    llm: LlmStage
    tts: TtsStage
    leases: Leases = field(default_factory=Leases)
    notice_voice: KeptVoice | None = None
    """A version of ``tts`` that can speak notices even while its engine fails."""
    word_scales: dict[str, WordScale] = field(default_factory=dict)
    """Per measured language: how far to trust the language model on whether words are complete."""
    speaker: SpeakerStage | None = None
    people: tuple[Person, ...] = ()
    """The people whose voices are known. Speakers are told apart only if there are any and
    ``speaker`` runs."""
    refused_languages: dict[str, SttStage] = field(default_factory=dict)
    """Languages that a recogniser refused; it works without them."""

    def hears(self, language: str) -> bool:
        """Whether the recogniser supports ``language``, as far as we know."""
        languages = self.stt.languages
        return (not languages or language in languages) and (
            self.refused_languages.get(language) is not self.stt
        )

    def heard_language(self, asked: Sequence[str], own: str) -> tuple[str, bool]:
        """The language to recognise, and whether it is what the client asked for: the first of
        ``asked`` (as the client spells them) that the recogniser supports, else the server's
        ``own``, or the only one that the recogniser has. Empty: the recogniser detects it."""
        known = self.stt.languages
        if not self.hears(own):
            own = known[0] if len(known) == 1 else ""
        named = [each for each in asked if each.strip()]
        for written in named:
            if asks_to_detect(written):
                return (own if len(known) == 1 else ""), True
            if (code := language_code(written)) and self.hears(code):
                return code, True
        return own, not named

    @property
    def voice_rtf(self) -> float:
        """Seconds of computing per second of speech; 0: not measured."""
        return self.notice_voice.rtf if self.notice_voice else 0.0

    @property
    def notices(self) -> TtsStage:
        """Speaks the server's own sentences (``pipeline.speaking.notices``)."""
        return self.notice_voice or self.tts
