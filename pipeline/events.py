"""All observable events, each a frozen dataclass.

The Realtime wire, the console, the metrics, the recorded log and the tests read the same stream
(``pipeline.bus``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.audio import AudioFormat, Pcm
from pipeline.commands import Direction, Modality
from pipeline.items import FunctionCallItem, Item, MessageItem, ToolServerItem
from pipeline.messages import Usage
from pipeline.turn_record import Aside, Doubt, Ignored, Interruption, Invention, TurnRecord

# --- the user's side ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """An utterance opens."""

    item_id: str
    audio_ms: int
    """Its first sample, padding included, since session start."""
    direction_deg: float | None = None
    """Its direction, if there is an array (``pipeline.hearing.direction``)."""
    interrupts: Interruption | None = None
    """Why it interrupts the answer; ``None``: it interrupts nothing."""


@dataclass(frozen=True, slots=True)
class DirectionHeard:
    """A microphone array's report, about ten times a second. Internal; not sent over the wire."""

    direction: Direction


@dataclass(frozen=True, slots=True)
class SpeechPaused:
    """First silent frames: the turn may be over. Internal; not sent over the wire."""

    item_id: str
    audio_ms: int
    silence_ms: int = 0
    """Silence so far."""


@dataclass(frozen=True, slots=True)
class SpeechResumed:
    """Speech resumed before the turn ended; work begun in the pause is discarded. Internal."""

    item_id: str
    audio_ms: int


@dataclass(frozen=True, slots=True)
class TurnJudged:
    """How likely the turn is over, the silence to wait for, and the reasons. Published again
    whenever there is new evidence. Internal."""

    item_id: str
    probability: float
    wait_ms: int
    reasons: tuple[str, ...] = ()


StopReason = Literal["silence", "spoke again", "client"]


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The utterance is over."""

    item_id: str
    audio_ms: int
    """The end of what will be committed."""
    direction_deg: float | None = None
    """Its direction; an array is often too slow for ``SpeechStarted``."""
    why: StopReason = "silence"
    """Silence was long enough (see the last ``TurnJudged``), the user spoke again before the
    commit, or the client committed or cleared the audio."""
    background_db: float = 0.0
    """How far below the speaker the speech was that counted as silence; 0: none did."""


@dataclass(frozen=True, slots=True)
class SpeechIgnored:
    """Speech over an answer did not interrupt it. Internal; not sent over the wire."""

    audio_ms: int
    end_ms: int
    """``audio_ms`` and ``end_ms`` are its start and end since the session began."""
    said: str
    reason: Ignored


@dataclass(frozen=True, slots=True)
class SpeechRejected:
    """The utterance had no words that count, so it becomes no item. Internal."""

    item_id: str
    engine_seconds: float = 0.0
    """What was spent to find that out."""
    exclusion: Invention | Aside | None = None
    """Why words that were recognised do not count."""
    doubt: Doubt | None = None
    speaker: str | None = None
    """For ``doubt`` and ``speaker`` see ``pipeline.engines.contract.Transcript``."""


WakeReason = Literal["word", "touch", "client", "resumed"]
"""The robot was called, or touched; the client decides when speech is meant for the robot; a
conversation that was lost while the robot was awake goes on."""
SleepReason = Literal["start", "silence", "farewell", "client"]
"""The session begins; nobody has spoken for long enough; somebody said so; the client no longer
decides when speech is meant for the robot."""


@dataclass(frozen=True, slots=True)
class Woke:
    """The robot listens from now on."""

    why: WakeReason


@dataclass(frozen=True, slots=True)
class FellAsleep:
    """From now on the robot only notices when it is called or touched."""

    why: SleepReason


@dataclass(frozen=True, slots=True)
class InputCommitted:
    item_id: str
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class InputCleared:
    pass


@dataclass(frozen=True, slots=True)
class IdleTimeout:
    """The idle timeout has passed: the server commits an empty item and speaks."""

    item_id: str
    audio_start_ms: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class TranscriptPartial:
    """``text`` extends the published text of this utterance; it will not change. Comes before the
    commit, and only if partials are enabled."""

    item_id: str
    text: str


@dataclass(frozen=True, slots=True)
class TranscriptReady:
    """The final text of a committed item, transcribed from ``seconds`` of audio."""

    item_id: str
    text: str
    seconds: float
    speaker: str | None = None
    exclusion: Invention | Aside | None = None
    doubt: Doubt | None = None
    """For ``speaker``, ``exclusion`` and ``doubt`` see ``pipeline.engines.contract.Transcript``.
    The last two are not sent over the wire."""


@dataclass(frozen=True, slots=True)
class TranscriptFailed:
    item_id: str
    message: str


# --- the conversation --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ItemAdded:
    """A complete item is now part of the conversation."""

    item: Item
    previous_item_id: str | None
    hidden: bool = False
    """The client is not told."""


@dataclass(frozen=True, slots=True)
class ItemDeleted:
    item_id: str


@dataclass(frozen=True, slots=True)
class ItemRetrieved:
    item: Item


@dataclass(frozen=True, slots=True)
class ItemTruncated:
    item_id: str
    content_index: int
    audio_end_ms: int


# --- tool servers ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolListing:
    """The tools of a server that the client wants are being listed, are known, or cannot be listed,
    as the item's status says (``incomplete``: they cannot)."""

    item: ToolServerItem
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ServerCallBegun:
    """A call to a tool server has begun."""

    item_id: str


@dataclass(frozen=True, slots=True)
class ServerCallEnded:
    """``item`` has the output of a call to a tool server, or an error."""

    item: FunctionCallItem


