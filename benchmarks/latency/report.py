"""From played turns to figures: percentiles with bootstrap intervals by recording, and bars."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from app.cli.measuring import STAGES, percentile
from benchmarks.latency.run import Machine, Played
from benchmarks.latency.trace import (
    BREAKDOWN,
    STEPS,
    TraceLog,
    breakdown,
    critical_path,
    steps,
)
from benchmarks.latency.waste import EngineTime

Row = Mapping[str, Any]
PERCENTS = (50, 95, 99)
RESAMPLES = 2000
BREAKDOWN_PERCENTS = (50, 90)
FIRST_ANSWER_HEARD_S = 0.5
"""Issue 4: so much of a first answer may be heard where two sentences are answered as one."""

Bars = Mapping[str, float]
"""Dotted path in a summary -> the most it may be."""


# --- statistics --------------------------------------------------------------------------------


def interval(
    values: Sequence[float],
    groups: Sequence[str],
    statistic: Callable[[Sequence[float]], float | None],
    resamples: int = RESAMPLES,
) -> tuple[float, float] | None:
    """A 95 % interval of ``statistic``, resampled by whole groups; ``None`` below two groups.

    Turns of one recording are no independent evidence, so recordings are drawn, not turns.
    """
    members: dict[str, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        members.setdefault(group, []).append(value)
    if len(members) < 2:
        return None
    names = list(members)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(resamples):
        drawn = rng.integers(len(names), size=len(names))
        result = statistic([value for index in drawn for value in members[names[index]]])
        if result is not None:
            found.append(result)
    low, high = np.percentile(found, (2.5, 97.5))
    return float(low), float(high)


def spread(rows: Sequence[Row], key: str) -> dict[str, Any]:
    """n, percentiles and their intervals of ``key``, over the rows that have it."""
    known = [row for row in rows if row.get(key) is not None]
    values = [float(row[key]) for row in known]
    groups = [str(row["group"]) for row in known]
    found: dict[str, Any] = {"n": len(values), "recordings": len(set(groups))}
    for percent in PERCENTS:

        def at(drawn: Sequence[float], percent: int = percent) -> float | None:
            return percentile(drawn, percent)

        found[f"p{percent}"] = at(values)
        found[f"p{percent}_interval"] = interval(values, groups, at)
    return found


def share(rows: Sequence[Row], key: str) -> dict[str, Any]:
    """How many rows have ``key`` true, with an interval."""
    values = [float(row[key]) for row in rows]
    groups = [str(row["group"]) for row in rows]
    found = interval(values, groups, _mean)
    return {"n": len(rows), "count": int(sum(values)), "share": _mean(values), "interval": found}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


# --- rows --------------------------------------------------------------------------------------


def turn_row(played: Played) -> dict[str, Any]:
    """One turn as plain data."""
    turn = played.turn
    return {
        "clip": played.take.name,
        "group": played.take.group,
        "how": {key: _short(value) for key, value in played.take.how.items()},
        "first": played.first,
        "load": played.load,
        "cut_off": turn.cut_offs > 0,
        "voice_to_voice": _short(turn.voice_to_voice_ms),
        **{stage: _short(turn.stages_ms.get(stage)) for stage in STAGES},
        "heard": turn.heard,
        "failure": played.failure,
    }


def traced_row(played: Played, log: TraceLog) -> dict[str, Any]:
    """The same with where its time went, and how much of it was ours, where the engines noted their
    calls."""
    row = turn_row(played)
    moments = played.moments
    if moments is None:
        return row
    row["breakdown"] = {name: _short(ms) for name, ms in breakdown(log, moments).items()}
    if best := critical_path(log, moments):
        row["overhead"] = _short(best.overhead_ms)
        row["gate_due"] = _short((best.gate - moments.end_at) * 1000)
        row["speech_due"] = _short((best.speech - moments.end_at) * 1000)
    return row


def answered_as_one(played: Played, log: TraceLog) -> bool:
    """Whether the last answer was to all that was said, as one message of the user, and no more
    than ``FIRST_ANSWER_HEARD_S`` was heard of an answer before it."""
    moments = played.moments
    chain = log.chain(moments) if moments else None
    call = log.engine(chain.llm) if chain and chain.llm else None
    if call is None or sum(played.heard_s[:-1]) > FIRST_ANSWER_HEARD_S:
        return False
    return all(_mostly_in(text, call.asked) for _, _, text in played.take.said)


def _mostly_in(part: str, whole: str) -> bool:
    """Whether most words of ``part`` are there. Not all: where a word ends in a recording is an
    estimate, so a scripted recogniser may leave one at a border out."""
    wanted, there = Counter(_words(part)), Counter(_words(whole))
    return (wanted & there).total() > wanted.total() / 2


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _short(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


# --- summaries ---------------------------------------------------------------------------------


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The warm turns by stage, the first ones apart."""
    warm = [row for row in rows if not row["first"]]
    first = [row for row in rows if row["first"]]
    first_ms = [row["voice_to_voice"] for row in first if row["voice_to_voice"] is not None]
    stages = (*STAGES, "voice_to_voice")
    found: dict[str, Any] = {
        "ms_after_last_speech_sample": {stage: spread(warm, stage) for stage in stages},
        "cut_offs": share(warm, "cut_off"),
        "without_latency": sum(row["voice_to_voice"] is None for row in warm),
        "first_turn_ms": {"n": len(first), "p50": percentile(first_ms, 50)},
        "first_to_warm_ratio": percentile(_ratios(first, warm), 50),
    }
    if any("overhead" in row for row in warm):
        found["overhead_ms"] = spread(warm, "overhead")
    if traced := [row["breakdown"] for row in warm if row.get("breakdown")]:
        found["moments_ms"] = {name: _few(traced, name) for name in BREAKDOWN}
        in_steps = [steps(moments) for moments in traced]
        found["steps_ms"] = {name: _few(in_steps, name) for name in STEPS}
    return found


