"""Benchmarks that end with 1 where something went wrong: also where nothing was measured at all."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from benchmarks import exchanges, final_wer
from benchmarks.final_wer import Speech, Utterance

SAID = "go forward"


async def report_of(monkeypatch: pytest.MonkeyPatch, *heard: list[Utterance]) -> dict[str, Any]:
    """Of one recording for each of ``heard``, in which that is heard."""
    found = iter(heard)

    @asynccontextmanager
    async def running(settings: Any) -> AsyncIterator[tuple[None, None]]:
        yield None, None

    async def utterances(*_: Any) -> list[Utterance]:
        return next(found)

    speeches = [
        Speech(str(number), np.zeros(16000, np.int16), SAID) for number in range(len(heard))
    ]
    monkeypatch.setattr(final_wer, "running", running)
    monkeypatch.setattr(final_wer, "utterances", utterances)
    monkeypatch.setattr(final_wer, "moonshine_batch", lambda cache: str)
    monkeypatch.setattr(final_wer, "recorded", lambda: speeches)
    return await final_wer.measure(argparse.Namespace(engine="moonshine", corpus=None))


ALIKE = [Utterance("a", SAID, SAID)]


@pytest.mark.parametrize(
    ("heard", "code"),
    [
        ([ALIKE, ALIKE], 0),
        ([ALIKE, []], 1),
        ([[], []], 1),
        ([ALIKE, [Utterance("a", "go backward", SAID)]], 1),
        ([ALIKE, [Utterance("a", "", SAID, failed=True)]], 1),
        ([ALIKE, [*ALIKE, Utterance("a", "", "", failed=True)]], 1),
    ],
    ids=["alike", "one unheard", "nothing heard", "another", "failed", "failed, of nothing"],
)
async def test_a_final_transcript_is_there_and_the_same(
    monkeypatch: pytest.MonkeyPatch, heard: list[list[Utterance]], code: int
) -> None:
    report = await report_of(monkeypatch, *heard)
    assert final_wer.exit_code(report) == code, report


@pytest.mark.parametrize(
    ("changed", "code"),
    [({}, 0), ({"dropped_samples": 512}, 1), ({"failed": 1}, 1), ({"turns": []}, 1)],
    ids=["well", "dropped", "failed", "nothing was said"],
)
def test_an_exchange_costs_nobody_anything(changed: dict[str, Any], code: int) -> None:
    turn = exchanges.Turn(SAID, "tts=espeak-ng", 1.0, heard=SAID, answered=True)
    assert exchanges.Report(**({"turns": [turn]} | changed)).exit_code == code
    lost = exchanges.Turn(SAID, "tts=espeak-ng", 1.0, heard=SAID)
    assert exchanges.Report([turn, lost]).exit_code == 1
