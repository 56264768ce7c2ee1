"""The conversation corpus: its labels are true, its seeds hold, its parts are apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.harness.acoustics import (
    rms_dbfs,
    to_signal,
)
from benchmarks.harness.energy import quietest, silences, speech_span
from benchmarks.harness.scene import Part, Pause, SceneKind, load, save
from benchmarks.turns.build import VOICES
from benchmarks.turns.clips import Border
from benchmarks.turns.compose import Conditions, active_samples
from benchmarks.turns.plan import PAUSES_S, SNRS_DB, Deck, Pauses, conditions
from benchmarks.turns.splice import Cut, utterance
from benchmarks.turns.wording import parsed, read
from pipeline.audio import LISTEN_RATE
from tests.benchmarks.corpus_speech import FRAME, buzz, clip, one_border, samples, scene, silence

# --- labels ------------------------------------------------------------------------------------


def test_speech_begins_and_ends_where_its_energy_does() -> None:
    span = speech_span(clip(silence(0.3), buzz(1.0), silence(0.4)).signal)
    assert abs(span.start - samples(0.3)) <= FRAME
    assert abs(span.end - samples(1.3)) <= FRAME


def test_a_lone_click_is_no_speech() -> None:
    click = np.full(80, 0.5, dtype=np.float32)
    span = speech_span(clip(silence(0.2), click, silence(0.4), buzz(1.0)).signal)
    assert abs(span.start - samples(0.605)) <= FRAME


def test_silences_of_150_ms_are_pauses_and_stop_closures_are_not() -> None:
    found = silences(
        clip(buzz(0.5), silence(0.2), buzz(0.4), silence(0.1), buzz(0.5)).signal,
    )
    assert [(round(s.start / LISTEN_RATE, 1), round(s.end / LISTEN_RATE, 1)) for s in found] == [
        (0.5, 0.7)
    ]


def test_a_clip_without_speech_is_refused() -> None:
    with pytest.raises(ValueError, match="no speech"):
        speech_span(silence(1.0))


def test_the_quietest_place_is_found() -> None:
    signal = np.concatenate([buzz(0.2), buzz(0.02) * 0.01, buzz(0.2)]).astype(np.float32)
    assert abs(quietest(signal, 0, len(signal)) - samples(0.21)) <= 80


@settings(max_examples=15)
@given(
    seconds=st.sampled_from(PAUSES_S),
    stretch=st.sampled_from([1.0, 1.3, 1.8]),
    seed=st.integers(0, 50),
)
def test_labels_lie_where_the_energy_says(seconds: float, stretch: float, seed: int) -> None:
    spoken = one_border()
    made = scene(spoken, [Cut(spoken.borders[0], seconds, stretch)], seed=seed)
    (pause,) = made.pauses
    assert pause.kind == "clause"
    assert pause.seconds == pytest.approx(seconds, abs=1e-3)
    assert made.end - made.onset == pytest.approx(
        samples(1.1 + seconds) + samples(0.15) * (stretch - 1), abs=2 * FRAME
    )
    heard = to_signal(made.pcm)
    active = active_samples(len(heard), made.onset, made.end, made.pauses)
    for start, end in ((0, made.onset), (pause.start, pause.end), (made.end, len(heard))):
        inside = heard[start + 2 * FRAME : end - 2 * FRAME]
        assert rms_dbfs(inside) < rms_dbfs(heard[active]) - 25
    for at in (made.onset, pause.start - 3 * FRAME, pause.end, made.end - 3 * FRAME):
        assert rms_dbfs(heard[at + FRAME : at + 2 * FRAME]) > rms_dbfs(heard[active]) - 12


def test_a_pause_counts_the_silence_that_is_already_there() -> None:
    border = Border(samples(0.65), "clause", 3)
    spoken = clip(buzz(0.6), silence(0.1), buzz(0.6), borders=(border,))
    (pause,) = scene(spoken, [Cut(border, 0.5)]).pauses
    assert pause.seconds == pytest.approx(0.5, abs=1e-3)
    (pause,) = scene(spoken, [Cut(border, 0.05)]).pauses
    assert pause.seconds == pytest.approx(0.1, abs=2 * FRAME / LISTEN_RATE)


def test_a_speakers_own_pauses_are_labelled_and_keep_their_sound() -> None:
    breath = 0.02 * buzz(0.06)
    own = np.concatenate([silence(0.1), breath, silence(0.1)])
    borders = (Border(samples(0.4), "word", 1), Border(samples(1.6), "sentence", 3))
    spoken = clip(buzz(0.9), own, buzz(0.6), silence(0.2), buzz(0.5), borders=borders)
    borders = (borders[0], replace(borders[1], at=samples(1.86)))
    spoken = replace(spoken, borders=borders)
    said = utterance(spoken, [Cut(borders[0], 0.3)])
    assert [pause.kind for pause in said.pauses] == ["word", "natural", "sentence"]
    natural = said.pauses[1]
    assert natural.start == pytest.approx(samples(0.9 + 0.3), abs=2 * FRAME)
    assert np.array_equal(
        said.signal[natural.start : natural.end],
        spoken.signal[natural.start - samples(0.3) : natural.end - samples(0.3)],
    )


def test_labels_out_of_order_are_refused() -> None:
    made = scene(one_border(), [])
    with pytest.raises(ValueError, match="out of order"):
        replace(made, pauses=(Pause(made.onset + 10, made.end + 5, "word"),))
    with pytest.raises(ValueError, match="out of order"):
        replace(made, onset=made.end)


# --- seeds, files, parts -----------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    heard = Conditions(10.0, 0.3)
    for folder in ("one", "two"):
        spoken = one_border()
        save([scene(spoken, [Cut(spoken.borders[0], 0.8, 1.4)], heard)], tmp_path / folder)
    files = sorted(file.name for file in (tmp_path / "one").iterdir())
    assert files == ["scenes.jsonl", "tuning-000-buzz.flac"]
    for file in files:
        one, two = (tmp_path / folder / file for folder in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
    other = scene(one_border(), [], heard, seed=2)
    assert not np.array_equal(other.pcm[:1000], scene(one_border(), [], heard, seed=1).pcm[:1000])


def test_scenes_are_kept_whole(tmp_path: Path) -> None:
    spoken = one_border()
    made = scene(spoken, [Cut(spoken.borders[0], 0.4)], Conditions(20.0, 0.25))
    assert save([made], tmp_path) == 1
    (back,) = load(tmp_path)
    assert np.array_equal(back.pcm, made.pcm)
    fields = {name: value for name, value in vars(made).items() if name != "pcm"}
    assert {name: value for name, value in vars(back).items() if name != "pcm"} == fields
    assert not back.real
    assert back.seconds == len(made.pcm) / LISTEN_RATE


def test_a_directory_without_a_corpus_says_how_to_build_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"benchmarks\.turns\.build"):
        list(load(tmp_path))


def test_room_enough_lies_before_and_after() -> None:
    made = scene(one_border(), [])
    assert 0.5 <= made.onset / LISTEN_RATE <= 1.21
    assert len(made.pcm) - made.end >= samples(2.6)


def test_the_parts_share_no_text_and_no_voice() -> None:
    tuning, frozen = read("tuning"), read("frozen")
    assert not {w.text.lower() for w in tuning} & {w.text.lower() for w in frozen}
    assert not set(VOICES["tuning"]) & set(VOICES["frozen"])
    for part in (tuning, frozen):
        assert len(part) >= 60
        assert len({w.text for w in part}) == len(part)
        assert {w.kind for w in part} == set(get_args(SceneKind)) - {"turn"}
        assert sum(bool(w.asked) for w in part if w.kind == "one-word") >= 5


def test_marks_are_places_and_are_not_spoken() -> None:
    written = parsed("Well, ~ I had / eggs, | and + ham.", "list")
    assert written.text == "Well, I had eggs, and ham."
    assert [(mark.before, mark.words, mark.kind) for mark in written.marks] == [
        ("Well,", 1, "filler"),
        ("Well, I had", 3, "word"),
        ("Well, I had eggs,", 4, "clause"),
        ("Well, I had eggs, and", 5, "sentence"),
    ]


@pytest.mark.parametrize("part", get_args(Part))
def test_two_sentences_are_read_whole_with_the_place_between_them(part: Part) -> None:
    written = [each for each in read(part) if each.kind == "two-sentences"]
    assert len(written) >= 20
    for each in written:
        (between,) = [mark for mark in each.marks if mark.kind == "sentence"]
        assert between.before.endswith((".", "?"))
        assert between.words < len(each.text.split())


def test_two_sentences_always_pause_between_them() -> None:
    rng = np.random.default_rng(1)
    seam = Border(samples(0.7), "sentence", 3, True)
    for _ in range(20):
        (cut,) = Pauses(rng).cuts(replace(one_border(), borders=(seam,)), 0.0)
        assert cut.border is seam
        assert cut.stretch == 1.0


def test_conditions_come_in_their_shares() -> None:
    drawn = conditions(200, np.random.default_rng(1))
    for snr_db in SNRS_DB:
        assert sum(each.snr_db == snr_db for each in drawn) == 30
    rooms = [each.rt60_s for each in drawn if each.rt60_s is not None]
    assert len(rooms) == 40
    assert all(0.2 <= rt60_s <= 0.6 for rt60_s in rooms)


def test_a_deck_draws_everything_equally_often() -> None:
    deck = Deck(PAUSES_S, np.random.default_rng(1))
    drawn = [deck.draw() for _ in range(3 * len(PAUSES_S))]
    assert all(drawn.count(seconds) == 3 for seconds in PAUSES_S)
