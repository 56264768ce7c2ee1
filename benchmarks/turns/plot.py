"""The trade-off as a picture: cut-offs against latency, ours and others', a panel a corpus.

    python -m benchmarks.turns.plot RESULTS.json... --out benchmarks/results/tradeoff.svg

Each file is what ``benchmarks.turns.score --out`` wrote. The run without overrides is the default,
and is marked; the others show what a knob does. Drawn as SVG, without a library, in colours for
light and for dark surroundings.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.turns.baselines import MOST_CUT, MOST_OF_ALONE

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP, _RIGHT = 400, 340, 58, 74, 22, 20
_FROM_MS, _MOST_MS, _MOST_CUT = 100.0, 1100.0, 0.7
_ROW, _LEGEND_TOP = 22, 66
OURS = "reachy-voice"
HOLD = "fixed hold of 0.8 s"
_HOLD_KNOB = "800 ms"
_CLASSES = {
    OURS: "ours",
    "Smart Turn once": "once",
    "Smart Turn again": "again",
    "VAD timer": "timer",
}
_EXPLAINED = {
    OURS: "reachy-voice, its confidence swept; ringed: the default, with its 95 % interval",
    "Smart Turn once": "Smart Turn alone, asked once after 0.2 s; all thresholds and time-outs",
    "Smart Turn again": "Smart Turn alone, asked again and again; all thresholds and time-outs",
    "VAD timer": f"timer on the VAD; diamond: a {HOLD}, as the robot's usual server has it",
}
_BAR = "the bar: at most 12 %, and at most 0.4 of Smart Turn alone (shaded: met)"
_LIGHT = {"page": "#fff", "ink": "#1f2937", "soft": "#6b7280", "grid": "#e5e7eb"}
_LIGHT |= {"ours": "#0b7a55", "once": "#c2410c", "again": "#b7791f", "timer": "#64748b"}
_DARK = {"page": "#0f172a", "ink": "#e5e7eb", "soft": "#94a3b8", "grid": "#2a3650"}
_DARK |= {"ours": "#34d399", "once": "#fb923c", "again": "#facc15", "timer": "#94a3b8"}
_SHAPES = """.grid,.axis,.line,.ring,.dash{fill:none}.line{stroke-width:2}.ring{stroke-width:1.5}
.dash{stroke-width:1.2;stroke-dasharray:5 4}.met{fill-opacity:.12}"""


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


def panels_of(results: Sequence[Any], part: str) -> dict[str, list[Series]]:
    """For each corpus its series, as ``series_of`` gives them."""
    corpora = dict.fromkeys(result["corpus"] for result in results)
    return {
        corpus: series_of([r for r in results if r["corpus"] == corpus], part) for corpus in corpora
    }


def series_of(results: Sequence[Any], part: str) -> list[Series]:
    """Ours first, then the baselines, of one part (``all``, ``real``, ``synthetic``)."""
    ours = Series(OURS, [_our_point(result, part) for result in results])
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


def best(points: Iterable[Point]) -> list[Point]:
    """Those that no other point beats in both mean latency and cut-offs, from fast to slow."""
    front: list[Point] = []
    for point in sorted(points, key=lambda p: (p.mean_ms, p.cut_rate)):
        if not front or point.cut_rate < front[-1].cut_rate:
            front.append(point)
    return front


def bar(series: Sequence[Series]) -> list[tuple[float, float]]:
    """Mean latency and the highest cut-off rate that meets the bar there, from fast to slow;
    nothing where Smart Turn alone was not scored."""
    alone = [p for each in series if each.name.startswith("Smart Turn") for p in each.points]
    return [(p.mean_ms, min(MOST_CUT, MOST_OF_ALONE * p.cut_rate)) for p in best(alone)]


def _style() -> str:
    dark = f"@media(prefers-color-scheme:dark){{{_coloured(_DARK)}}}"
    return f"{_SHAPES}\n{_coloured(_LIGHT)}\n{dark}"


def _coloured(colours: dict[str, str]) -> str:
    rules = [f".{name}{{fill:{colours[name]}}}" for name in ("page", "ink", "soft")]
    rules += [f".grid{{stroke:{colours['grid']}}}.axis{{stroke:{colours['soft']}}}"]
    rules += [f".met{{fill:{colours['ours']}}}.dash.bar{{stroke:{colours['ours']}}}"]
    for name in _CLASSES.values():
        rules.append(f".line.{name},.ring.{name}{{stroke:{colours[name]}}}")
        rules.append(f".dot.{name}{{fill:{colours[name]}}}")
    return "".join(rules)


# --- the picture -------------------------------------------------------------------------------


def svg(panels: dict[str, list[Series]], title: str) -> str:
    """One panel beside the other, and below them what the lines are."""
    names = list(dict.fromkeys(each.name for panel in panels.values() for each in panel))
    width = len(panels) * (_LEFT + _WIDTH + _GAP) + _RIGHT
    height = _TOP + _HEIGHT + _LEGEND_TOP + _ROW * (len(names) + 1)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="system-ui,sans-serif" font-size="12">',
        f"<style>{_style()}</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
        f'<text class="ink" x="{_LEFT}" y="30" font-size="16" font-weight="600">{escape(title)}'
        "</text>",
    ]
    for place, (corpus, series) in enumerate(panels.items()):
        x = _LEFT + place * (_LEFT + _WIDTH + _GAP)
        body.append(f'<g transform="translate({x},{_TOP})">')
        body += [*_axes(corpus), *_drawn_bar(bar(series))]
        body += [line for each in reversed(series) for line in _drawn(each)]
        body.append("</g>")
    body += _legend(names)
    return "\n".join([*body, "</svg>", ""])


def _legend(names: Sequence[str]) -> Iterator[str]:
    for row, name in enumerate([*names, _BAR]):
        y = _TOP + _HEIGHT + _LEGEND_TOP + _ROW * row
        style = "dash bar" if name == _BAR else f"line {_CLASSES[name]}"
        yield f'<path class="{style}" d="M{_LEFT},{y - 4}h24"/>'
        explained = escape(_EXPLAINED.get(name, name))
        yield f'<text class="ink" x="{_LEFT + 34}" y="{y}">{explained}</text>'


def _x(ms: float) -> float:
    return round((min(ms, _MOST_MS) - _FROM_MS) / (_MOST_MS - _FROM_MS) * _WIDTH, 1)


def _y(share: float) -> float:
    return round(_HEIGHT * (1 - min(share / _MOST_CUT, 1.0)), 1)


def _axes(corpus: str) -> Iterator[str]:
    yield f'<text class="ink" y="-12" font-size="13" font-weight="600">{escape(corpus)} part</text>'
    for ms in range(200, int(_MOST_MS) + 1, 200):
        yield f'<path class="grid" d="M{_x(ms)},0V{_HEIGHT}"/>'
        yield _label(_x(ms), _HEIGHT + 18, f"{ms}")
    for percent in range(0, int(_MOST_CUT * 100) + 1, 10):
        y = _y(percent / 100)
        yield f'<path class="grid" d="M0,{y}H{_WIDTH}"/>'
        yield f'<text class="soft" x="-8" y="{y + 4}" text-anchor="end">{percent} %</text>'
    yield f'<path class="axis" d="M0,0V{_HEIGHT}H{_WIDTH}"/>'
    yield _label(_WIDTH / 2, _HEIGHT + 38, "mean from end of speech to turn confirmed, ms")
    yield (
        f'<text class="soft" transform="translate(-42,{_HEIGHT / 2}) rotate(-90)"'
        ' text-anchor="middle">inner pauses of 0.2 to 1 s cut off</text>'
    )


def _label(x: float, y: float, text: str) -> str:
    return f'<text class="soft" x="{x}" y="{y}" text-anchor="middle">{text}</text>'


def _drawn_bar(limits: Sequence[tuple[float, float]]) -> Iterator[str]:
    inside = [(ms, share) for ms, share in limits if _FROM_MS <= ms <= _MOST_MS]
    if inside:
        line = " ".join(f"{_x(ms)},{_y(share)}" for ms, share in inside)
        first, last = _x(inside[0][0]), _x(inside[-1][0])
        yield f'<polygon class="met" points="{first},{_HEIGHT} {line} {last},{_HEIGHT}"/>'
        yield f'<polyline class="dash bar" points="{line}"/>'


def _drawn(series: Series) -> Iterator[str]:
    colour = _CLASSES.get(series.name, "ours")
    shown = [p for p in best(series.points) if _shown(p)]
    if shown:
        line = " ".join(f"{_x(point.mean_ms)},{_y(point.cut_rate)}" for point in shown)
        yield f'<polyline class="line {colour}" points="{line}"/>'
    for point in series.points:
        x, y = _x(point.mean_ms), _y(point.cut_rate)
        tip = f"<title>{escape(point.name)}</title>"
        if series.name == OURS and _shown(point):
            yield f'<circle class="dot {colour}" cx="{x}" cy="{y}" r="3">{tip}</circle>'
        elif point.name.endswith(f"timer, {_HOLD_KNOB}"):
            diamond = f"M{x},{y - 6}l6,6l-6,6l-6,-6z"
            yield f'<path class="dot {colour}" d="{diamond}">{tip}</path>'
            yield f'<text class="ink" x="{x + 10}" y="{y - 6}">0.8 s hold</text>'
        if point.default and point.cut_low is not None and point.cut_high is not None:
            yield f'<circle class="ring {colour}" cx="{x}" cy="{y}" r="7"/>'
            yield f'<path class="ring {colour}" d="M{x},{_y(point.cut_high)}V{_y(point.cut_low)}"/>'


def _shown(point: Point) -> bool:
    return _FROM_MS <= point.mean_ms <= _MOST_MS and point.cut_rate <= _MOST_CUT


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
    picture = svg(panels_of(results, arguments.part), arguments.title)
    arguments.out.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
