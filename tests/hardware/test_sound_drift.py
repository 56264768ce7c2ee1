"""The echo canceller on what the alignment delivers, with two clocks; the benchmark runs longer."""

from __future__ import annotations

import pytest

from tests.support.clock_drift import offline


@pytest.mark.parametrize("ppm", [-100.0, 100.0])
def test_clocks_that_differ_are_followed(ppm: float) -> None:
    report = offline(hours=0.02, ppm=ppm)
    assert report["lost_samples"] == 0
    assert report["ppm_found"] == pytest.approx(-ppm, abs=3)
    assert report["erle_db"][-1] > 30
    late = report["late_ms"]
    assert abs(late["last tenth"] - late["first tenth"]) < 10
