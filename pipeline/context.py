"""Shared by all parts of one session: its engines, settings, bus and tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pipeline.bus import Bus
from pipeline.commands import BACKGROUND_DB, SessionConfig
from pipeline.engines.contract import Transcript
from pipeline.engines.stages import Stages
from pipeline.engines.voices import Strangers
from pipeline.events import Refused
from pipeline.settings import (
    Endpointing,
    Lexicon,
    Notices,
    SessionSettings,
    lexicon_of,
    with_all_commands,
)
from pipeline.spoken.language import language_of

log = logging.getLogger("reachy_voice.stt")

MOST_SHOWN_CHARS = 20
"""Most characters shown of an unknown language's name: a client may write anything."""

FEW_WORDS, SURE_OF_FEW_WORDS = 2, 0.95
"""How sure the recogniser must be to change the language over so few words. Whisper Base, with 94
utterances of one or two words by SVOX Pico in the language of the conversation, changes it 10 times
if believed from 0.7 on, and twice from here on."""

LONGEST_TURN_S = 180.0
"""A turn time that was first asked for longer ago belongs to a turn that came to nothing."""


@dataclass(slots=True, eq=False)
class SessionContext:
    stages: Stages
    asked: SessionConfig
    """Replaced when the client configures its session."""
    settings: SessionSettings
    bus: Bus
    tasks: asyncio.TaskGroup
    """They end with the session."""
    new_id: Callable[[str], str]
    """``new_id(prefix)`` is a fresh id such as ``item_…``."""
    heard_language: str = ""
    """The language that the user spoke last, ISO 639-1; empty: not known yet."""
    strangers: Strangers = field(default_factory=Strangers)
    player_lag_s: float = 0.0
    """How long after being sent audio is heard."""
    _turn_at: float | None = None
    _told_languages: tuple[str, ...] = ()
    """The client was told that none of these is recognised."""

    def turn_time(self) -> float | None:
        """The time of the turn under way, in seconds since 1970: that of the first call, because
        the model reads it with the turn, so it must not change. ``None``: the model is not told."""
        if self.settings.clock is None:
            return None
        now = self.settings.clock()
        if self._turn_at is None or now - self._turn_at > LONGEST_TURN_S:
            self._turn_at = now
        return self._turn_at

    def end_turn_time(self) -> float | None:
        """The same, at the end of the turn: the next call begins a new one."""
        at, self._turn_at = self.turn_time(), None
        return at

    @property
    def config(self) -> SessionConfig:
        """The session's settings, with a language that the recogniser takes."""
        language, _ = self._language
        same = language == self.asked.language
        return self.asked if same else replace(self.asked, language=language)

    @property
    def _language(self) -> tuple[str, bool]:
        return self.stages.heard_language(self.asked.asked_languages, self.asked.language)

    def check_language(self) -> None:
        """Tell the client, once for each setting, that its language cannot be recognised."""
        asked = self.asked.asked_languages
        language, as_asked = self._language
        if as_asked or asked == self._told_languages:
            return
        self._told_languages = asked
        known = ", ".join(self.stages.stt.languages)
        why = (
            f"The recogniser does not take the language {asked[0][:MOST_SHOWN_CHARS]!r}"
            f"{f' (it takes: {known})' if known else ''}. "
            f"The session goes on in {repr(language) if language else 'the language heard'}"
        )
        log.warning("%s. Choose another stt.engine, or set the language in the client", why)
        fix = "Set 'language' to one that it takes, or to 'auto'."
        param = "session.audio.input.transcription.language"
        self.refuse(None, "language_not_supported", f"{why}. {fix}", param)

    @property
    def endpointing(self) -> Endpointing:
        """The YAML's endpointing, overridden by the client's turn detection and noise reduction."""
        ours, asked = self.settings.endpointing, self.config
        if asked.noise_reduction:
            background_db = BACKGROUND_DB[asked.noise_reduction]
            ours = ours.model_copy(update={"background_db": background_db})
        return asked.turn_detection.over(ours) if asked.turn_detection else ours

    def note_language(self, transcript: Transcript) -> None:
        """Note the language of what the user said, if the recogniser or the words show it. One or
        two words that show none are often misheard, so they change a known language only if the
        recogniser is very sure."""
        self.check_language()
        shown = language_of(transcript.text)
        reported = transcript.language
        unsure = transcript.language_probability < SURE_OF_FEW_WORDS and reported != shown
        if self.heard_language and unsure and len(transcript.text.split()) <= FEW_WORDS:
            reported = ""
        self.heard_language = reported or shown or self.heard_language

    @property
    def language(self) -> str:
        """The language of the conversation, or else of the user; empty: unknown."""
        return self.config.language or self.heard_language

    @property
    def lexicon(self) -> Lexicon:
        """The words of turn-taking; while the language is not fixed, commands of all languages
        count."""
        lexicons = self.settings.lexicons
        if self.config.language or not self.heard_language:
            return lexicon_of(lexicons, self.config.language)
        return with_all_commands(lexicons, self.heard_language)

    @property
    def notices(self) -> Notices:
        """The server's own sentences, in the language of the session."""
        return self.settings.notices_in(self.language)

    def refuse(
        self, event_id: str | None, code: str, message: str, param: str | None = None
    ) -> None:
        """Tell the client that a command cannot be carried out."""
        self.bus.publish(Refused(event_id, code, message, param))
