"""Smart Turn alone on the same pauses: its cut-offs at our latency.

A baseline is computed from the pauses' features (``pauses.sites``), not played, because a cut-off
would not change its state. It has the same VAD, windows, chunks and detector cost; recognition is
free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.harness.pauses import Site, milliseconds, samples
from benchmarks.harness.played_scene import CHUNK_SAMPLES
from benchmarks.harness.statistics import Bootstrap, Floats, interval, quotient
from benchmarks.harness.virtual_engines import EMBEDDED, Delays
from benchmarks.turns.metrics import LONGEST_S, SHORTEST_S, SceneScore
from pipeline.engines.vad.silero import WINDOW_SAMPLES

_WINDOW_MS = milliseconds(WINDOW_SAMPLES)
ASK_AT_MS = 192
"""Silence after which Smart Turn runs: pipecat's 0.2 s, in whole windows."""
TIME_OUTS_MS = (512, 768, 992, 1504, 2016, 3008)
"""Silence that ends a turn whatever Smart Turn says; pipecat waits 3 s."""
THRESHOLDS = tuple(
    float(round(t, 4)) for t in (*np.linspace(0, 0.9, 19), *np.linspace(0.91, 0.995, 18), 1.01)
)


@dataclass(frozen=True, slots=True)
class Due:
    """When a turn ends: after this much silence, plus the time to decide."""

    silence_ms: float
    thought_ms: float = 0.0

    @property
    def total_ms(self) -> float:
        return self.silence_ms + self.thought_ms


Decision = Callable[[Site], Due]
"""Tells when a turn would end if the silence lasted for ever."""


@dataclass(frozen=True, slots=True)
class DecisionOutcome:
    """The result of one decision in one scene. ``latency_ms``: ``None`` if the end was not
    answered."""

    group: str
    latency_ms: float | None
    cuts: int
    pauses: int


@dataclass(frozen=True, slots=True)
class Curve:
    """Operating points from hasty to patient: arrays of shape ``(points, draws)``; draw 0 is the
    data themselves."""

    latency_ms: Floats
    cut_rate: Floats

    def cut_rate_at(self, latency_ms: Floats) -> Floats:
        """Interpolate draw by draw; beyond the ends, use the nearest point."""
        rates = np.empty(len(latency_ms))
        for draw, at_ms in enumerate(latency_ms):
            known = np.isfinite(self.latency_ms[:, draw]) & np.isfinite(self.cut_rate[:, draw])
            latency, rate = self.latency_ms[known, draw], self.cut_rate[known, draw]
            order = np.argsort(latency, kind="stable")
            rates[draw] = np.interp(at_ms, latency[order], rate[order]) if known.any() else np.nan
        return rates


# --- decisions ---------------------------------------------------------------------------------


def timer(wait_ms: float) -> Decision:
    """A turn ends after this much silence."""
    due = Due(float(np.ceil(wait_ms / _WINDOW_MS) * _WINDOW_MS))
    return lambda site: due


def ask_once(threshold: float, time_out_ms: float, delays: Delays = EMBEDDED) -> Decision:
    """Smart Turn runs once, after ``ASK_AT_MS`` of silence; if unsure, a time-out ends the turn."""
    sure, unsure = Due(ASK_AT_MS, 1000 * delays.turn_s), timer(time_out_ms)

    def decide(site: Site) -> Due:
        return sure if site.audio.get(ASK_AT_MS, 0.0) >= threshold else unsure(site)

    return decide


def ask_again(threshold: float, time_out_ms: float, delays: Delays = EMBEDDED) -> Decision:
    """Smart Turn runs repeatedly while the silence grows."""
    unsure = timer(time_out_ms)

    def decide(site: Site) -> Due:
        sure = [
            Due(ms, 1000 * delays.turn_s)
            for ms, probability in site.audio.items()
            if ms >= ASK_AT_MS and probability >= threshold
        ]
        return min([*sure, unsure(site)], key=lambda due: due.total_ms)

    return decide


# --- outcomes ----------------------------------------------------------------------------------


