"""The figures of a scored corpus, as plain data for JSON and as a readable table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict

from benchmarks.harness.statistics import Bootstrap, Estimate
from benchmarks.turns.metrics import LONGEST_S, PauseScore, SceneScore

Figures = dict[str, object]

SLOW_MS = 700.0
"""A turn that waits longer went through a slow fallback."""
_PERCENTILES = (10, 50, 90, 95, 99)
NOTICED_MS = 150.0
"""An answer heard over the user's speech for longer than this is noticed."""
OVERLAP_COSTS, UNRECOVERED_COSTS_MS = 2.0, 2000.0
"""Weights in a turn's total cost, in ms of waiting: for each ms of heard overlap, and for each cut
whose two sides are never answered as one (as in Raux & Eskenazi, NAACL 2009)."""


def parts(scores: Sequence[SceneScore]) -> dict[str, list[SceneScore]]:
    """All scores; if there are both, also the real and the synthetic ones separately."""
    result = {
        "all": list(scores),
        "real": [score for score in scores if score.real],
        "synthetic": [score for score in scores if not score.real],
    }
    return result if result["real"] and result["synthetic"] else {"all": result["all"]}


def figures(scores: Sequence[SceneScore], seed: int = 0) -> Figures:
    """All figures, for each of ``parts``."""
    return {
        name: _of_part(part, Bootstrap([score.group for score in part], seed))
        for name, part in parts(scores).items()
    }


def _of_part(scores: Sequence[SceneScore], bootstrap: Bootstrap) -> Figures:
    return {
        "scenes": len(scores),
        "sources": len(bootstrap.names),
        "end": _end(scores, bootstrap),
        "cut_offs": _cut_offs(scores, bootstrap),
        "overlap": _overlap(scores, bootstrap),
        "two_sentences": _two_sentences(scores, bootstrap),
        "cost": _cost(scores, bootstrap),
    }


def _end(scores: Sequence[SceneScore], bootstrap: Bootstrap) -> Figures:
    groups = [score.group for score in scores]
    audio_ms = [(score.audio_ms, score.group) for score in scores]
    return {
        "gate_ms": _distribution([(s.gate_ms, s.group) for s in scores], bootstrap),
        "audio_ms": _distribution(audio_ms, bootstrap),
        "audio_after_700_ms": _share(  # a turn that was answered too early or never is slow
            [(ms is None or ms > SLOW_MS, group) for ms, group in audio_ms], bootstrap
        ),
        "missed": _plain(bootstrap.mean([s.state == "missed" for s in scores], groups)),
        "premature": _plain(bootstrap.mean([s.state == "premature" for s in scores], groups)),
        "stray_answers": _plain(bootstrap.mean([s.strays for s in scores], groups)),
        "onset_lost": _mean_of([(s.onset_lost, s.group) for s in scores], bootstrap),
        "onset_outside": _mean_of([(_outside(s), s.group) for s in scores], bootstrap),
    }


def _outside(score: SceneScore) -> bool | None:
    """Whether part of the beginning was not committed; an item begins on a whole ms."""
    return None if score.onset_outside_ms is None else score.onset_outside_ms > 1


def _distribution(pairs: Iterable[tuple[float | None, str]], bootstrap: Bootstrap) -> Figures:
    values, groups = _with_values(pairs)
    estimates = {"mean": bootstrap.mean(values, groups)}
    estimates |= {f"p{q}": bootstrap.percentile(values, q, groups) for q in _PERCENTILES}
    return {name: _plain(estimate) for name, estimate in estimates.items()}


def _mean_of(pairs: Iterable[tuple[float | None, str]], bootstrap: Bootstrap) -> Figures:
    return _plain(bootstrap.mean(*_with_values(pairs)))


def _with_values(pairs: Iterable[tuple[float | None, str]]) -> tuple[list[float], list[str]]:
    rows = [(value, group) for value, group in pairs if value is not None]
    return [value for value, _ in rows], [group for _, group in rows]


