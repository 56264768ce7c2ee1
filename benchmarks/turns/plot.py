"""The trade-off as a picture: cut-offs against latency, ours and others'.

    python -m benchmarks.turns.plot RESULTS.json... --out benchmarks/results/tradeoff.svg

Each file is what ``benchmarks.turns.score --out`` wrote. The run without overrides is the default,
and is marked; the others show what the knobs do. Drawn as SVG, without a library.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP, _RIGHT = 430, 330, 64, 46, 70, 24
_MOST_MS = {"mean_ms": 1000.0, "p95_ms": 1300.0}
_TITLES = {"mean_ms": "mean", "p95_ms": "P95"}
_MOST_CUT = 0.7
_COLOURS = {
    "reachy-voice": "#0b6e4f",
    "Smart Turn once": "#c8553d",
    "Smart Turn again": "#e0a458",
    "VAD timer": "#6b7280",
}


@dataclass(frozen=True, slots=True)
class Point:
    """One way to set a policy. ``cut_low``, ``cut_high``: 95 % interval, where it is known."""

    mean_ms: float
    p95_ms: float
    cut_rate: float
    name: str = ""
    cut_low: float | None = None
    cut_high: float | None = None
    default: bool = False


@dataclass(slots=True)
class Series:
    """One policy. Its line runs along the points that no other one beats."""

    name: str
    points: list[Point] = field(default_factory=list)


# --- what was measured -------------------------------------------------------------------------


def series_of(results: Sequence[Any], part: str) -> list[Series]:
    """Ours first, then the baselines, of one part (``all``, ``real``, ``synthetic``)."""
    ours = Series("reachy-voice", [_our_point(result, part) for result in results])
    theirs: dict[str, Series] = {}
    for result in results:
        for curve in result.get("curves", {}).get(part, []):
            kind = curve["name"].split(",")[0]
            series = theirs.setdefault(kind, Series(kind))
            series.points += [
                Point(p["mean_ms"], p["p95_ms"], p["cut_rate"], f"{curve['name']}, {p['knob']}")
                for p in curve["points"]
                if None not in (p["mean_ms"], p["p95_ms"], p["cut_rate"])
            ]
    return [ours, *theirs.values()]


def _our_point(result: Any, part: str) -> Point:
    end = result["figures"][part]["end"]["gate_ms"]
    cut = result["figures"][part]["cut_offs"]["inner"]
    name = " ".join(result["overrides"]) or "default"
    return Point(
        end["mean"]["value"],
        end["p95"]["value"],
        cut["value"],
        name,
        cut["low"],
        cut["high"],
        not result["overrides"],
    )


def best(points: Iterable[Point], latency: str) -> list[Point]:
    """Those that no other point beats in both, from fast to slow."""
    front: list[Point] = []
    for point in sorted(points, key=lambda p: (getattr(p, latency), p.cut_rate)):
        if not front or point.cut_rate < front[-1].cut_rate:
            front.append(point)
    return front


# --- the picture -------------------------------------------------------------------------------


def svg(series: Sequence[Series], title: str) -> str:
    """Two panels: against the mean and the P95 of the latency."""
    width = 2 * (_WIDTH + _LEFT) + _GAP + _RIGHT
    height = _TOP + _HEIGHT + 60 + 20 * len(series)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for place, latency in enumerate(_MOST_MS):
        body.append(f'<g transform="translate({_LEFT + place * (_WIDTH + _LEFT + _GAP)},{_TOP})">')
        body += [*_axes(latency), *(line for each in series for line in _drawn(each, latency))]
        body.append("</g>")
    for row, each in enumerate(series):
        y = _TOP + _HEIGHT + 62 + 20 * row
        colour = _COLOURS.get(each.name, "#000")
        body.append(f'<rect x="{_LEFT}" y="{y - 9}" width="18" height="8" fill="{colour}"/>')
        body.append(f'<text x="{_LEFT + 26}" y="{y}">{escape(_legend(each))}</text>')
    return "\n".join([*body, "</svg>", ""])


def _legend(series: Series) -> str:
    if any(point.default for point in series.points):
        return f"{series.name} (ringed: the default, with its 95 % interval)"
    return f"{series.name} (best of all its settings)"


def _x(ms: float, latency: str) -> float:
    return round(min(ms / _MOST_MS[latency], 1.0) * _WIDTH, 1)


def _y(share: float) -> float:
    return round(_HEIGHT * (1 - min(share / _MOST_CUT, 1.0)), 1)


def _axes(latency: str) -> Iterator[str]:
    for ms in range(0, int(_MOST_MS[latency]) + 1, 200):
        x = _x(ms, latency)
        yield f'<path d="M{x},0V{_HEIGHT}" stroke="#e5e7eb"/>'
        yield f'<text x="{x}" y="{_HEIGHT + 18}" text-anchor="middle">{ms}</text>'
    for percent in range(0, int(_MOST_CUT * 100) + 1, 10):
        y = _y(percent / 100)
        yield f'<path d="M0,{y}H{_WIDTH}" stroke="#e5e7eb"/>'
        yield f'<text x="-8" y="{y + 4}" text-anchor="end">{percent} %</text>'
    yield f'<path d="M0,0V{_HEIGHT}H{_WIDTH}" fill="none" stroke="#222"/>'
    caption = f"end of speech to turn confirmed, {_TITLES[latency]}, ms"
    yield f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 38}" text-anchor="middle">{caption}</text>'
    yield (
        f'<text transform="translate(-46,{_HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
        "inner pauses of 0.2 to 1 s that were cut off</text>"
    )


def _drawn(series: Series, latency: str) -> Iterator[str]:
    colour = _COLOURS.get(series.name, "#000")
    line = [
        f"{_x(getattr(point, latency), latency)},{_y(point.cut_rate)}"
        for point in best(series.points, latency)
        if getattr(point, latency) <= _MOST_MS[latency] and point.cut_rate <= _MOST_CUT
    ]
    if line:
        drawn = " ".join(line)
        yield f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>'
    ours = any(point.default for point in series.points)
    for point in series.points if ours else ():
        x, y = _x(getattr(point, latency), latency), _y(point.cut_rate)
        tip = f"<title>{escape(point.name)}</title>"
        yield f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}">{tip}</circle>'
        if point.default and point.cut_low is not None and point.cut_high is not None:
            yield f'<circle cx="{x}" cy="{y}" r="7" fill="none" stroke="{colour}"/>'
            high, low = _y(point.cut_high), _y(point.cut_low)
            yield f'<path d="M{x},{high}V{low}" stroke="{colour}"/>'


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the trade-off of cut-offs and latency")
    parser.add_argument("results", type=Path, nargs="+", help="from benchmarks.turns.score --out")
    parser.add_argument("--part", choices=("all", "real", "synthetic"), default="all")
    parser.add_argument("--title", default="Cut-offs against latency")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    results = [
        result
        for path in arguments.results
        for result in json.loads(path.read_text(encoding="utf-8"))
    ]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    picture = svg(series_of(results, arguments.part), arguments.title)
    arguments.out.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
