"""The record of one turn: when each stage was done, why the turn counted as over, its cost, and how
much of the answer was heard. ``pipeline.telemetry.turn_recorder`` makes records from a session's
events.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

from pipeline.messages import Usage

Interruption = Literal["any speech", "command", "question", "words", "long", "client"]
"""Why speech over an answer interrupts it: all speech does (by the policy, or because the answer
has hardly begun); it begins like a command or a question; its words are likely meant, or it had
words when it paused; it is too long for a backchannel; the client committed it."""
Invention = Literal["letters", "too fast", "credits", "repetition", "hum", "hardly speech"]
"""Why words cannot have been said: letters of another language; more than people say in that time;
the credits of subtitles and the like; one phrase over and over; only a hum; few words, or thanks,
from a sound that was hardly speech (``pipeline.hearing.plausibility``)."""
Aside = Literal["call", "farewell", "stranger", "elsewhere", "not called", "background"]
"""Why words that were said are no turn: the robot was only called, or sent to sleep; the speaker is
not enrolled, is not where people are listened to, is not the person who called, or was displaced by
a nearer one."""
Ignored = Literal["no words", "backchannel", "too short", "echo", "no command", Invention, Aside]
"""Why speech over an answer does not interrupt it."""

Origin = Literal["voice", "commit", "text", "request", "silence", "again", "rest", "say"]
"""What triggered the answer: speech found by turn detection, audio committed by the client, typed
words, ``response.create`` with nothing new before it, or the idle timeout. ``again``: speech that
already has a record, because a noise ended its answer when it had hardly begun. ``rest``: the rest
of an answer, after speech that was not meant as an interruption. ``say``: an announcement."""

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
"""How the turn ended: answered to the end; interrupted by speech; cancelled by the client; an
engine failed; answered together with a later turn; never answered; noise without words; discarded
by the client before the commit; the session ended in the middle of it."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Words that do not count, the VAD's mean score over their sound (0 to 1), and the length of
    that sound."""

    text: str
    certainty: float
    speech_s: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """One decision about a pause, ``after_ms`` after the end of the speech before it.

    ``probability`` that the turn is over, the ``wait_ms`` of silence it required, and the
    ``reasons`` (see ``pipeline.turn_taking.endpointing``)."""

    after_ms: float
    probability: float
    wait_ms: int
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence after speech."""

    start_sample: int
    """Start of the silence, in samples at 16 kHz since the session began, to the millisecond."""
    lasted_ms: int | None = None
    """Until speech resumed; ``None``: it did not."""
    judgements: tuple[Judgement, ...] = ()


@dataclass(frozen=True, slots=True)
class IgnoredSpeech:
    """Speech over an answer that did not interrupt it, such as "mm-hm"."""

    start_sample: int
    """At 16 kHz since the session began."""
    lasted_ms: int
    text: str
    reason: Ignored


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn of the user, with its answer if any; or an answer without a turn.

    The ``*_ms`` moments count from the end of speech, by the loop's clock; for an answer requested
    by the client, from that request. ``None``: it did not happen.
    """

    origin: Origin
    outcome: Outcome
    item_id: str | None = None
    """The item of the user's speech: its id as announced, and its id in the conversation."""
    reply_id: str | None = None
    in_conversation: bool = True
    answers_also: tuple[str, ...] = ()
    """Earlier user items that are answered together with this one."""

    text: str | None = None
    """What the user said or wrote, if known."""
    speaker: str | None = None
    """Whose voice it was; empty: nobody enrolled; ``None``: not asked, or too short."""
    exclusion: Invention | Aside | None = None
    """Why what was recognised does not count as said; the text is then empty."""
    doubt: Doubt | None = None
    """What was recognised, if it is an ``Invention``. For the owner, never for a client."""
    heard: str = ""
    """The part of the answer that was heard, or read if it was written."""
    error: str | None = None

    speech_start_sample: int | None = None
    speech_end_sample: int | None = None
    """The committed range with padding: samples at 16 kHz since the session began, to the
    millisecond."""
    pauses: tuple[Pause, ...] = ()
    """All pauses, including the last."""
    background_db: float = 0.0
    """How far below the speaker the speech was that went on after the turn; 0: none did."""

    endpoint_ms: float | None = None
    transcript_ms: float | None = None
    first_token_ms: float | None = None
    first_clause_ms: float | None = None
    first_audio_ms: float | None = None
    last_audio_ms: float | None = None
    """When the last audio was sent."""
    ended_ms: float | None = None
    """When the record was closed: the answer was complete, or cut off."""

    status: str | None = None
    reason: str | None = None
    """Status of the answer, as in the API (``ReplyFinished``)."""
    cut_by: Interruption | None = None
    """Why speech over the answer cut it off."""
    tool_calls: int = 0
    ignored: tuple[IgnoredSpeech, ...] = ()
    """Speech over the answer that did not interrupt it."""
    usage: Usage = field(default_factory=Usage)

    speculations_begun: int = 0
    speculations_discarded: int = 0
    """Speculative work in pauses, or on partial transcripts."""
    engine_used_s: float = 0.0
    engine_wasted_s: float = 0.0
    """Engine time for answers that were used, and for discarded ones."""

    sent_s: float = 0.0
    heard_s: float = 0.0
    """Length of the answer's audio, sent and heard."""
    clause_faults: int = 0
    clauses_left_out: int = 0
    """Clauses cut because they were not speech, and how many of those could not be spoken."""

    @property
    def judgement(self) -> Judgement | None:
        """The judgement in force when the turn ended."""
        judged = [pause.judgements[-1] for pause in self.pauses[-1:] if pause.judgements]
        return judged[0] if judged else None