def _cut_offs(scores: Sequence[SceneScore], bootstrap: Bootstrap) -> Figures:
    every = [(pause, score) for score in scores for pause in score.pauses]
    headline = [(pause, score) for pause, score in every if pause.counts]

    def rates(
        pauses: list[tuple[PauseScore, SceneScore]],
        name_of: Callable[[PauseScore, SceneScore], str],
    ) -> Figures:
        names = sorted({name_of(*each) for each in pauses})
        return {
            name: _rate([e for e in pauses if name_of(*e) == name], bootstrap) for name in names
        }

    return {
        "inner": _rate(headline, bootstrap),
        "unfinished": _rate([each for each in every if each[0].unfinished], bootstrap),
        "inner_or_just_after": _share(
            [(pause.cut or pause.late, score.group) for pause, score in headline], bootstrap
        ),
        "by_kind": rates(every, lambda pause, score: pause.kind),
        "by_length_s": rates(
            [each for each in every if each[0].kind != "sentence"], lambda p, s: _length(p.seconds)
        ),
        "by_condition": rates(headline, lambda pause, score: score.condition),
    }


def _overlap(scores: Sequence[SceneScore], bootstrap: Bootstrap) -> Figures:
    groups = [score.group for score in scores]
    costs = [
        (score.audio_ms or 0.0)  # begun too early: the user does not wait
        + OVERLAP_COSTS * score.overlap_ms
        + UNRECOVERED_COSTS_MS * score.unrecovered
        for score in scores
    ]
    return {
        "ms_per_turn": _plain(bootstrap.mean([s.overlap_ms for s in scores], groups)),
        "noticed": _plain(bootstrap.mean([s.overlap_ms > NOTICED_MS for s in scores], groups)),
        "unrecovered": _plain(bootstrap.mean([s.unrecovered for s in scores], groups)),
        "cost_ms": _plain(bootstrap.mean(costs, groups)),
    }


def _length(seconds: float) -> str:
    """The nearest of the inserted pauses' lengths."""
    lengths = (0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0)
    return f"{min(lengths, key=lambda length: abs(length - seconds)):.2f}"


def _rate(pauses: list[tuple[PauseScore, SceneScore]], bootstrap: Bootstrap) -> Figures:
    return _share([(pause.cut, score.group) for pause, score in pauses], bootstrap)


def _share(pairs: Sequence[tuple[bool, str]], bootstrap: Bootstrap) -> Figures:
    return _plain(bootstrap.mean([hit for hit, _ in pairs], [group for _, group in pairs]))


def _two_sentences(scores: Sequence[SceneScore], bootstrap: Bootstrap) -> Figures:
    every = [(two, score.group) for score in scores for two in score.two_sentences]
    short = [(two, group) for two, group in every if two.seconds <= LONGEST_S + 0.001]
    lengths = sorted({_length(two.seconds) for two, _ in every})
    return {
        "as_one": _share([(two.as_one, group) for two, group in every], bootstrap),
        "as_one_up_to_1s": _share([(two.as_one, group) for two, group in short], bootstrap),
        "as_one_by_length_s": {
            length: _share(
                [(t.as_one, group) for t, group in every if _length(t.seconds) == length], bootstrap
            )
            for length in lengths
        },
    }


def _cost(scores: Sequence[SceneScore], bootstrap: Bootstrap) -> Figures:
    groups = [score.group for score in scores]
    every = [s.used_s + s.wasted_s + s.ahead_s for s in scores]
    ones = [1.0] * len(scores)
    return {
        "wasted_share": _plain(bootstrap.ratio([s.wasted_s for s in scores], every, groups)),
        "engine_s_per_scene": _plain(bootstrap.ratio(every, ones, groups)),
        "stt_passes_per_scene": _plain(
            bootstrap.ratio([float(s.passes) for s in scores], ones, groups)
        ),
    }


def _plain(estimate: Estimate) -> Figures:
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in asdict(estimate).items()
    }


# --- for people --------------------------------------------------------------------------------


