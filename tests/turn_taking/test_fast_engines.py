"""Fast engines leave time for a short pause, and answer soon."""

from __future__ import annotations

from typing import Any, cast

import pytest

from app.settings.load import load_settings
from benchmarks.harness.played_scene import play
from benchmarks.harness.virtual_engines import H100
from benchmarks.turns.metrics import score_scene
from pipeline.settings import Endpointing, SessionSettings
from tests.benchmarks.level_ears import LevelEars, scene

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("profile", ["reachy", "reachy-8gb"])
def test_fast_engines_leave_time_for_a_short_pause(profile: str) -> None:
    wait_ms = load_settings(profile, environ={}).settings.endpointing.clear_wait_ms
    fixed = dict.fromkeys(("clear_wait_ms", "likely_wait_ms", "unsure_wait_ms"), wait_ms)
    endpointing = Endpointing.model_validate({"policy": "strict", **fixed})
    settings = SessionSettings(endpointing=endpointing)
    paused = score_scene(play(scene(640, 160, 640), cast(Any, LevelEars()), settings, H100))
    assert [pause.cut for pause in paused.pauses] == [False]
    whole = score_scene(play(scene(1024), cast(Any, LevelEars()), settings, H100))
    assert whole.audio_ms is not None
    assert whole.audio_ms <= 200
