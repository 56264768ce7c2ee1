"""Words over an answer in French: real Silero, Smart Turn and Whisper, in virtual time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.models.weights import WeightsCache
from app.settings.load import load_settings
from app.settings.model import Settings
from benchmarks.harness.ears import Ears, Memo
from benchmarks.harness.played_scene import session_settings
from benchmarks.interruptions.languages import WHISPER_S, WhisperEars, listen, outcome, scene
from pipeline.audio import LISTEN_RATE
from pipeline.errors import ReachyVoiceError
from tests.support.pico import spoken_by_pico
from tests.support.virtual_time import run_virtual

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load_settings("default").settings


@pytest.fixture(scope="module")
def ears(settings: Settings, cache: WeightsCache, weights: Callable[[str], Path]) -> WhisperEars:
    for name in ("silero-vad", "smart-turn-v3.2"):
        weights(name)
    try:
        ears = WhisperEars(Ears(settings, cache, Memo(None)))
    except ReachyVoiceError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"whisper-base cannot be had: {error}")
    silence = np.zeros(LISTEN_RATE, np.int16)  # loads the models, which nothing may do on the loop
    ears.speech_scores(silence)
    ears.turn_over(silence)
    return ears


@pytest.mark.parametrize(("said", "stops"), [("Oui, d'accord.", False), ("Attends !", True)])
@pytest.mark.parametrize("whisper_s", [WHISPER_S, 1.0])
def test_what_agrees_lets_the_answer_go_on_and_a_command_stops_it(
    ears: WhisperEars, settings: Settings, said: str, stops: bool, whisper_s: float
) -> None:
    """On a busy machine, too."""
    for seed in range(2):
        pcm = scene(spoken_by_pico(said, "fr"), np.random.default_rng(seed))
        listening = listen(pcm, "fr", ears, session_settings(settings), whisper_s)
        stopped, lost, _ = outcome(run_virtual(listening))
        assert (stopped, lost) == (stops, stops)
