"""Where the time of a turn went, and how much of it was ours: from what ``server`` and the
scripted engines noted, and what the client sent and received.

**Overhead** is how much later the first audio reached the client than a perfect orchestration of
the very same engine calls could have brought it. All times are of one clock; of one turn:

- ``heard(n)``: when the client had sent sample ``n`` of its microphone.
- ``paused``: ``heard`` of the first silent window, which tells that speech has stopped.
- Each engine call lasts as long as the engine itself noted, added up over its steps: the transcript
  to its end, the language model to the last word of the first clause, the voice to its first chunk.
- ``transcript``, ``clause``, ``speech``: each call begins the moment the one before it is done (the
  transcript at ``paused``), or when it really began if that was earlier, as with work on partials.
- ``decided``: when the turn detector could be done. It begins at ``paused``, or with the transcript
  if it waited for that (this order is policy), and lasts as long as its call took. If the decision
  that stood was made without it: when the transcript is done.
- ``gate``: the later of ``decided`` and ``heard`` of the silence that the decision asked for. The
  silence counts from where speech was heard to end, up to the end of a window.

    overhead = first audio at the client - max(gate, speech)

What the network, the resampler, framing, queues, threads, the event loop and the client's own
receiving cost is in it. What a better policy or a faster engine would save is not.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.audio import LISTEN_RATE

WINDOW_SAMPLES = 512
"""Of Silero at 16 kHz: silence is counted in these."""
ALIGNED_S = 0.5
"""If the VAD's end of speech is farther from the label, the turn's events were mixed up."""

Row = Mapping[str, Any]

BREAKDOWN = (
    "silence_known",
    "stt_begins",
    "stt_final",
    "llm_begins",
    "first_token",
    "first_clause",
    "tts_begins",
    "tts_first_audio",
    "judged",
    "gate",
    "audio_sent",
    "received",
)
"""Moments of a turn in the order in which they mostly come, in ms after the last speech sample."""


@dataclass(frozen=True, slots=True)
class EngineCall:
    """As the engine noted it: steps of (began, ended, what it gave out)."""

    method: str
    asked: str
    steps: tuple[tuple[float, float, str], ...]

    @property
    def began(self) -> float:
        return self.steps[0][0]

    @property
    def ended(self) -> float:
        return self.steps[-1][1]

    @property
    def seconds(self) -> float:
        return self.until(len(self.steps))

    def until(self, count: int) -> float:
        """Seconds in the first ``count`` steps; what lay between them is not the engine's."""
        return sum(ended - began for began, ended, _ in self.steps[:count])

    def until_given(self, count: int) -> float:
        """Seconds in the steps until piece number ``count`` was given out, or until the last."""
        given = [number for number, step in enumerate(self.steps, start=1) if step[2]]
        return self.until(given[min(count, len(given)) - 1] if given else len(self.steps))


@dataclass(frozen=True, slots=True)
class Sent:
    """What the client sent of one conversation: when, and how many samples were sent by then."""

    at: Sequence[float]
    samples: Sequence[int]
    rate: int

    def heard_at(self, sample: int) -> float | None:
        """When sample ``sample`` of the session, at ``LISTEN_RATE``, had been sent."""
        index = bisect_left(self.samples, math.ceil(sample * self.rate / LISTEN_RATE))
        return self.at[index] if index < len(self.at) else None


@dataclass(frozen=True, slots=True)
class Moments:
    """A turn at the client: when it began to stream it, when the last speech sample was due, and
    when the first audio of the answer to all of it came."""

    began_at: float
    end_at: float
    received_at: float
    sent: Sent


@dataclass(frozen=True, slots=True)
class Critical:
    """A turn as it could have been; see the module. Seconds of the common clock."""

    transcript: float
    clause: float
    speech: float
    decided: float
    gate: float
    received: float

    @property
    def overhead_ms(self) -> float:
        return (self.received - max(self.gate, self.speech)) * 1000


