"""Metrics for Prometheus, collected by observing every session's bus.

No label carries speech, an id, a client's name or an address: every label has a fixed set of
values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NoReturn, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from app.server.process_usage import MIB, ProcessUsage
from pipeline.bus import Bus, Published
from pipeline.events import ClauseFault, SilenceOutcome, SilentAnswer, TranscriptFailed
from pipeline.turn_record import Ignored, Pause, TurnRecord
from pipeline.turn_taking.ending_words import Clue

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of the Prometheus text format."""

PREFIX = "reachy_voice_"

STAGES = ("endpoint", "transcript", "first_token", "first_clause", "first_audio")
"""Moments of a turn record; the last, in a spoken turn, is the voice-to-voice latency."""
STAGE_BUCKETS_S = (
    *(0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8),
    *(1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0),
)
LAG_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

Ending = Literal["client", "lost", "too_slow", "failed", "server"]
"""Why a session ended: the client, its network, its slowness, an internal error, or the server."""

Refusal = Literal["full", "not_ready", "closing", "unauthorized", "forbidden", "other"]
"""Why a client did not get a session."""

CLUES = frozenset({"sound", *get_args(Clue)})
"""Reasons that are counted by name; all others count as ``other``."""

LAG_PERIOD_S = 0.05
"""Stalls shorter than this may fall between two timers."""


class Metrics:
    """All metrics of one server. Use it on the event loop."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._of_server()
        self._of_turns()

    def _of_server(self) -> None:
        counter, gauge = self._counter, self._gauge
        self._open = gauge("sessions_open", "Clients that are connected.")
        self._parked = gauge("sessions_parked", "Disconnected conversations that can be resumed.")
        self._sessions = counter("sessions", "Clients that were admitted.")
        self._resumed = counter("sessions_resumed", "Clients that resumed their conversation.")
        self._ended = counter("sessions_ended", "Sessions that have ended.", by=get_args(Ending))
        refusals = get_args(Refusal)
        self._refused = counter("sessions_refused", "Clients turned away.", reason=refusals)
        self._errors = counter("client_errors", "Error events sent to clients.", code=())
        self._ready = gauge("engine_ready", "1 when the engine is ready.", "engine")
        processes = "of the server and its engines' processes"
        self._rss = gauge("resident_bytes", f"Memory {processes}.")
        self._cpu = gauge("cpu_seconds", f"CPU time {processes} running now.")
        self.lag = self._histogram("event_loop_lag_seconds", "How late timers fire.", LAG_BUCKETS_S)

    def _of_turns(self) -> None:
        counter = self._counter
        self.turns = counter("turns", "What became of each turn.", origin=(), outcome=())
        what = "Pauses in speech, by the evidence for or against a turn end."
        self.pauses = counter("pauses", what, clue=(), ended=())
        what = "From the end of speech, or a request, to each stage of the answer."
        labels = ("stage", "origin")
        self.stages = self._histogram("stage_seconds", what, STAGE_BUCKETS_S, *labels)
        for stage in STAGES:
            self.stages.labels(stage, "voice")
        self.responses = counter("responses", "Answers that ended.", status=(), reason=())
        what = "Speech over answers that did not interrupt them."
        self.ignored = counter("speech_ignored", what, reason=get_args(Ignored))
        self.speculations = counter("speculations", "Speculative work before the end of a turn.")
        what = "Speculative work that was discarded unheard."
        self.discarded = counter("speculations_discarded", what)
        what = "Engine time spent on answers, used or discarded."
        self.engine_seconds = counter("engine_seconds", what, outcome=("given", "discarded"))
        self.tokens = counter("tokens", "Tokens of the language model.", kind=())
        self.tool_calls = counter("tool_calls", "Tool calls in answers.")
        what = "Clauses that were not speech, and were cut."
        self.clause_faults = counter("clause_faults", what, fault=(), left_out=())
        what = "Answers that could not be heard at first."
        self.silent_answers = counter("silent_answers", what, outcome=get_args(SilenceOutcome))
        self.transcripts_failed = counter("transcripts_failed", "Speech without a transcript.")

    # -- what the server reports

    @contextmanager
    def session(self) -> Iterator[None]:
        """A client is connected while the context is open."""
        self._sessions.inc()
        with self._open.track_inprogress():
            yield

    def observe(self, bus: Bus) -> None:
        """Count what happens in the session whose events ``bus`` carries."""

        def count(published: Published) -> None:
            # Most events are audio and words: they return at the first comparison.
            event = published.event
            if type(event) in _COUNTED:
                _COUNTED[type(event)](self, event)

        bus.tap(count)

    def note_resumption(self) -> None:
        self._resumed.inc()

    def note_end(self, by: Ending) -> None:
        self._ended.labels(by).inc()

    def note_refusal(self, reason: Refusal) -> None:
        self._refused.labels(reason).inc()

    def note_error(self, code: str) -> None:
        """``code``: one of our own; clients cannot invent one."""
        self._errors.labels(code).inc()

    def render(
        self, readiness: Mapping[str, str | None], parked: int, usage: ProcessUsage
    ) -> bytes:
        """All metrics, in Prometheus' text format. ``usage`` is slow to measure, so the caller does
        it elsewhere."""
        for engine, problem in readiness.items():
            self._ready.labels(engine).set(problem is None)
        self._parked.set(parked)
        self._rss.set(usage.rss_mib * MIB)
        self._cpu.set(usage.cpu_seconds)
        return generate_latest(self.registry)

    # -- making them

    def _counter(self, name: str, help: str, **labels: Sequence[str]) -> Counter:
        """``labels``: for each name, the values that are shown from the start, as 0."""
        made = Counter(PREFIX + name, help, tuple(labels), registry=self.registry)
        for values in labels.values():
            for value in values:
                made.labels(value)
        return made

    def _gauge(self, name: str, help: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, help, labels, registry=self.registry)

    def _histogram(
        self, name: str, help: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(PREFIX + name, help, labels, buckets=buckets, registry=self.registry)


async def watch_lag(observe: Callable[[float], None]) -> NoReturn:
    """Pass the event loop's lag to ``observe`` again and again, in seconds."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_PERIOD_S
        await asyncio.sleep(LAG_PERIOD_S)
        observe(max(0.0, loop.time() - due))  # the clock's resolution can make it slightly early


