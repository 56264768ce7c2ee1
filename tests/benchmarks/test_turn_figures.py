"""Figures of scored turns: baselines beside ours, intervals, the report, the picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from benchmarks.harness.pauses import Site, sites
from benchmarks.harness.played_scene import play
from benchmarks.harness.scene import save
from benchmarks.harness.statistics import Bootstrap
from benchmarks.harness.virtual_engines import NO_DELAYS
from benchmarks.turns import score
from benchmarks.turns.baselines import (
    Due,
    asked_again,
    asked_once,
    compare,
    curve,
    gate_ms,
    outcomes,
    timer,
)
from benchmarks.turns.metrics import PauseScore, score_scene
from benchmarks.turns.report import figures, table, value_at
from benchmarks.turns.score import swept
from tests.benchmarks.turn_scenes import LevelEars, arrival_ms, scene, scored, settings, waits

# --- baselines ---------------------------------------------------------------------------------


def site(**fields: Any) -> Site:
    found = sites(scene(640, 512, 640), cast(Any, LevelEars()), settings())
    return replace(found[0], **fields)


def test_a_baseline_opens_its_gate_when_the_chunk_has_arrived() -> None:
    inner = site()
    due = arrival_ms(inner.heard_end + 192 * 16) - inner.heard_end / 16
    assert gate_ms(inner, Due(192)) == pytest.approx(due)
    assert gate_ms(inner, Due(192, 45)) == pytest.approx(due + 45)
    assert gate_ms(inner, Due(544)) is None
    assert gate_ms(replace(inner, text=""), Due(192)) is None


def test_smart_turn_is_read_once_or_again() -> None:
    growing = site(audio={192: 0.3, 320: 0.6, 448: 0.95})
    assert asked_once(0.5, 992)(growing).silence_ms == 992
    assert asked_once(0.3, 992)(growing).silence_ms == 192
    assert asked_again(0.5, 992)(growing).silence_ms == 320
    assert asked_again(0.99, 992)(growing).silence_ms == 992
    assert timer(200)(growing).silence_ms == 224


@pytest.mark.parametrize("wait_ms", [224, 320, 480, 800])
def test_a_timer_as_baseline_does_what_a_session_with_that_timer_does(wait_ms: int) -> None:
    said = scene(640, 512, 640, 320, 640)
    ears = LevelEars()
    mine = scored(said, wait_ms, ears=ears)
    found = sites(said, cast(Any, ears), settings())
    (outcome,) = outcomes(found, [mine], timer(wait_ms))
    assert outcome.latency_ms == pytest.approx(mine.gate_ms)
    assert outcome.cuts == sum(p.cut for p in mine.pauses)
    assert outcome.pauses == 2


def test_cut_offs_are_compared_at_our_mean_latency() -> None:
    said = [scene(640, 512, 640, id=str(n), text=str(n)) for n in range(4)]
    ears = LevelEars()
    played_scores = [score_scene(play(each, ears, waits(320), NO_DELAYS)) for each in said]
    found = [one for each in said for one in sites(each, cast(Any, ears), settings())]
    bootstrap = Bootstrap([each.group for each in played_scores])
    timers = [timer(224), timer(416), timer(544)]
    theirs = curve(timers, found, played_scores, bootstrap)
    assert theirs.cut_rate[:, 0] == pytest.approx([1, 1, 0])
    # A half of our pauses is cut; timers of our latency, 480 ms, cut all of them but for a half.
    mine = [
        replace(s, gate_ms=480.0, pauses=(replace(s.pauses[0], cut=n < 1),))
        for n, s in enumerate(played_scores)
    ]
    compared = compare(mine, [theirs], bootstrap)
    between = np.interp(480, theirs.latency_ms[:, 0], [1, 1, 0])
    assert value_at(compared, "cut_rate") == pytest.approx(between)
    assert value_at(compared, "ratio") == pytest.approx(0.25 / between)


# --- statistics --------------------------------------------------------------------------------


def test_sources_are_drawn_whole() -> None:
    values = [0.0] * 50 + [1.0] * 50
    two = Bootstrap(["a"] * 50 + ["b"] * 50).mean(values, ["a"] * 50 + ["b"] * 50)
    names = [str(n) for n in range(100)]
    many = Bootstrap(names).mean(values, names)
    assert (two.value, two.low, two.high, two.n, two.sources) == (0.5, 0.0, 1.0, 100, 2)
    assert many.value == 0.5
    assert many.low is not None
    assert many.high is not None
    assert 0.35 < many.low < 0.45 < 0.55 < many.high < 0.65


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    names = [str(n) for n in range(100)]
    bootstrap = Bootstrap(names)
    found = {q: bootstrap.percentile(values, q, names).value for q in (50, 90, 95, 99, 100)}
    assert found == {50: 50, 90: 90, 95: 95, 99: 99, 100: 100}
    p95 = bootstrap.percentile(values, 95, names)
    assert p95.low is not None
    assert p95.high is not None
    assert 85 < p95.low < 95 < p95.high <= 100


def test_nothing_measured_is_no_figure() -> None:
    empty = Bootstrap(["a"])
    assert empty.mean([], []).value is None
    assert empty.percentile([], 50, []).value is None


def test_the_same_seed_gives_the_same_interval() -> None:
    names = [str(n) for n in range(30)]
    values = [float(n % 7) for n in range(30)]
    assert Bootstrap(names, 3).mean(values, names) == Bootstrap(names, 3).mean(values, names)


# --- the report --------------------------------------------------------------------------------


def test_the_report_counts_inner_pauses_of_up_to_a_second() -> None:
    said = scored(scene(640, 512, 640), 320)
    lengths: Sequence[tuple[Any, float, bool]] = [
        ("word", 0.2, True), ("natural", 1.0, False), ("word", 1.5, True),
        ("word", 0.15, True), ("sentence", 0.5, True),
    ]  # fmt: skip
    report = figures([replace(said, pauses=tuple(PauseScore(*each) for each in lengths))])
    assert value_at(report, "all.cut_offs.inner") == 0.5
    assert value_at(report, "all.cut_offs.by_kind.word") == 1.0
    assert value_at(report, "all.cut_offs.by_kind.sentence") == 1.0
    assert any("50.0 %" in line for line in table(report))


def test_one_word_answers_that_are_never_answered_are_slow() -> None:
    fast = scored(scene(640, kind="one-word"), 320)
    never = replace(fast, state="missed", gate_ms=None, group="b")
    late = replace(fast, gate_ms=701.0, group="c")
    report = figures([fast, never, late])
    assert value_at(report, "all.one_word.slow") == pytest.approx(2 / 3, abs=1e-4)
    assert value_at(report, "all.one_word.missed") == pytest.approx(1 / 3, abs=1e-4)
    assert list(report) == ["all"]


def test_sweeps_are_combined() -> None:
    assert swept([]) == [()]
    assert swept(["a=1,2", "b=x"]) == [("a=1", "b=x"), ("a=2", "b=x")]


# --- the program -------------------------------------------------------------------------------


def test_the_program_scores_a_corpus_and_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "corpus"
    save([scene(640, 512, 640, id="a", text="a"), scene(640, id="b", text="b")], corpus)
    monkeypatch.setattr(score, "ears_of", lambda settings, memo: LevelEars())
    out = tmp_path / "out.json"
    strict = ("endpointing.policy=strict", "endpointing.clear_wait_ms=320", "stt.size=tiny")
    fixed = [f"--set=paths.cache_dir={tmp_path}", *(f"--set={each}" for each in strict)]
    swept = "endpointing.unsure_wait_ms=800,1600"
    asked = [str(corpus), "--baselines", "--delays=none", f"--sweep={swept}", *fixed]
    monkeypatch.setattr("sys.argv", ["score", *asked, f"--out={out}"])
    score.main()
    one, other = json.loads(out.read_text())
    assert [each["overrides"][-1] for each in (one, other)] == swept_texts(swept)
    assert value_at(one["figures"], "all.end.missed") == 0
    assert value_at(one["baselines"], "all.cut_rate") is not None
    assert "CUT OFF" in capsys.readouterr().out


def swept_texts(swept_text: str) -> list[str]:
    return [overrides[0] for overrides in swept([swept_text])]


def test_features_are_one_line_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, features = tmp_path / "corpus", tmp_path / "features.jsonl"
    save([scene(640, 512, 640)], corpus)
    monkeypatch.setattr(score, "ears_of", lambda settings, memo: LevelEars())
    asked = [str(corpus), f"--features={features}", f"--set=paths.cache_dir={tmp_path}"]
    monkeypatch.setattr("sys.argv", ["score", *asked])
    score.main()
    inner, end = map(json.loads, features.read_text().splitlines())
    assert (inner["label"], end["label"]) == ("inner", "end")
    assert list(inner["audio"]) == ["32", "64", "96", "128", "160", "192"]