def gate_ms(site: Site, due: Due) -> float | None:
    """When a gate opens, in ms after the labelled end of speech; ``None``: speech resumes before
    the VAD has heard that much silence, or there are no words."""
    if not site.text or site.lag_ms is None:
        return None
    if site.resumed_ms is not None and due.silence_ms > site.resumed_ms:
        return None
    last = site.heard_end + samples(due.silence_ms)
    arrival = -(-last // CHUNK_SAMPLES) * CHUNK_SAMPLES
    return milliseconds(arrival - site.heard_end) + due.thought_ms + site.lag_ms


def outcomes(
    sites: Iterable[Site], scores: Iterable[SceneScore], decide: Decision
) -> Iterator[DecisionOutcome]:
    """One outcome per scene of ``scores``, which define how many pauses count."""
    of_scene: dict[str, list[Site]] = {}
    for site in sites:
        of_scene.setdefault(site.scene, []).append(site)
    for score in scores:
        yield _outcome(score, of_scene.get(score.scene, []), decide)


def _outcome(score: SceneScore, sites: Sequence[Site], decide: Decision) -> DecisionOutcome:
    latency_ms = None
    places: set[int] = set()
    for site in sites:
        gate = gate_ms(site, decide(site))
        if gate is None:
            continue
        if site.label == "end":
            latency_ms = gate if gate >= 0 else None
        elif _counts(site) and site.pause_ms is not None and 0 < gate <= site.pause_ms:
            places.add(_place(site))
    return DecisionOutcome(
        score.group, latency_ms, len(places), sum(p.counts for p in score.pauses)
    )


def _counts(site: Site) -> bool:
    within = (SHORTEST_S - 0.001) * 1000 <= (site.pause_ms or 0) <= (LONGEST_S + 0.001) * 1000
    return site.label == "inner" and within


def _place(site: Site) -> int:
    """The labelled pause; the VAD may hear several in it."""
    return site.heard_end - samples(site.lag_ms or 0)


def point(results: Sequence[DecisionOutcome], bootstrap: Bootstrap) -> tuple[Floats, Floats]:
    """Mean latency and cut-off rate in each draw."""
    groups = [outcome.group for outcome in results]
    answers = [(o.latency_ms, o.group) for o in results if o.latency_ms is not None]
    latencies, answer_groups = [ms for ms, _ in answers], [group for _, group in answers]
    latency = quotient(
        bootstrap.sums(latencies, answer_groups),
        bootstrap.sums(np.ones(len(answers)), answer_groups),
    )
    cuts = bootstrap.sums([float(o.cuts) for o in results], groups)
    pauses = bootstrap.sums([float(o.pauses) for o in results], groups)
    return latency, quotient(cuts, pauses)


def curve(
    decisions: Iterable[Decision],
    sites: Sequence[Site],
    scores: Sequence[SceneScore],
    bootstrap: Bootstrap,
) -> Curve:
    """One point for each decision."""
    points = [point(list(outcomes(sites, scores, decide)), bootstrap) for decide in decisions]
    latencies, rates = zip(*points, strict=True)
    return Curve(np.array(latencies), np.array(rates))


def curves(
    sites: Sequence[Site], scores: Sequence[SceneScore], bootstrap: Bootstrap
) -> list[Curve]:
    """Smart Turn run once and repeatedly, for each time-out with its threshold swept.

    ``scores`` only provide the number of pauses that count, so they serve for any of our settings.
    """
    return [
        curve([policy(t, ms) for t in THRESHOLDS], sites, scores, bootstrap)
        for policy in (ask_once, ask_again)
        for ms in TIME_OUTS_MS
    ]


def compare(
    ours: Sequence[SceneScore], theirs: Sequence[Curve], bootstrap: Bootstrap
) -> dict[str, object]:
    """The cut-off rate of the best curve at our mean latency, and ``ratio``: our rate over it.

    The best curve is chosen again in each draw, which favours the baseline.
    """
    mine = [
        DecisionOutcome(
            s.group,
            s.gate_ms,
            sum(p.cut for p in s.pauses if p.counts),
            sum(p.counts for p in s.pauses),
        )
        for s in ours
    ]
    latency, rate = point(mine, bootstrap)
    n, sources = sum(o.pauses for o in mine), len({o.group for o in mine if o.pauses})
    best: Floats = np.min([each.cut_rate_at(latency) for each in theirs], axis=0)
    return {
        "cut_rate": asdict(interval(best, n, sources)),
        "ratio": asdict(interval(quotient(rate, best), n, sources)),
    }