def _ratios(first: Sequence[Row], warm: Sequence[Row]) -> list[float]:
    """First turns against warm turns of the very same take, where both have a latency."""
    return [
        cold["voice_to_voice"] / again["voice_to_voice"]
        for cold in first
        for again in warm
        if (cold["clip"], cold["how"]) == (again["clip"], again["how"])
        and cold["voice_to_voice"]
        and again["voice_to_voice"]
    ]


def _few(rows: Sequence[Mapping[str, float]], name: str) -> dict[str, float | None]:
    values = [row[name] for row in rows if name in row]
    few = {f"p{percent}": percentile(values, percent) for percent in BREAKDOWN_PERCENTS}
    return {"n": len(values), **few}


def machine_data(machine: Machine) -> dict[str, Any]:
    before, *during, after = machine.load
    return {
        "load_before": before,
        "load_median": median(during) if during else None,
        "load_max": max(machine.load),
        "load_after": after,
        "core_percent": {who: round(percent, 1) for who, percent in machine.core_percent.items()},
    }


def waste_data(spent: EngineTime) -> dict[str, Any]:
    return {
        "share": spent.share,
        "booked_share": spent.booked_share,
        "used_s": round(spent.used, 3),
        "wasted_s": round(spent.wasted, 3),
        "booked_used_s": round(spent.booked_used, 3),
        "booked_wasted_s": round(spent.booked_wasted, 3),
        "booked_cut_off_s": round(spent.booked_cut_off, 3),
        "speculations_discarded": spent.discarded,
    }


def judged(data: Mapping[str, Any], bars: Bars) -> dict[str, dict[str, Any]]:
    """Each bar with what was measured, and whether it was met; what is unknown is not met."""
    found = {}
    for path, bar in bars.items():
        value: Any = data
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        met = value is not None and value <= bar
        found[path] = {"bar": bar, "measured": value, "met": met}
    return found


# --- on the console ----------------------------------------------------------------------------


def print_summary(console: Console, title: str, data: Mapping[str, Any]) -> None:
    table = Table(f"{title}: ms", box=None, pad_edge=False, title_justify="left")
    for name in ("n", *(f"P{percent} [95 %]" for percent in PERCENTS)):
        table.add_column(name, justify="right")
    rows = dict(data["ms_after_last_speech_sample"])
    if "overhead_ms" in data:
        rows["our overhead"] = data["overhead_ms"]
    for name, row in rows.items():
        if row["n"]:
            cells = [_cell(row[f"p{at}"], row[f"p{at}_interval"]) for at in PERCENTS]
            table.add_row(name.replace("_", " "), str(row["n"]), *cells)
    console.print(table)
    cut = data["cut_offs"]
    console.print(
        f"cut off: {cut['count']} of {cut['n']}, without a latency: {data['without_latency']}"
    )
    if data["first_turn_ms"]["n"]:
        first, ratio = data["first_turn_ms"], _number(data["first_to_warm_ratio"], 2)
        console.print(
            f"first turn after ready: {_number(first['p50'])} ms (n={first['n']}), "
            f"{ratio} x the same turn later"
        )
    for key, title in (("moments_ms", "ms after the last speech sample"), ("steps_ms", "ms for")):
        if key in data:
            print_few(console, title, data[key])


def print_few(console: Console, title: str, data: Mapping[str, Row]) -> None:
    table = Table(title, box=None, pad_edge=False)
    for name in ("n", *(f"P{percent}" for percent in BREAKDOWN_PERCENTS)):
        table.add_column(name, justify="right")
    for name, row in data.items():
        cells = (_number(row[f"p{at}"], 1) for at in BREAKDOWN_PERCENTS)
        table.add_row(name.replace("_", " "), str(row["n"]), *cells)
    console.print(table)


def print_machine(console: Console, data: Mapping[str, Any]) -> None:
    console.print(
        f"load average: {data['load_before']:.2f} before, {_number(data['load_median'], 2)} "
        f"median, {data['load_max']:.2f} at most, {data['load_after']:.2f} after"
    )
    shares = ", ".join(f"{who} {percent:.0f}" for who, percent in data["core_percent"].items())
    console.print(f"per cent of one core: {shares}")


def print_bars(console: Console, bars: Iterable[tuple[str, Row]]) -> None:
    for path, row in bars:
        verdict = "met" if row["met"] else "NOT MET"
        console.print(f"{verdict:<8}{path}: {_number(row['measured'], 3)} (bar {row['bar']:g})")


def _cell(value: float | None, found: tuple[float, float] | None) -> str:
    return _number(value) + (f" [{found[0]:.0f}-{found[1]:.0f}]" if found else "")


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