WANTED = "reachy_voice.turn_record"
"""A response whose metadata sets this to ``true`` gets its record when it is done."""

LATENCY = "speech_to_speech.turn_latency"
"""Sent without being asked for: the robot app's latency panel reads it."""

MAX_METADATA_PAIRS = 16
"""The API's limit on entries; keys have up to 64 characters, values up to 512."""

_FIGURES = (
    *("outcome", "first_audio_ms", "endpoint_ms", "heard_s", "engine_wasted_s", "engine_used_s"),
    *("transcript_ms", "first_token_ms", "first_clause_ms", "last_audio_ms", "origin"),
)


def as_metadata(record: TurnRecord) -> dict[str, str]:
    """The record's figures as flat strings, the most useful first, without any words spoken."""
    shown = {name: getattr(record, name) for name in _FIGURES}
    if judged := record.judgement:
        shown["probability"] = judged.probability
        shown["wait_ms"] = judged.wait_ms
        shown["reasons"] = ", ".join(judged.reasons)
    texts = {name: _text(value) for name, value in shown.items() if value is not None}
    return {f"reachy_voice.{name}": text for name, text in texts.items() if text}


def turn_latency(record: TurnRecord) -> dict[str, str]:
    """The stages of an answer to speech, for clients of Hugging Face's speech-to-speech server:
    compact JSON, in seconds, without keys that are unknown here. Empty for other answers."""
    if record.origin not in ("voice", "commit") or record.item_id is None:
        return {}
    judged, endpoint, clause = record.judgement, record.endpoint_ms, record.first_clause_ms
    made_ahead = endpoint is not None and clause is not None and clause < endpoint
    shown = {
        "version": 2,
        "turn_id": record.item_id,
        "turn_revision": 0,
        "response_key": record.reply_id,
        "status": record.status,
        "e2e_s": _span_s(0.0, record.first_audio_ms),
        "vad_decision_s": _span_s(0.0, endpoint if record.origin == "voice" else None),
        "smart_status": judged and ("complete" if judged.probability >= 0.5 else "incomplete"),
        "stt_s": _span_s(0.0, record.transcript_ms),
        "llm_first_tts_s": _span_s(record.transcript_ms, clause),
        "tts_ttfa_s": None if made_ahead else _span_s(clause, record.first_audio_ms),
    }
    known = {name: value for name, value in shown.items() if value is not None}
    return {LATENCY: json.dumps(known, separators=(",", ":"))}


def _span_s(begin_ms: float | None, end_ms: float | None) -> float | None:
    if begin_ms is None or end_ms is None:
        return None
    return round(max(end_ms - begin_ms, 0.0) / 1000, 6)


def _text(value: object) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)[:512]
