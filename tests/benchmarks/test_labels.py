"""Labelled recordings of people become scenes, and are scored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.labels import sources, turns
from benchmarks.harness.pauses import played
from benchmarks.turns import score
from benchmarks.turns.report import value_at
from tests.benchmarks.labelled_folder import label, labels, recording
from tests.benchmarks.turn_scenes import LevelEars


def loud(pcm: np.ndarray) -> list[tuple[int, int]]:
    """The loud stretches, in ms."""
    edges = np.flatnonzero(np.diff(np.abs(pcm.astype(int)) > 500)) + 1
    return [(round(a / 16), round(b / 16)) for a, b in edges.reshape(-1, 2)]


def one_turn(folder: Path) -> Path:
    """Speech from 1 to 2 s, a hold, speech to 3.5 s, the end at 5 s."""
    hold = label("hold", 2.0, 500, 1000, start_s=0.7)
    labels(folder / "set", label("end", 3.5, 1500, 2500, start_s=0.7), hold)
    recording(folder / "set" / "a.wav", [(1, 2), (2.5, 3.5)], seconds=5)
    return folder


def test_a_turn_is_a_scene_with_its_holds_as_pauses(tmp_path: Path) -> None:
    (turn,) = turns(one_turn(tmp_path) / "set")
    assert turn.real
    assert (turn.onset, turn.end) == (8_000, 48_000)
    assert [(p.start, p.end, p.kind) for p in turn.pauses] == [(24_000, 32_000, "natural")]
    assert loud(turn.pcm) == [(500, 1500), (2000, 3000)]
    assert loud(played(turn)) == loud(turn.pcm)


def test_each_speaker_of_a_dialogue_has_a_channel(tmp_path: Path) -> None:
    of = {"dialogue": "d", "recording": None}
    labels(
        tmp_path,
        label("end", 1.5, 1500, 1000, start_s=0.2, channel=0, **of),
        label("hold-with-backchannel", 2.4, 300, 400, start_s=1.7, channel=1, **of),
        label("end", 3.0, 1900, 1000, start_s=1.7, channel=1, **of),
        label("end", 3.6, 1400, 600, start_s=2.7, channel=0, **of),
    )
    speech = [(0.5, 1.5), (3.0, 3.6)], [(2.0, 2.4), (2.7, 3.0)]
    recording(tmp_path / "d.wav", *speech, seconds=5, rate=8_000)
    said = [
        *({"speaker": "A", "word": w, "start": s} for w, s in (("how", 0.5), ("many", 0.9))),
        *({"speaker": "B", "word": w, "start": s} for w, s in (("two", 1.6), ("please", 2.7))),
    ]
    (tmp_path / "d.words.json").write_text(json.dumps(said))
    first, again, other = turns(tmp_path)
    assert [turn.speaker for turn in (first, again, other)] == ["d/0", "d/0", "d/1"]
    assert [turn.asked for turn in (first, again, other)] == ["", "two", "how many"]
    assert len(other.pauses) == 1
    assert len(loud(played(other))) == 2


def test_a_hold_to_the_end_of_the_recording_is_an_end(tmp_path: Path) -> None:
    labels(tmp_path, label("hold", 2.0, 1000, 1000, start_s=0.7))
    recording(tmp_path / "a.wav", [(1, 2)], seconds=3)
    (turn,) = turns(tmp_path)
    assert turn.pauses == ()


def test_a_turn_without_an_end_is_left_out(tmp_path: Path) -> None:
    labels(tmp_path, label("hold", 2.0, 500, 1000, start_s=0.7))
    recording(tmp_path / "a.wav", [(1, 2), (2.5, 3)], seconds=5)
    assert list(turns(tmp_path)) == []


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"neither labels\.json .* nor folders with one"):
        sources(tmp_path)
    labels(tmp_path, label("end", 2.0, 500, 1000, start_s=0.7))
    with pytest.raises(FileNotFoundError, match=r"a is missing: labels\.json names it"):
        list(turns(tmp_path))


def scored(folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    monkeypatch.setattr(score, "ears_of", lambda settings, memo: LevelEars())
    cache = f"--set=paths.cache_dir={folder}"
    monkeypatch.setattr("sys.argv", ["score", str(folder), cache, "--delays=none", *more])
    score.main()


@pytest.mark.parametrize(("wait_ms", "cut"), [(320, 1), (640, 0)])
def test_people_are_scored_like_a_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_ms: int, cut: float
) -> None:
    out = tmp_path / "out.json"
    waits = (f"endpointing.{wait}_wait_ms={wait_ms}" for wait in ("clear", "likely", "unsure"))
    strict = ("endpointing.policy=strict", *waits)
    sets = (f"--set={each}" for each in strict)
    scored(one_turn(tmp_path), monkeypatch, f"--out={out}", *sets)
    (result,) = json.loads(out.read_text())
    assert result["corpus"] == "set"
    assert list(result["figures"]) == ["all"]
    assert value_at(result["figures"], "all.end.missed") == 0
    assert value_at(result["figures"], "all.cut_offs.by_kind.natural") == cut


def test_an_empty_folder_ends_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="neither"):
        scored(tmp_path, monkeypatch)
