"""Engine time that was spent on answers, and on answers that nobody got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.latency.trace import Row, TraceLog

_BEFORE_THE_GATE = ("stt.finish", "turn.score")
_NOT_COUNTED = ("stt.feed", "llm.warm")
_NOTED = ("stt.finish", "llm.reply", "tts.synthesize")
"""What scripted engines note; what they did not note was cancelled before it began."""


@dataclass(frozen=True, slots=True)
class EngineTime:
    """Engine seconds. ``booked_*``: as the server counts them itself."""

    used: float
    wasted: float
    booked_used: float
    booked_wasted: float
    booked_cut_off: float
    """Of ``booked_used``: for answers that had begun and were cut off."""
    discarded: int
    """How many speculations were."""

    @property
    def share(self) -> float | None:
        """Of all, what was wasted."""
        return _share(self.wasted, self.used)

    @property
    def booked_share(self) -> float | None:
        return _share(self.booked_wasted, self.booked_used)


def _share(wasted: float, used: float) -> float | None:
    return wasted / (wasted + used) if wasted + used else None


def engine_time(log: TraceLog) -> EngineTime:
    """What engines did for answers that were given, and for others.

    Counted are final transcripts, judgements, answers and their speech; not what every design must
    do: the VAD, feeding the recogniser, reading ahead. An answer was given if its audio was sent;
    a transcript or judgement is used if it is the last before the gate of one. A call lasts as long
    as its engine noted; one of an engine that notes nothing, as long as the session waited for it.
    """
    given = _given(log)
    used_calls = _last_before_gates(log)
    used = wasted = 0.0
    for call in log.calls:
        if call["call"] in _NOT_COUNTED:
            continue
        seconds = _seconds(log, call)
        before_gate = call["call"] in _BEFORE_THE_GATE
        if id(call) in used_calls if before_gate else call["work"] in given:
            used += seconds
        else:
            wasted += seconds
    ends = [row for row in log.events if row["event"] == "ReplyFinished"]
    thrown = [row for row in log.events if row["event"] == "SpeculationDiscarded"]
    cut_off = [row for row in ends if row["status"] == "cancelled"]
    return EngineTime(used, wasted, _booked(ends), _booked(thrown), _booked(cut_off), len(thrown))


def _booked(rows: Sequence[Row]) -> float:
    return sum(float(row["engine_seconds"]) for row in rows)


def _seconds(log: TraceLog, call: Row) -> float:
    if noted := log.engine(call):
        return noted.seconds
    if log.engines and call["call"] in _NOTED:
        return 0.0
    return float(call["ended"]) - float(call["began"])


def _last_before_gates(log: TraceLog) -> set[int]:
    """The ``id`` of each transcript or judgement that an answer was given upon."""
    gates = [row["at"] for row in log.events if row["event"] == "ReplyStarted"]
    calls = (log.last_call(name, gate) for gate in gates for name in _BEFORE_THE_GATE)
    return {id(call) for call in calls if call}


def _given(log: TraceLog) -> set[int]:
    """The works whose audio was sent."""
    sent = (row["at"] for row in log.events if row["event"] == "ReplyAudio")
    calls = (log.first_speech(at) for at in sent)
    return {int(call["work"]) for call in calls if call}