@dataclass(slots=True)
class Chain:
    """The calls and events that led to one answer; ``None``: there was none."""

    pause: Row
    gate: Row
    audio: Row
    judged: Row | None = None
    timeline: Row | None = None
    stt: Row | None = None
    turn: Row | None = None
    llm: Row | None = None
    tts: Row | None = None


@dataclass(slots=True)
class TraceLog:
    """All rows of one server. ``calls`` and ``events`` in the order in which they began."""

    calls: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    engines: list[EngineCall] = field(default_factory=list)

    @classmethod
    def read(cls, trace: Path, engines: Path | None = None) -> TraceLog:
        rows = [json.loads(line) for line in trace.read_text().splitlines()]
        noted = engines.read_text().splitlines() if engines and engines.is_file() else []
        return cls.of(rows, [json.loads(line) for line in noted])

    @classmethod
    def of(cls, rows: Iterable[Row], engines: Iterable[Row] = ()) -> TraceLog:
        rows = list(rows)
        calls = sorted((row for row in rows if "call" in row), key=lambda row: row["began"])
        events = sorted((row for row in rows if "event" in row), key=lambda row: row["at"])
        noted = [
            EngineCall(row["method"], row["asked"], tuple(tuple(step) for step in row["steps"]))
            for row in engines
        ]
        return cls(calls, events, sorted(noted, key=lambda call: call.began))

    def engine(self, call: Row) -> EngineCall | None:
        """What the engine noted of a call that was completed or cut off."""
        method = str(call["call"]).partition(".")[2]
        for noted in self.engines:
            if noted.method == method and call["began"] <= noted.began <= call["ended"]:
                return noted
        return None

    # -- one turn

    def chain(self, turn: Moments) -> Chain | None:
        """What led to the answer of ``turn``; ``None`` if its events are not all there."""
        gate = self._last("ReplyStarted", turn.end_at - ALIGNED_S, turn.received_at)
        if gate is None:
            return None
        audio = self._of_reply("ReplyAudio", gate["reply_id"])
        pause = self._last("SpeechPaused", turn.began_at, gate["at"])
        if audio is None or pause is None:
            return None
        chain = Chain(pause, gate, audio)
        chain.timeline = self._of_reply("Timeline", gate["reply_id"])
        chain.judged = self._last("TurnJudged", pause["at"], gate["at"])
        chain.tts = self.first_speech(audio["at"])
        if chain.tts:
            chain.llm = self.last_call("llm.reply", chain.tts["began"], work=chain.tts["work"])
        chain.stt = self.last_call("stt.finish", gate["at"], since=pause["at"])
        if chain.judged:
            chain.turn = self.last_call("turn.score", chain.judged["at"], since=pause["at"])
        return chain

    def first_speech(self, until: float) -> Row | None:
        """The call that made the first audio of a reply: the first of its piece of work."""
        firsts: dict[int, Row] = {}
        for call in self.calls:
            if call["call"] == "tts.synthesize":
                firsts.setdefault(call["work"], call)
        spoken = [call for call in firsts.values() if call["first"] and call["first"] <= until]
        return max(spoken, key=lambda call: float(call["first"]), default=None)

    def last_call(
        self, name: str, until: float, *, since: float = -math.inf, work: int | None = None
    ) -> Row | None:
        """The last call of that kind within these times; complete, unless its work is given."""
        found = None
        for call in self.calls:
            if call["call"] != name or call["began"] < since:
                continue
            if work is None and call["complete"] and call["ended"] <= until:
                found = call
            if work == call["work"] and call["began"] <= until:
                found = call
        return found

    def _last(self, event: str, since: float, until: float) -> Row | None:
        rows = (row for row in self.events if row["event"] == event and since <= row["at"] <= until)
        return max(rows, key=lambda row: float(row["at"]), default=None)

    def _of_reply(self, event: str, reply_id: str) -> Row | None:
        for row in self.events:
            if row["event"] == event and row["reply_id"] == reply_id:
                return row
        return None


# --- where the time goes -----------------------------------------------------------------------


