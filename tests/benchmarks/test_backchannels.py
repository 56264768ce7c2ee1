"""Backchannels of people: which are cut out, and how an answer takes them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from benchmarks.harness.labels import overlapping
from benchmarks.interruptions.__main__ import Outcome, figures
from benchmarks.interruptions.scenes import Kind, recordings
from benchmarks.turns.backchannels import backchannel
from benchmarks.turns.listen import Listener
from tests.benchmarks.corpus_speech import buzz, silence
from tests.benchmarks.labelled_folder import label, labels, recording


def test_what_the_other_speaker_says_in_a_hold_is_cut_out(tmp_path: Path) -> None:
    of = {"dialogue": "d", "recording": None, "start_s": 0.7, "turn_ms": 1000}
    spoken_over = label("hold-with-backchannel", 2.0, 1500, channel=0, **of)
    labels(tmp_path, spoken_over, label("hold", 4.0, 500, channel=0, **of))
    own, other = [(1, 2), (3.5, 4), (4.5, 5)], [(2.25, 2.75), (4.1, 4.4)]
    recording(tmp_path / "d.wav", own, other, seconds=6)
    ((name, pcm),) = overlapping(tmp_path)
    assert name == "d-2.00"
    assert len(pcm) == 24_000
    assert np.flatnonzero(np.abs(pcm) > 500)[[0, -1]].tolist() == [4_000, 11_999]


class Hears:
    def __init__(self, text: str) -> None:
        self._text = text

    def hear(self, signal: object) -> str:
        return self._text


@pytest.mark.parametrize(
    ("text", "seconds", "kept"),
    [
        ("Mm-hm.", 0.5, True),
        ("Yeah, right.", 0.8, True),
        ("OK", 0.4, True),
        ("Yes, but", 0.5, False),
        ("", 0.5, False),
        ("Yeah.", 2.0, False),
        ("Yeah.", 0.1, False),
    ],
)
def test_only_short_backchannels_are_kept(text: str, seconds: float, kept: bool) -> None:
    sound = np.concatenate([silence(0.5), buzz(seconds), silence(0.5)])
    found = backchannel(sound, cast(Listener, Hears(text)))
    assert (found is not None) is kept
    if found is not None:
        assert len(found) / 16_000 == pytest.approx(seconds, abs=0.1)


def test_a_folder_without_sounds_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no FLAC files\. Run: .*backchannels"):
        recordings(tmp_path / "tuning")


def outcome(kind: Kind, stopped: bool, lost: bool, resumed_ms: float | None) -> Outcome:
    return Outcome(kind, kind, "", stopped, lost, 60.0, 300.0, None, resumed_ms, "", None)


def test_people_are_counted_apart_from_voices() -> None:
    found = figures(
        [
            outcome("question", True, True, None),
            outcome("backchannel", True, True, None),
            outcome("backchannel of people", True, False, 700.0),
            outcome("backchannel of people", False, False, None),
        ]
    )
    people = found["backchannel of people"]
    assert (people["stopped"]["value"], people["lost"]["value"]) == (0.5, 0.0)
    assert people["resumed_ms"]["p50"]["value"] == 700.0
    assert found["not meant"]["lost"]["value"] == 1.0
