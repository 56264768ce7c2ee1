"""The protocols that engine authors implement.

Authors write plain blocking code. ``pipeline.workers.worker`` runs it in a thread or a child
process, one step at a time, in priority order; ``pipeline.engines.stages`` gives the rest of the
pipeline typed awaitable versions. An engine's ``build(options, weights)`` loads the model and warms
it up, so that the first real call is as fast as any other.

Scheduling is cooperative. A long call checks its ``CancelToken``; a generator yields ``None``
between slices of work that have no result yet, so that more urgent work can run in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import Pcm
from pipeline.engines.registry import Kind
from pipeline.errors import EngineError, ReachyVoiceError
from pipeline.messages import LlmRequest, SpeechRequest, Usage
from pipeline.turn_record import Aside, Doubt, Invention
from pipeline.work import CancelToken

# --- capabilities ------------------------------------------------------------------------------
#
# An engine has plain attributes with these names. They are read once, when it is built.


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """An engine's capabilities. Its protocol (``Vad``, ``TurnDetector``, ``Stt``, ``Tts``)
    describes them."""

    window_samples: int = 0
    least_movement_db: float = 0.0
    history_seconds: float = 0.0
    streams: bool = False
    rate: int = 0
    """In Hz."""
    voices: Sequence[str] = ()
    """By name."""
    languages: Sequence[str] = ()
    """ISO 639-1, empty if the engine does not list them."""
    hears_phrases: bool = False
    """It is a ``PhraseListener``."""


def info_of(kind: Kind, engine: Any) -> EngineInfo:
    """Raises ``AttributeError`` if the engine lacks an attribute that its kind must have."""
    match kind:
        case Kind.VAD:
            return EngineInfo(engine.window_samples, engine.least_movement_db)
        case Kind.TURN:
            return EngineInfo(history_seconds=engine.history_seconds)
        case Kind.STT:
            phrases = isinstance(engine, PhraseListener)
            languages = tuple(engine.languages)
            return EngineInfo(streams=engine.streams, languages=languages, hears_phrases=phrases)
        case Kind.TTS:
            rate, voices, languages = engine.rate, tuple(engine.voices), tuple(engine.languages)
            return EngineInfo(rate=rate, voices=voices, languages=languages)
        case Kind.LLM | Kind.SPEAKER:
            return EngineInfo()


# --- listening ---------------------------------------------------------------------------------


class VadStream(Protocol):
    """Speech scores for one stream of audio. The caller applies hysteresis."""

    def score(self, pcm: Pcm) -> float:
        """Probability of speech in exactly one window of samples, in order."""
        ...


class Vad(Protocol):
    rate: int
    window_samples: int
    least_movement_db: float
    """A sound whose timbre moves less than this (``hearing.timbre``) is not a voice, even if it
    scores as one. 0: the engine needs no such check."""

    def open(self) -> VadStream: ...


class WakeStream(Protocol):
    """Listens for the words that wake the robot in one stream of audio."""

    def called(self, pcm: Pcm) -> bool:
        """Whether the robot has been called by the end of ``pcm``, the next samples: int16 mono at
        16 kHz, any length. Must be quick, as it runs on the event loop."""
        ...


class WakeWord(Protocol):
    """A wake engine that works on the sound, not on a transcript."""

    calls: Sequence[str]
    """The words that it listens for, in normal spelling."""

    def open(self) -> WakeStream: ...


class TurnDetector(Protocol):
    rate: int
    history_seconds: float
    """How much audio before the pause the model looks at."""

    def score(self, pcm: Pcm, text: str) -> float:
        """Probability that the speaker has finished. ``pcm`` ends with the first silent frames."""
        ...


@dataclass(frozen=True, slots=True)
class Partial:
    """What has been recognised so far: text that will not change, and a tail that may."""

    committed: str = ""
    tentative: str = ""

    @property
    def text(self) -> str:
        return f"{self.committed} {self.tentative}".strip()


@dataclass(frozen=True, slots=True)
class Transcript:
    """The final text of one utterance."""

    text: str
    seconds: float
    """Length of its audio."""
    language: str = ""
    """The language spoken, ISO 639-1, if the engine is sure of it; otherwise the words may show
    it."""
    language_probability: float = 1.0
    """How sure the engine is of the language."""
    exclusion: Invention | Aside | None = None
    """Why the words do not count; the text is then empty. Engines set neither this nor the two
    below."""
    doubt: Doubt | None = None
    """The rejected text and its scores."""
    speaker: str | None = None
    """The name of the person whose voice it is; empty if the voice is unknown, ``None`` if nobody
    asked or it cannot be told."""


class Utterance(Protocol):
    """One utterance being recognised."""

    def feed(self, pcm: Pcm) -> Partial:
        """Take more audio of any length. Returns new text, or an empty ``Partial``."""
        ...

    def finish(self, cancel: CancelToken) -> Transcript:
        """The final text, from one full-context pass over all audio fed so far."""
        ...


class Stt(Protocol):
    rate: int
    languages: Sequence[str]
    """Languages that it recognises, ISO 639-1; empty: not listed. ``open`` gets one of them, or an
    empty string."""
    streams: bool
    """Whether ``feed`` returns partial transcripts, so that these need no separate passes."""

    def open(self, language: str, partials: bool) -> Utterance:
        """``language``: ISO 639-1, or empty for the model's default. ``partials``: whether
        ``feed`` must return partials; if not, it may return nothing and cost less."""
        ...


@runtime_checkable
class PhraseListener(Protocol):
    """A recogniser that can look for given words."""

    def begins_with(self, pcm: Pcm, phrase: str) -> bool | None:
        """Whether up to some seconds of sound begin with ``phrase``, however a transcript of them
        would spell it. ``None``: it cannot tell, as it knows no such words."""
        ...


Embedding = NDArray[np.float32]
"""Where a voice is among all voices: shape ``(n,)``, unit length. Embeddings of one person point in
nearly the same direction."""


class SpeakerEncoder(Protocol):
    rate: int

    def embed(self, pcm: Pcm, cancel: CancelToken) -> Embedding:
        """``pcm``: speech of one person without long pauses, at least half a second."""
        ...


# --- answering ---------------------------------------------------------------------------------


FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Warmed:
    """The result of reading ahead."""

    usage: Usage = field(default_factory=Usage)
    end_probability: float | None = None
    """See ``EndOfTurn``; ``None`` if the last message is not the user's, or the model cannot
    tell."""
    fixed_tokens: int = 0
    """Length of the instructions and tools, which start every prompt."""
    most_tokens: int = 0
    """The longest possible prompt; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class EndOfTurn:
    """How likely it is, 0 to 1, that the user's last words are complete, judging by the words
    alone. The language model gets this for free when it reads them. Each engine's measure is
    calibrated by ``engines.word_scale``. At most once per reply, before everything else; from a
    second model (``engines.llm.judged``) as soon as it is ready."""

    probability: float
    usage: Usage = field(default_factory=Usage, compare=False)
    """The prompt's token counts, in case the answer is never finished."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One complete call."""

    name: str
    arguments: str
    """A JSON object, as text, that fits the tool's schema."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Always the last item of a reply that was not cancelled."""

    reason: FinishReason
    usage: Usage


