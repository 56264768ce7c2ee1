"""``benchmarks.turns.labelled``: ends against holds on labelled recordings."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from app.settings.load import load_settings
from benchmarks.harness.ears import Ears
from benchmarks.harness.statistics import Bootstrap
from benchmarks.turns.labelled import Labelled, auc, figures, read
from tests.benchmarks.labelled_folder import label, labels, recording
from tests.benchmarks.turn_scenes import LevelEars

SETTINGS = load_settings(None).settings


def pause(end: bool, audio: float, name: str, gap_ms: float = 1000.0) -> Labelled:
    return Labelled("s", name, end, gap_ms, 2000.0, "", audio, None, None)


def test_the_area_is_the_share_of_pairs_in_the_right_order() -> None:
    ends = np.array([True, True, False, False])
    names = list("abcd")
    for values, area in (([3, 2, 1, 0], 1.0), ([0, 1, 2, 3], 0.0), ([1, 1, 1, 1], 0.5)):
        found = auc(np.array(values, float), ends, names, Bootstrap(names))
        assert found[0] == area


def test_a_decision_that_tells_them_apart() -> None:
    pauses = [pause(True, 0.97, "a"), pause(True, 0.9, "b"), pause(False, 0.02, "c", 200.0)]
    found = figures(pauses, SETTINGS)
    assert (found["ends"], found["holds"]) == (2, 1)
    assert found["auc"]["decision"]["value"] == found["auc"]["sound"]["value"] == 1.0
    assert found["cut_offs"]["value"] == 0.0
    assert found["curve"]["cut_offs_at_600_ms"] == 0.0


def test_recordings_are_read_as_labelled(tmp_path: Path) -> None:
    labels(tmp_path / "set", label("hold", 0.7, 200, 500, start_s=0.2))
    recording(tmp_path / "set" / "a.wav", [(0.2, 0.7), (0.9, 1.2)], seconds=1.5)
    (found,) = read(tmp_path, cast(Ears, LevelEars(0.3)), SETTINGS)
    assert (found.source, found.recording, found.end, found.audio) == ("set", "a", False, 0.3)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"neither labels\.json"):
        list(read(tmp_path, cast(Ears, LevelEars()), SETTINGS))
    labels(tmp_path / "set", label("hold", 0.7, 200, 500, start_s=0.2))
    with pytest.raises(FileNotFoundError, match="a is missing"):
        list(read(tmp_path, cast(Ears, LevelEars()), SETTINGS))