# --- replies -----------------------------------------------------------------------------------

ReplyStatus = Literal["completed", "cancelled", "incomplete", "failed"]
CancelReason = Literal["turn_detected", "client_cancelled", "resumed", "shutdown"]
"""Why a reply ended early: barge-in, ``response.cancel``, resumed speech, or shutdown."""


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    reply_id: str
    modality: Modality
    in_conversation: bool
    voice: str
    format: AudioFormat
    max_output_tokens: int | None
    metadata: Mapping[str, str] | None
    continues: str = ""
    """The id of the answer, interrupted by mistake, that this reply continues."""
    announces: bool = False
    """Whether it is an announcement, which answers nothing."""


OutputItem = MessageItem | FunctionCallItem
"""The items of an answer."""


@dataclass(frozen=True, slots=True)
class ReplyItemStarted:
    """The assistant begins an item; in the conversation it follows ``previous_item_id``."""

    reply_id: str
    item: OutputItem
    output_index: int
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ReplyArguments:
    """More of the arguments (JSON text) of a call."""

    reply_id: str
    item_id: str
    output_index: int
    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ReplyText:
    """More of the answer's text: written, or the transcript of its speech."""

    reply_id: str
    item_id: str
    output_index: int
    text: str
    expected_s: float = 0.0
    """Length of its speech, as estimated when it begins."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplyAudio:
    """More of the answer's speech, at the rate of its format."""

    reply_id: str
    item_id: str
    output_index: int
    pcm: Pcm
    rate: int


@dataclass(frozen=True, slots=True)
class ReplyHeld:
    """The user may be speaking over the answer; no more of it is sent until that is known.
    Internal, or sent on request; ``talk`` plays its buffer more softly."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class ReplyWentOn:
    """The held answer goes on. Internal, or sent on request."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class OutputBuffer:
    """The speech of a reply begins to play, has played, or was dropped before its end. Published
    only over WebRTC, where the server plays it itself."""

    reply_id: str
    state: Literal["started", "stopped", "cleared"]


@dataclass(frozen=True, slots=True)
class ReplyItemFinished:
    """``item`` in its final form; status ``incomplete`` if the reply was cut."""

    reply_id: str
    item: OutputItem
    output_index: int
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Moments of one reply, in ms after the end of speech (or after the request, if there was no
    speech); ``None`` if a stage did not happen. Wall time, by the loop's clock."""

    reply_id: str
    endpoint: float | None = None
    transcript: float | None = None
    first_token: float | None = None
    first_clause: float | None = None
    first_audio: float | None = None


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    """A reply has ended; published exactly once for every reply that was started."""

    reply_id: str
    status: ReplyStatus
    items: tuple[OutputItem, ...]
    usage: Usage
    reason: CancelReason | Literal["max_output_tokens"] | None = None
    error: str | None = None
    engine_seconds: float = 0.0


FaultKind = Literal["runaway", "silence", "repetition", "gibberish", "late"]
"""In this order: much longer than the text; nothing audible; the same sound again and again; noise
or a tone; too late."""


@dataclass(frozen=True, slots=True)
class ClauseFault:
    """The voice's audio for a clause was not speech, or did not come, and was stopped. Internal;
    never sent, and contains no words."""

    reply_id: str
    fault: FaultKind
    take: int
    """0: the clause is said again, unless all of it was heard."""
    left_out: bool
    """Some of its words will not be said."""


SilenceOutcome = Literal["asked_again", "given_up"]


@dataclass(frozen=True, slots=True)
class SilentAnswer:
    """The model's answer was inaudible (``pipeline.speaking.words``). Either the model was asked
    again, or the answer was given up and the apology said. Internal; not sent over the wire."""

    reply_id: str
    outcome: SilenceOutcome


@dataclass(frozen=True, slots=True)
class SpeculationDiscarded:
    """A speculative reply was discarded unheard; its engine time was wasted. Internal."""

    item_id: str
    engine_seconds: float


# --- recording ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordingBegun:
    """The session is recorded into ``folder`` from now on (``pipeline.recording``). Internal; not
    sent over the wire."""

    folder: str


# --- refusals ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refused:
    """A command cannot be carried out. ``code`` is one of the Realtime API's."""

    event_id: str | None
    code: str
    message: str
    param: str | None = None


@dataclass(frozen=True, slots=True)
class TurnUnderWay:
    """A turn's record so far, when the first audio of its answer is sent. The complete record
    follows when the turn has ended."""

    record: TurnRecord


Event = (
    SpeechStarted
    | DirectionHeard
    | SpeechPaused
    | SpeechResumed
    | TurnJudged
    | SpeechStopped
    | SpeechIgnored
    | SpeechRejected
    | Woke
    | FellAsleep
    | InputCommitted
    | InputCleared
    | IdleTimeout
    | TranscriptPartial
    | TranscriptReady
    | TranscriptFailed
    | ItemAdded
    | ItemDeleted
    | ItemRetrieved
    | ItemTruncated
    | ToolListing
    | ServerCallBegun
    | ServerCallEnded
    | ReplyStarted
    | ReplyItemStarted
    | ReplyArguments
    | ReplyText
    | ReplyAudio
    | ReplyHeld
    | ReplyWentOn
    | OutputBuffer
    | ClauseFault
    | SilentAnswer
    | ReplyItemFinished
    | Timeline
    | ReplyFinished
    | SpeculationDiscarded
    | Refused
    | RecordingBegun
    | TurnUnderWay
    | TurnRecord
)