def _turn(metrics: Metrics, record: TurnRecord) -> None:
    metrics.turns.labels(record.origin, record.outcome).inc()
    metrics.speculations.inc(record.speculations_begun)
    metrics.discarded.inc(record.speculations_discarded)
    metrics.engine_seconds.labels("given").inc(record.engine_used_s)
    metrics.engine_seconds.labels("discarded").inc(record.engine_wasted_s)
    for pause in record.pauses:
        metrics.pauses.labels(_clue(pause), _ended(record, pause)).inc()
    for ignored in record.ignored:
        metrics.ignored.labels(ignored.reason).inc()
    if record.reply_id is not None:
        _reply(metrics, record)


def _clue(pause: Pause) -> str:
    """The last evidence before the pause ended."""
    reasons = pause.judgements[-1].reasons if pause.judgements else ()
    if not reasons:
        return "none"
    return reasons[-1] if reasons[-1] in CLUES else "other"


def _ended(record: TurnRecord, pause: Pause) -> str:
    if pause.lasted_ms is not None:
        return "no"
    return "unknown" if record.outcome in ("dropped", "shutdown") else "yes"


def _reply(metrics: Metrics, record: TurnRecord) -> None:
    metrics.responses.labels(record.status, record.reason or "").inc()
    for stage in STAGES:
        moment_ms: float | None = getattr(record, f"{stage}_ms")
        if moment_ms is not None:
            metrics.stages.labels(stage, record.origin).observe(moment_ms / 1000)
    metrics.tokens.labels("prompt").inc(record.usage.prompt)
    metrics.tokens.labels("cached").inc(record.usage.cached)
    metrics.tokens.labels("generated").inc(record.usage.generated)
    metrics.tool_calls.inc(record.tool_calls)


def _clause_fault(metrics: Metrics, event: ClauseFault) -> None:
    metrics.clause_faults.labels(event.fault, "yes" if event.left_out else "no").inc()


_COUNTED: Mapping[type, Callable[[Metrics, Any], None]] = {
    TurnRecord: _turn,
    TranscriptFailed: lambda metrics, event: metrics.transcripts_failed.inc(),
    ClauseFault: _clause_fault,
    SilentAnswer: lambda metrics, event: metrics.silent_answers.labels(event.outcome).inc(),
}
