"""Calibration of a model's verdict on words: fitted on probabilities, measured on real models."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipeline.engines.word_scale import UNMEASURED, WordScale, fitted, scale_of

pytestmark = pytest.mark.quick


def drawn(centre: float, seed: int) -> list[float]:
    logs = np.random.default_rng(seed).normal(math.log(centre), 1.0, 200)
    return [float(p) for p in np.minimum(np.exp(logs), 1.0)]


@pytest.mark.parametrize(("cut", "whole"), [(0.001, 0.01), (0.02, 0.3), (0.2, 0.9)])
def test_the_scale_moves_with_the_model(cut: float, whole: float) -> None:
    scale = fitted(drawn(cut, 1), drawn(whole, 2))
    assert cut < scale.even < whole
    low, high = scale.log_odds(cut), scale.log_odds(whole)
    assert low is not None
    assert high is not None
    assert low < -0.5
    assert high > 0.5


def test_a_model_that_cannot_tell_has_no_opinion() -> None:
    alike = drawn(0.1, 3)
    for cut, whole in ((alike, alike), ([0.5] * 24, [0.5] * 24), ([0.9] * 24, [0.1] * 24)):
        assert fitted(cut, whole).log_odds(0.9) is None


def test_a_perfect_model_has_a_finite_scale() -> None:
    scale = fitted([1e-9] * 24, [1.0] * 24)
    assert 0 < scale.slope < 5
    assert 1e-4 < scale.even < 1


def test_unread_words_have_no_verdict() -> None:
    assert UNMEASURED.log_odds(None) is None
    assert UNMEASURED.log_odds(math.nan) is None
    assert UNMEASURED.log_odds(0.0) is not None


def test_an_unmeasured_language_uses_the_common_scale() -> None:
    scales = {"en": WordScale(1.0, 0.01), "de": WordScale(2.0, 0.04)}
    assert scale_of(scales, "de") == WordScale(2.0, 0.04)
    assert scale_of(scales, "fr").slope == pytest.approx(1.5)
    assert scale_of(scales, "").even == pytest.approx(0.02)
    assert scale_of({}, "en") == UNMEASURED
