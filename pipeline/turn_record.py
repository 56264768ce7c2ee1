"""What became of one turn: when each stage was done, why it was taken as over, what it cost, and
what was heard of its answer. ``pipeline.telemetry.turn_recorder`` makes these from the events of a
session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pipeline.messages import Usage

Interruption = Literal[
    "any speech", "command", "question", "several words", "words", "long", "client"
]
"""Why speech over an answer interrupts it: all speech does (by the policy, or because the answer
has hardly begun); it begins with a command or as a question does; it has several words already;
words when it paused; it lasts too long for a backchannel; the client committed it."""
Ignored = Literal["no words", "backchannel", "too short", "echo", "no command"]
"""Why speech over an answer does not interrupt it."""

Origin = Literal["voice", "commit", "text", "request", "silence", "again", "rest"]
"""What asked for an answer: speech that turn detection found, audio that the client committed,
words that were typed, ``response.create`` with nothing new before it, or the idle timeout. Or
speech ``again`` that has a record already: its answer had hardly begun when a noise ended it. Or
the ``rest`` of an answer, after speech that turned out not to be meant to interrupt it."""

Outcome = Literal[
    "answered",
    "interrupted",
    "cancelled",
    "failed",
    "merged",
    "unanswered",
    "rejected",
    "dropped",
    "shutdown",
]
"""How it ended: answered to the end; interrupted by speech; cancelled by the client; failed
at an engine; answered together with a later turn; never answered; noise without words; thrown away
by the client before it was committed; the session ended in the middle of it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One decision about a pause. ``after_ms``: after the end of the speech before it.

    ``probability`` that the turn is over, ``wait_ms`` of silence that this called for, and the
    ``reasons`` (see ``pipeline.turn_taking.endpointing``)."""

    after_ms: float
    probability: float
    wait_ms: int
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence after speech. ``start_sample``: of the silence, in samples of 16 kHz since the
    session began, to the millisecond. ``lasted_ms`` until speech went on; ``None``: it did not."""

    start_sample: int
    lasted_ms: int | None = None
    judgements: tuple[Judgement, ...] = ()


@dataclass(frozen=True, slots=True)
class IgnoredSpeech:
    """Speech over an answer that did not interrupt it, such as "mm-hm". ``start_sample`` of 16 kHz
    since the session began; ``text``: its words."""

    start_sample: int
    lasted_ms: int
    text: str
    reason: Ignored


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn of the user, with its answer if it got one; or one answer to no speech.

    The ``*_ms`` moments count from the end of speech, by the loop's clock; for an answer that the
    client asked for, from that request. ``None``: it did not happen.
    """

    origin: Origin
    outcome: Outcome
    item_id: str | None = None
    """The user's speech: as it was announced, and as it stands in the conversation."""
    reply_id: str | None = None
    in_conversation: bool = True
    answers_also: tuple[str, ...] = ()
    """Earlier items of the user that are answered together with this one."""

    text: str | None = None
    """What the user said or wrote, as far as it is known."""
    heard: str = ""
    """What the listener has heard of the answer, or read of a written one."""
    error: str | None = None

    speech_start_sample: int | None = None
    speech_end_sample: int | None = None
    """The range that was committed, padding included: samples of 16 kHz since the session began,
    to the millisecond."""
    pauses: tuple[Pause, ...] = ()
    """All of them, the last one too."""

    endpoint_ms: float | None = None
    transcript_ms: float | None = None
    first_token_ms: float | None = None
    first_clause_ms: float | None = None
    first_audio_ms: float | None = None
    last_audio_ms: float | None = None
    """The last piece of audio left."""
    ended_ms: float | None = None
    """The record was closed: the answer is complete, or was cut off."""

    status: str | None = None
    reason: str | None = None
    """Of the answer, as the API has them (``ReplyFinished``)."""
    cut_by: Interruption | None = None
    """Why speech over the answer cut it off."""
    tool_calls: int = 0
    ignored: tuple[IgnoredSpeech, ...] = ()
    """What was said over the answer, and did not interrupt it."""
    usage: Usage = field(default_factory=Usage)

    speculations_begun: int = 0
    speculations_discarded: int = 0
    """Work ahead in pauses, or on partial transcripts."""
    engine_used_s: float = 0.0
    engine_wasted_s: float = 0.0
    """Engine time on what was given, and on what was thrown away unseen."""

    sent_s: float = 0.0
    heard_s: float = 0.0
    """Audio of the answer."""
    clause_faults: int = 0
    clauses_left_out: int = 0
    """Clauses that were cut because they were no speech, and how many of them could not be said."""

    @property
    def judgement(self) -> Judgement | None:
        """The one that stood when the turn ended."""
        judged = [pause.judgements[-1] for pause in self.pauses[-1:] if pause.judgements]
        return judged[0] if judged else None


WANTED = "reachy_voice.turn_record"
"""A response whose metadata says ``true`` here is told its record when it is done."""

MAX_METADATA_PAIRS = 16
"""The API's limit; keys have up to 64 characters, values up to 512."""

_FIGURES = (
    *("outcome", "first_audio_ms", "endpoint_ms", "heard_s", "engine_wasted_s", "engine_used_s"),
    *("transcript_ms", "first_token_ms", "first_clause_ms", "last_audio_ms", "origin"),
)


def as_metadata(record: TurnRecord) -> dict[str, str]:
    """Its figures, the most telling first: flat strings without anything that was said."""
    shown = {name: getattr(record, name) for name in _FIGURES}
    if judged := record.judgement:
        shown["probability"] = judged.probability
        shown["wait_ms"] = judged.wait_ms
        shown["reasons"] = ", ".join(judged.reasons)
    told = {name: _text(value) for name, value in shown.items() if value is not None}
    return {f"reachy_voice.{name}": text for name, text in told.items() if text}


def _text(value: object) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)[:512]