Delta = EndOfTurn | TextDelta | ToolCall | Finished


class LlmSession(Protocol):
    """One conversation: one KV sequence, kept between replies."""

    def warm(self, request: LlmRequest, cancel: CancelToken) -> Iterator[Warmed | None]:
        """Read the prompt without answering; ``None`` between slices, the result at the end."""
        ...

    def reply(self, request: LlmRequest, cancel: CancelToken) -> Iterator[Delta | None]:
        """Answer in words, calls or both; the text never contains the markup of calls.

        Raises ``PromptTooLong``, ``EngineError``, ``Cancelled``.
        """
        ...

    def close(self) -> None: ...


class Llm(Protocol):
    def open(self) -> LlmSession: ...


class Tts(Protocol):
    rate: int
    voices: Sequence[str]
    languages: Sequence[str]
    """Languages that it speaks, ISO 639-1; empty: not listed. Requests name at most one of them."""

    def synthesize(self, request: SpeechRequest, cancel: CancelToken) -> Iterator[Pcm | None]:
        """Speech as int16 mono at ``rate`` Hz. The first chunk should be short (about 0.2 s); later
        ones may be as long as can be made while the earlier ones play. An engine that samples
        should draw different random numbers for each ``request.take``."""
        ...


Wrong = Literal["runaway", "repetition"]
"""Two of ``pipeline.events.FaultKind``: the voice does not stop, or keeps repeating itself."""


class NotSpeech(EngineError):
    """Raised by an engine that notices itself that a clause went wrong, before the fault is heard.

    From second ``since_s`` on, its audio is not speech. Audio not sent by then is dropped, and the
    rest of the clause is spoken again as take 1.
    """

    def __init__(self, fault: Wrong, since_s: float) -> None:
        super().__init__(
            "The voice made something other than speech of a clause",
            why=f"{fault} from {since_s:.2f} s on",
            fix="If it happens often, split long sentences, or try another tts.voice",
        )
        self.fault: Wrong = fault
        self.since_s = since_s

    def __reduce__(self) -> tuple[Callable[..., ReachyVoiceError], tuple[object, ...]]:
        return type(self), (self.fault, self.since_s)
