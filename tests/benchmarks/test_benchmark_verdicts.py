"""Benchmarks that end with 1 where something went wrong: also where nothing was measured at all."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import exchanges

SAID = "go forward"


@pytest.mark.parametrize(
    ("changed", "code"),
    [({}, 0), ({"dropped_samples": 512}, 1), ({"failed": 1}, 1), ({"turns": []}, 1)],
    ids=["well", "dropped", "failed", "nothing was said"],
)
def test_an_exchange_costs_nothing(changed: dict[str, Any], code: int) -> None:
    turn = exchanges.Turn(SAID, "tts=espeak-ng", 1.0, heard=SAID, answered=True)
    assert exchanges.Report(**({"turns": [turn]} | changed)).exit_code == code
    lost = exchanges.Turn(SAID, "tts=espeak-ng", 1.0, heard=SAID)
    assert exchanges.Report([turn, lost]).exit_code == 1
