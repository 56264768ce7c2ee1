"""The GPU benchmark: its made language model, and its figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu.engines import RATE, Heard
from benchmarks.gpu.models import REPLY, language_model
from benchmarks.gpu.report import Report
from pipeline.engines.contract import EndOfTurn, TextDelta
from pipeline.engines.llm.llama_cpp import LlamaCppOptions, build
from pipeline.messages import Message, Sampling, ToolChoice
from pipeline.work import NEVER


def test_the_made_language_model_speaks_its_reply_and_takes_words_for_complete(
    tmp_path: Path,
) -> None:
    pytest.importorskip("tokenizers")
    language_model(tmp_path / "small.gguf", small=True)
    options = LlamaCppOptions(
        weights=None,
        model_file=str(tmp_path / "small.gguf"),
        context_tokens=512,
        threads=1,
        saved_prefix_mb=0,
    )
    asked, sampling = [Message("user", "Who are you?")], Sampling(max_tokens=40)
    steps = list(build(options, None).open().reply(asked, [], ToolChoice(), sampling, NEVER))
    assert "".join(step.text for step in steps if isinstance(step, TextDelta)) == REPLY
    [end] = [step for step in steps if isinstance(step, EndOfTurn)]
    assert end.probability > 0.9


@pytest.mark.parametrize(
    ("arrivals_s", "late_ms"),
    [((1.0,), None), ((1.0, 1.3), -200), ((1.0, 1.8, 1.9), 300), ((1.0, 1.1, 2.2), 200)],
)
def test_a_piece_is_late_if_the_sound_before_it_has_ended(
    arrivals_s: tuple[float, ...], late_ms: float | None
) -> None:
    heard = Heard(0.0, [(at, RATE // 2) for at in arrivals_s])
    assert heard.late_ms == (late_ms if late_ms is None else pytest.approx(late_ms))
    assert heard.first_ms == 1000


def test_percentiles_need_enough_values(tmp_path: Path) -> None:
    report = Report(tmp_path / "figures.jsonl", "stt")
    report.figure("few", "ms", 3.0, None, 1.0, 2.0)
    report.figure("many", "ms", *map(float, range(1, 101)))
    few, many = map(json.loads, report.file.read_text(encoding="utf-8").splitlines())
    assert (few["n"], few["p50"], few["p95"], few["min"], few["max"]) == (3, 2.0, None, 1.0, 3.0)
    assert (many["p50"], many["p95"], many["p99"]) == (50.0, 95.0, 99.0)