def breakdown(log: TraceLog, turn: Moments) -> dict[str, float]:
    """The moments of ``BREAKDOWN`` that are known, in ms after the last speech sample."""
    chain = log.chain(turn)
    if chain is None:
        return {}
    moments: dict[str, float | None] = {
        "silence_known": chain.pause["at"],
        "judged": chain.judged["at"] if chain.judged else None,
        "gate": chain.gate["at"],
        "audio_sent": chain.audio["at"],
        "received": turn.received_at,
    }
    if chain.stt:
        moments |= {"stt_begins": chain.stt["began"], "stt_final": chain.stt["ended"]}
    if chain.llm:
        moments |= {"llm_begins": chain.llm["began"], "first_token": chain.llm["first"]}
    if chain.tts:
        moments |= {"tts_begins": chain.tts["began"], "tts_first_audio": chain.tts["first"]}
    line = chain.timeline
    if line and None not in (line["first_clause"], line["first_audio"]):
        after_ms = line["first_clause"] - line["first_audio"]
        moments["first_clause"] = chain.audio["at"] + after_ms / 1000
    return {
        name: (at - turn.end_at) * 1000
        for name in BREAKDOWN
        if (at := moments.get(name)) is not None
    }


STEPS: Mapping[str, tuple[str, str]] = {
    "transcript": ("silence_known", "stt_final"),
    "turn_detector": ("stt_final", "judged"),
    "first_token": ("stt_final", "first_token"),
    "first_clause": ("first_token", "first_clause"),
    "voice": ("tts_begins", "tts_first_audio"),
    "gate_after_speech": ("tts_first_audio", "gate"),
    "sending": ("ready", "audio_sent"),
    "receiving": ("audio_sent", "received"),
}
"""From which moment of ``BREAKDOWN`` to which; negative where the second came first. ``ready``: the
gate is open and speech is there."""


def steps(moments: Mapping[str, float]) -> dict[str, float]:
    """How long the steps of one turn took, in ms."""
    if {"gate", "tts_first_audio"} <= moments.keys():
        moments = {**moments, "ready": max(moments["gate"], moments["tts_first_audio"])}
    return {
        name: moments[end] - moments[begin]
        for name, (begin, end) in STEPS.items()
        if begin in moments and end in moments
    }


# --- overhead ----------------------------------------------------------------------------------


def critical_path(log: TraceLog, turn: Moments) -> Critical | None:
    """The turn as it could have been; ``None`` where a call or an event is missing."""
    chain = log.chain(turn)
    if not chain or not (chain.stt and chain.llm and chain.tts and chain.judged):
        return None
    speech_end_ms = chain.pause["audio_ms"]
    ended_at = turn.sent.heard_at(_window_at(speech_end_ms))
    paused = turn.sent.heard_at(_window_at(speech_end_ms + chain.pause["silence_ms"]))
    due = turn.sent.heard_at(_window_at(speech_end_ms + chain.judged["wait_ms"]))
    if ended_at is None or paused is None or due is None:
        return None
    if abs(ended_at - turn.end_at) > ALIGNED_S:
        return None
    stt, llm, tts = (log.engine(call) for call in (chain.stt, chain.llm, chain.tts))
    if not (stt and llm and tts):
        return None
    transcript = min(stt.began, paused) + stt.seconds
    words = len(tts.asked.split())
    clause = min(llm.began, transcript) + llm.until_given(words)
    speech = min(tts.began, clause) + tts.until_given(1)
    decided = _decided(chain, paused, transcript)
    return Critical(transcript, clause, speech, decided, max(decided, due), turn.received_at)


def _decided(chain: Chain, paused: float, transcript: float) -> float:
    if chain.turn is None or chain.stt is None:
        return transcript
    waited = chain.turn["began"] >= chain.stt["ended"]
    began, ended = float(chain.turn["began"]), float(chain.turn["ended"])
    return min(began, transcript if waited else paused) + ended - began


def _window_at(ms: int) -> int:
    """Sample at the end of the window in which the session is ``ms`` old; events are rounded down
    to milliseconds."""
    return math.ceil(ms * LISTEN_RATE / 1000 / WINDOW_SAMPLES) * WINDOW_SAMPLES
