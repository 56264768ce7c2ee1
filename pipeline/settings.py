"""The settings of a session, as in the YAML: only values, each with its unit and bounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pipeline.messages import Sampling

Policy = Literal["adaptive", "strict"]

Eagerness = Literal["low", "medium", "high"]

_PACE: dict[Eagerness, tuple[float, float, float, int]] = {
    "low": (2.0, 2.0, 4.0, 8000),
    "medium": (1.0, 1.0, 1.0, 4000),
    "high": (0.75, 0.6, 0.5, 2000),
}
"""For each eagerness: factors on the waits for clear, likely and unsure ends, and the longest wait
in ms (the API's limits for semantic turn detection)."""


class Section(BaseModel):
    """Base of every section of the settings: unknown keys and near-miss types are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Endpointing(Section):
    """When a turn begins, pauses and ends. Times are milliseconds of audio."""

    policy: Policy = "adaptive"
    speech_threshold: float = Field(0.5, gt=0, lt=1)
    silence_threshold: float = Field(0.35, gt=0, lt=1)
    onset_ms: int = Field(64, ge=0, le=1000)
    prefix_padding_ms: int = Field(300, ge=0, le=5000)
    pause_ms: int = Field(32, ge=1, le=1000)
    clear_wait_ms: int = Field(160, ge=0, le=10_000)
    likely_wait_ms: int = Field(576, ge=0, le=10_000)
    unsure_wait_ms: int = Field(2496, ge=0, le=10_000)
    confidence: float = Field(0.88, gt=0.5, lt=1)
    mean_pause_ms: int = Field(450, ge=50, le=5000)
    max_utterance_s: float = Field(120.0, gt=0, le=3600)
    background_db: float | None = Field(10.0, ge=3, le=40)
    stall_ms: int = Field(300, ge=50, le=10_000)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.silence_threshold > self.speech_threshold:
            raise ValueError("silence_threshold must not be above speech_threshold")
        if not self.clear_wait_ms <= self.likely_wait_ms <= self.unsure_wait_ms:
            raise ValueError("the waits must rise: clear_wait_ms, likely_wait_ms, unsure_wait_ms")
        return self

    def paced(self, eagerness: Eagerness) -> Self:
        """The same with shorter or longer waits."""
        *factors, longest = _PACE[eagerness]
        names = ("clear_wait_ms", "likely_wait_ms", "unsure_wait_ms")
        changes = {
            name: min(longest, round(getattr(self, name) * factor))
            for name, factor in zip(names, factors, strict=True)
        }
        changes["mean_pause_ms"] = round(self.mean_pause_ms * factors[1])
        return self.model_copy(update=changes)


PolicyName = Literal["any-speech", "words", "commands"]


class BargeIn(Section):
    """When speech over an answer ends it."""

    policy: PolicyName = "words"
    first_look_ms: int = Field(192, ge=0, le=2000)
    look_every_ms: int = Field(64, ge=32, le=2000)
    surely_meant_ms: int = Field(704, ge=100, le=5000)
    wordless_ms: int = Field(640, ge=100, le=5000)


class Speculation(Section):
    """What is done before a turn is known to be over."""

    budget: float = Field(0.3, ge=0, le=1)
    on_partials: Literal["auto", "never", "always"] = "auto"


class Echo(Section):
    """Whether the assistant's own voice is removed from what the microphone hears."""

    cancel: Literal["auto", "never"] = "auto"


WakeMode = Literal["always", "word", "touch"]


class Wake(Section):
    """When the robot listens: always, or only after it was called by a ``word`` or woken by a
    ``touch``, until ``follow_up_s`` after its last answer. ``words``: the calls that wake it, in
    the notation of the ``engine``; ``None``: the engine's own."""

    mode: WakeMode = "always"
    engine: Literal["micro-wakeword", "phrase"] = "micro-wakeword"
    words: tuple[str, ...] | None = Field(None, min_length=1, max_length=8)
    follow_up_s: float = Field(8.0, ge=1, le=120)


@dataclass(frozen=True, slots=True)
class Sector:
    """Directions within half of ``width_deg`` of ``centre_deg``."""

    centre_deg: float
    width_deg: float

    def __contains__(self, azimuth_deg: float) -> bool:
        apart = (azimuth_deg - self.centre_deg + 180) % 360 - 180
        return abs(apart) <= self.width_deg / 2


class Filler(Section):
    """What the robot says while an answer is slow."""

    after_ms: int | None = Field(None, ge=200, le=20_000)
    """How long after the user's speech a filler is said; ``None``: only in an unusually long wait,
    and never before a call."""
    sentences: tuple[str, ...] | None = None
    """Said in turn; ``None``: those of the language."""


@dataclass(frozen=True, slots=True)
class Notices:
    """The server's own sentences in one language, from ``config/languages``; empty: not said."""

    language: str = ""
    """ISO 639-1."""
    apology: str = ""
    exchange_notice: str = ""
    filler_sentences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words of one language that are evidence about a turn, in lower case, from
    ``config/languages``. Any list may be empty.

    Speech over an answer: ``commands`` interrupt it at once; ``openers`` begin questions and
    requests, and never stand alone; ``backchannels`` only show that the user listens, as the
    phrases of ``encouragements`` do. ``continuations`` ask for more of the answer; ``prefaces`` may
    stand before one, ``additions`` after it, and the robot's ``names`` after either. Text with one
    of ``refusals`` is never an agreement. In phrases, ``|`` separates alternatives, what is in
    parentheses may be left out, and ``*ing`` is any word with that ending except a command or an
    opener.

    The end of a turn: ``answers`` are complete alone; ``fillers`` promise more, and so do
    ``starters`` that stand alone or have no full stop; ``leaning`` words need another word, and
    ``leaning_ends`` do if no full stop follows or the language model doubts it.

    What recognisers invent from noise: ``credits``, which take names if they end in ``*``, and
    ``courtesies``.

    ``farewells`` send a robot to sleep that wakes when called; the phrases of ``before_farewells``
    may stand before one, those of ``after_farewells`` on either side.
    """

    language: str = ""
    """ISO 639-1."""
    commands: tuple[str, ...] = ()
    openers: tuple[str, ...] = ()
    backchannels: tuple[str, ...] = ()
    encouragements: tuple[str, ...] = ()
    prefaces: tuple[str, ...] = ()
    continuations: tuple[str, ...] = ()
    additions: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    fillers: tuple[str, ...] = ()
    starters: tuple[str, ...] = ()
    leaning: tuple[str, ...] = ()
    leaning_ends: tuple[str, ...] = ()
    credits: tuple[str, ...] = ()
    courtesies: tuple[str, ...] = ()
    farewells: tuple[str, ...] = ()
    before_farewells: tuple[str, ...] = ()
    after_farewells: tuple[str, ...] = ()


WORD_LISTS = tuple(field.name for field in fields(Lexicon))[1:]


def lexicon_of(lexicons: Sequence[Lexicon], language: str) -> Lexicon:
    """The lexicon of ``language``, an empty one if there is no data; if the language is unknown
    (empty), all lexicons joined."""
    if language:
        return next((each for each in lexicons if each.language == language), Lexicon(language))
    lists = ([getattr(each, name) for each in lexicons] for name in WORD_LISTS)
    return Lexicon("", *(tuple(dict.fromkeys(chain(*each))) for each in lists))


def with_all_commands(lexicons: Sequence[Lexicon], language: str) -> Lexicon:
    """The lexicon of ``language``, with the commands of all others that are not its backchannels:
    the user may switch language to stop the robot."""
    own = lexicon_of(lexicons, language)
    commands = lexicon_of(lexicons, "").commands
    return replace(own, commands=tuple(c for c in commands if c not in own.backchannels))


def with_inventions(lexicons: Sequence[Lexicon], own: Lexicon) -> Lexicon:
    """``own`` with the credits and courtesies of all languages: recognisers invent in any."""
    every = lexicon_of(lexicons, "")
    return replace(own, credits=every.credits, courtesies=every.courtesies)


Accept = Literal["everyone", "known", "front"]
"""Whom the robot answers: everyone, people whose voices it knows, or people in front of it."""

Rule = Callable[[Sequence[str], str, Collection[str]], tuple[str, str] | None]
"""Takes what the user said since the last answer, message by message, its language (empty:
unknown), and the names of the tools that the model knows. Returns the tool that is plainly meant
and its arguments as JSON; ``None``: no tool."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    endpointing: Endpointing = field(default_factory=Endpointing)
    sampling: Sampling = field(default_factory=Sampling)
    tool_instructions: str = ""
    """Added to the instructions of answers that may call tools."""
    speculation: Speculation = field(default_factory=Speculation)
    barge_in: BargeIn = field(default_factory=BargeIn)
    echo: Echo = field(default_factory=Echo)
    accept: Sector | None = None
    """The directions from which people are heard, if there is a microphone array; ``None``: all."""
    people: Accept = "everyone"
    wake: Wake = field(default_factory=Wake)
    lexicons: tuple[Lexicon, ...] = ()
    words: tuple[str, ...] = ()
    """See ``pipeline.hearing.keywords``."""
    notices: tuple[Notices, ...] = ()
    filler: Filler = field(default_factory=Filler)
    lead_ms: int = 250
    chunk_ms: int = 40
    max_items: int = 2000
    partials: bool = False
    watched: bool = False
    rule: Rule | None = None
    clock: Callable[[], float] | None = None
    """Returns seconds since 1970, for the prompt; ``None``: the model is not told the time."""
    apology: str | None = None
    """This and ``exchange_notice`` replace each language's own; ``None``: the language's."""
    exchange_notice: str | None = None

    def notices_in(self, language: str) -> Notices:
        """The sentences of ``language``; if it has none, or is unknown (empty), English ones."""
        by_language = {each.language: each for each in self.notices}
        found = by_language.get(language) or by_language.get("en") or Notices()
        given = {
            "apology": self.apology,
            "exchange_notice": self.exchange_notice,
            "filler_sentences": self.filler.sentences,
        }
        own: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        if own and language:
            own["language"] = language
        return replace(found, **own)

    def filler_sentence(self, number: int, language: str) -> str:
        """The filler for the answer with this number; empty: no filler."""
        sentences = self.notices_in(language).filler_sentences
        return sentences[number % len(sentences)] if sentences else ""