def table(report: object) -> Iterator[str]:
    """The main figures, one line each, with [95 % interval] and the number of values/sources."""
    assert isinstance(report, dict)
    for part, of_part in report.items():
        yield f"{part}: {_at(of_part, 'scenes')} scenes of {_at(of_part, 'sources')} sources"
        for name, path, unit in _LINES:
            if text := _text(_at(of_part, path), unit):
                yield f"  {name:<54}{text}"
        for title, path in _BREAKDOWNS:
            rates = _at(of_part, path)
            assert isinstance(rates, dict)
            for name, rate in rates.items():
                yield f"    {title} {name:<{51 - len(title)}}{_text(rate, '%')}"


_LINES = (
    *(
        (f"end to gate, {s}", f"end.gate_ms.{s}", "ms")
        for s in ("mean", "p50", "p90", "p95", "p99")
    ),
    *(
        (f"end to first audio, {s}", f"end.audio_ms.{s}", "ms")
        for s in ("p10", "p50", "p90", "p95")
    ),
    (f"  more than {SLOW_MS:.0f} ms, or not after the end", "end.audio_after_700_ms", "%"),
    ("ends never answered", "end.missed", "%"),
    ("answered before the end", "end.premature", "%"),
    ("answers in the middle of speech, per scene", "end.stray_answers", ""),
    ("first word not understood", "end.onset_lost", "%"),
    ("beginning not committed", "end.onset_outside", "%"),
    ("CUT OFF in inner pauses of 0.2-1.0 s", "cut_offs.inner", "%"),
    ("  the same, or just after", "cut_offs.inner_or_just_after", "%"),
    ("CUT OFF after unfinished words, 0.3-1.5 s", "cut_offs.unfinished", "%"),
    ("overlap that is heard, per turn", "overlap.ms_per_turn", "ms"),
    (f"  turns with more than {NOTICED_MS:.0f} ms", "overlap.noticed", "%"),
    ("cuts whose sides were never asked as one, per turn", "overlap.unrecovered", "%"),
    ("COST: first audio + 2 x overlap + 2 s x unrecovered", "overlap.cost_ms", "ms"),
    ("two sentences answered as one, up to 1 s apart", "two_sentences.as_one_up_to_1s", "%"),
    ("  however far apart", "two_sentences.as_one", "%"),
    ("engine time wasted", "cost.wasted_share", "%"),
    ("engine time per scene", "cost.engine_s_per_scene", "s"),
    ("recogniser passes per scene", "cost.stt_passes_per_scene", ""),
)
_BREAKDOWNS = (
    ("cut, kind", "cut_offs.by_kind"),
    ("cut, length s", "cut_offs.by_length_s"),
    ("as one, length s", "two_sentences.as_one_by_length_s"),
    ("cut, condition", "cut_offs.by_condition"),
)


def baseline_lines(report: object) -> Iterator[str]:
    """Smart Turn alone at our mean latency."""
    assert isinstance(report, dict)
    for part, each in report.items():
        rate, ratio = _text(each["cut_rate"], "%"), _text(each["ratio"], "")
        yield f"{part}: Smart Turn alone, at our mean latency, cuts {rate}; ours over it: {ratio}"


def _at(tree: object, path: str) -> object:
    """What is at a dotted path, such as ``end.gate_ms.mean``."""
    for name in path.split("."):
        assert isinstance(tree, dict)
        tree = tree[name]
    return tree


def _text(estimate: object, unit: str) -> str:
    value, low, high = (_at(estimate, name) for name in ("value", "low", "high"))
    n, sources = _at(estimate, "n"), _at(estimate, "sources")
    if not all(isinstance(number, float) for number in (value, low, high)):
        return ""
    scale, digits = (100, 1) if unit == "%" else (1, 0 if unit == "ms" else 2)
    texts = [f"{number * scale:.{digits}f}" for number in (value, low, high)]  # type: ignore[operator]
    return f"{texts[0]} {unit} [{texts[1]}, {texts[2]}]".replace("  ", " ") + f"  n={n}/{sources}"
