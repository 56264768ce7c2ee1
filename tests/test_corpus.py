"""The conversation corpus: its labels are true, its noise as loud as it says, its parts apart.

No speech is needed: a "voice" here is a buzz with syllables, whose every sample is known.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.turns.acoustics import (
    NoiseKind,
    Signal,
    at_snr,
    at_speed,
    in_room,
    like_floor,
    noise,
    rms_dbfs,
    room_response,
    room_tone,
    to_pcm,
    to_signal,
)
from benchmarks.turns.build import VOICES
from benchmarks.turns.clips import Border, Clip, Line
from benchmarks.turns.compose import Conditions, active_samples, compose
from benchmarks.turns.energy import quietest, silences, speech_span
from benchmarks.turns.listen import Listener, Sides, border_kind, likely_token_after
from benchmarks.turns.people import Packages, actors, kind_of, plausible, sky
from benchmarks.turns.plan import PAUSES_S, SNRS_DB, Deck, Pauses, conditions, with_speed
from benchmarks.turns.queen import Queen
from benchmarks.turns.rnc import unpacked
from benchmarks.turns.scene import Pause, Scene, SceneKind, load, save
from benchmarks.turns.sky import Sky
from benchmarks.turns.splice import Cut, stretched, utterance
from benchmarks.turns.voices import _flite_ends
from benchmarks.turns.wording import parsed, read
from pipeline.audio import LISTEN_RATE

FRAME = LISTEN_RATE // 100


def samples(seconds: float) -> int:
    return round(seconds * LISTEN_RATE)


def buzz(seconds: float, hz: float = 140.0) -> Signal:
    """Something like a vowel at about -20 dBFS, of full level from its first sample on."""
    time_s = np.arange(samples(seconds)) / LISTEN_RATE
    wave = sum(np.sin(2 * np.pi * hz * k * time_s + k) / k for k in range(1, 20))
    return np.asarray(0.1 * wave, dtype=np.float32)


def silence(seconds: float) -> Signal:
    return np.zeros(samples(seconds), dtype=np.float32)


def clip(*pieces: Signal, borders: tuple[Border, ...] = ()) -> Clip:
    signal = np.concatenate(pieces).astype(np.float32)
    quiet = 10 ** (-70 / 20) * np.random.default_rng(0).standard_normal(len(signal))
    return Clip(
        name="buzz",
        source="synthetic:buzz",
        speaker="buzz",
        kind="question",
        text="Is it me, or you?",
        signal=(signal + quiet).astype(np.float32),
        borders=borders,
    )


def one_border(kind: str = "clause") -> Clip:
    """0.1 s of silence, 0.6 s of speech, a border, 0.5 s of speech, 0.2 s of silence."""
    border = Border(samples(0.7), kind, 3)  # type: ignore[arg-type]
    return clip(silence(0.1), buzz(0.6), buzz(0.5, 180.0), silence(0.2), borders=(border,))


def scene(spoken: Clip, cuts: list[Cut], heard: Conditions = Conditions(), seed: int = 1) -> Scene:  # noqa: B008
    return compose(utterance(spoken, cuts), heard, "tuning", "tuning-000-buzz", seed)


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


@settings(max_examples=15, deadline=None)
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


# --- sound -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rt60_s", [None, 0.4])
@pytest.mark.parametrize("snr_db", SNRS_DB)
def test_noise_is_as_loud_as_it_says(snr_db: float, rt60_s: float | None) -> None:
    spoken = one_border()
    cuts = [Cut(spoken.borders[0], 0.6)]
    quiet = scene(spoken, cuts, Conditions(None, rt60_s))
    noisy = scene(spoken, cuts, Conditions(snr_db, rt60_s))
    assert (noisy.onset, noisy.end, noisy.pauses) == (quiet.onset, quiet.end, quiet.pauses)
    active = active_samples(len(quiet.pcm), quiet.onset, quiet.end, quiet.pauses)
    speech = to_signal(quiet.pcm)
    added = to_signal(noisy.pcm) - speech
    assert rms_dbfs(speech[active]) - rms_dbfs(added) == pytest.approx(snr_db, abs=0.5)


@pytest.mark.parametrize("kind", get_args(NoiseKind))
def test_noise_has_its_level_and_its_seed(kind: NoiseKind) -> None:
    made = noise(kind, samples(2.0), np.random.default_rng(3))
    assert rms_dbfs(made) == pytest.approx(0.0, abs=0.01)
    assert np.array_equal(made, noise(kind, samples(2.0), np.random.default_rng(3)))
    assert not np.array_equal(made, noise(kind, samples(2.0), np.random.default_rng(4)))


def test_noise_needs_speech_to_be_measured_against() -> None:
    nothing = np.zeros(100, dtype=np.bool_)
    with pytest.raises(ValueError, match="no speech"):
        at_snr(buzz(1.0)[:100], nothing, buzz(1.0)[:100], 10.0)


def test_nowhere_is_digital_silence() -> None:
    spoken = one_border()
    for seed in range(5):
        pcm = scene(spoken, [Cut(spoken.borders[0], 2.0)], seed=seed).pcm
        edges = np.flatnonzero(np.concatenate([[True], pcm != 0, [True]]))
        assert np.diff(edges).max() - 1 < 32, "a run of zeros"
        assert 1 < np.std(pcm[: samples(0.4)].astype(float)) < 60


def test_pauses_and_surroundings_have_the_recordings_own_floor() -> None:
    hiss = (0.004 * np.random.default_rng(5).standard_normal(samples(2.0))).astype(np.float32)
    spoken = one_border()
    spoken = replace(spoken, signal=spoken.signal + hiss[: len(spoken.signal)])
    made = scene(spoken, [Cut(spoken.borders[0], 1.0)])
    (pause,) = made.pauses
    heard = to_signal(made.pcm)
    active = active_samples(len(heard), made.onset, made.end, made.pauses)
    before, inside = heard[: made.onset - FRAME], heard[pause.start + FRAME : pause.end - FRAME]
    assert rms_dbfs(before) == pytest.approx(rms_dbfs(inside), abs=2.0)
    assert rms_dbfs(inside) > rms_dbfs(heard[active]) - 36, "the hiss is in the pause as well"


def test_the_floor_follows_level_and_colour() -> None:
    rng = np.random.default_rng(1)
    dark = np.convolve(rng.standard_normal(samples(1.0)), np.ones(8) / 8, "same") * 0.01
    signal = np.concatenate([dark, buzz(1.0)]).astype(np.float32)
    made = like_floor(signal, samples(3.0), rng)
    assert rms_dbfs(made) == pytest.approx(rms_dbfs(dark.astype(np.float32)), abs=2.0)
    high = np.diff(made.astype(np.float64))
    assert rms_dbfs(high.astype(np.float32)) < rms_dbfs(made) - 3


def test_nothing_clicks_where_a_pause_is_cut_in() -> None:
    spoken = one_border()
    for stretch in (1.0, 1.5):
        said = utterance(spoken, [Cut(spoken.borders[0], 0.5, stretch)])
        steepest = np.abs(np.diff(spoken.signal[samples(0.15) : samples(0.65)])).max()
        near = np.abs(np.diff(said.signal[samples(0.3) :]))
        assert near.max() <= 1.5 * steepest


@pytest.mark.parametrize("factor", [1.3, 1.5, 1.8])
def test_a_drawn_out_syllable_is_longer_at_the_same_pitch(factor: float) -> None:
    made = stretched(buzz(0.15, 200.0), factor)
    assert len(made) == round(samples(0.15) * factor)
    spectrum = np.abs(np.fft.rfft(made * np.hanning(len(made)), 1 << 16))
    pitch_hz = np.argmax(spectrum[: 1 << 11]) * LISTEN_RATE / (1 << 16)
    assert pitch_hz == pytest.approx(200.0, abs=5.0)
    assert rms_dbfs(made) == pytest.approx(rms_dbfs(buzz(0.15, 200.0)), abs=1.5)


def test_a_room_keeps_the_direct_sound_in_place_and_fades_in_its_time() -> None:
    response = room_response(0.4, np.random.default_rng(2))
    impulse = silence(1.0)
    impulse[1000] = 0.5
    heard = in_room(impulse, response)
    assert np.argmax(np.abs(heard)) == 1000
    assert np.abs(heard[:1000]).max() < 1e-6
    early = rms_dbfs(heard[1000 + samples(0.02) : 1000 + samples(0.06)])
    late = rms_dbfs(heard[1000 + samples(0.22) : 1000 + samples(0.26)])
    assert early - late == pytest.approx(60 * 0.2 / 0.4, abs=3.0)


def test_a_change_of_speed_moves_the_borders_along() -> None:
    changed = with_speed(one_border(), 1.04)
    assert len(changed.signal) == pytest.approx(samples(1.4) / 1.04, abs=2)
    assert changed.borders[0].at == round(samples(0.7) / 1.04)
    assert np.array_equal(at_speed(buzz(0.1), 1.0), buzz(0.1))


def test_levels_above_full_scale_are_clipped_not_wrapped() -> None:
    pcm = to_pcm(np.array([1.5, -1.5, 0.0], dtype=np.float32))
    assert pcm.tolist() == [32767, -32768, 0]


def test_room_tone_is_soft_and_differs_by_seed() -> None:
    first = room_tone(samples(1.0), np.random.default_rng(1))
    assert rms_dbfs(first) == pytest.approx(-62.0, abs=1.0)
    assert not np.array_equal(first, room_tone(samples(1.0), np.random.default_rng(2)))


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
        assert {w.kind for w in part} == set(get_args(SceneKind))
        assert sum(bool(w.asked) for w in part if w.kind == "one-word") >= 5


def test_marks_are_places_and_are_not_spoken() -> None:
    written = parsed("Well, ~ I had / eggs, | and # ham.", "list")
    assert written.text == "Well, I had eggs, and ham."
    assert [(mark.before, mark.words, mark.kind) for mark in written.marks] == [
        ("Well,", 1, "filler"),
        ("Well, I had", 3, "word"),
        ("Well, I had eggs,", 4, "clause"),
        ("Well, I had eggs, and", 5, "sentence"),
    ]


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


# --- sources -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens", "kind"),
    [
        ("Um, wait.", 1, "filler"),
        ("Well, wait.", 1, "filler"),
        ("I am well now.", 3, "word"),
        ("I don't think so. Go.", 4, "sentence"),
        ("Yes, please.", 1, "clause"),
    ],
)
def test_what_lies_at_a_border(text: str, tokens: int, kind: str) -> None:
    assert border_kind(text, tokens) == kind


def test_a_cut_is_placed_between_the_words_that_are_heard() -> None:
    text = "You're mad. You'll never get away with it."
    assert likely_token_after(text, Sides("you're mad", "You'll never get away with it")) == (2, 0)
    assert likely_token_after(text, Sides("Your man!", "You'll never get away with it."))[0] == 2


def test_a_text_tells_its_kind() -> None:
    assert kind_of("Who?") == "one-word"
    assert kind_of("Who is it?") == "question"
    assert kind_of("Press zero for help.") == "command"
    assert kind_of("I see. Who is it?") == "two-sentences"
    assert kind_of("I see nothing") == "statement"


def test_songs_and_groans_are_no_text() -> None:
    assert plausible("Please wait here now.", buzz(1.5))
    assert not plausible("Of the complaint made against my client,", buzz(2.5))
    assert not plausible("", buzz(1.5))
    assert not plausible("no no no no no no no no no no no no", buzz(1.5))


def test_sentences_of_flite_follow_each_other() -> None:
    printed = "pau:0.2 ay:0.3 pau:0.5 \npau:0.1 y:0.2 uw:0.4 \n"
    assert _flite_ends(printed) == pytest.approx([0.3, 0.7, 0.9])


def test_the_first_games_file_is_read_and_another_refused(tmp_path: Path) -> None:
    names = ["JOE00231.SB", "JOE00232.SB", "020006P1.SB", "C100A071.SB", "MAP.PCX"]
    header = b"QTBLCEM10\0\0\0\1" + len(names).to_bytes(2, "big")
    at = len(header) + 21 * len(names)
    entries = b"".join(
        name.encode().ljust(12, b"\0") + b"\1" + (at + i).to_bytes(4, "big") + b"\0\0\0\1"
        for i, name in enumerate(names)
    )
    file = tmp_path / "queen.1c"
    file.write_bytes(header + entries + b"abcde")
    assert Queen(file).lines() == [
        Line("020006P", "room-02", ((at + 2, 1),)),
        Line("JOE0023", "joe", ((at, 1), (at + 1, 1))),
    ]
    file.write_bytes(b"RIFF" + bytes(40))
    with pytest.raises(ValueError, match="no Flight"):
        Queen(file)


def bits_of(*fields: tuple[int, int]) -> str:
    """Numbers as (value, bits), lowest bit first."""
    return "".join(format(value, f"0{count}b")[::-1] for value, count in fields)


def packed() -> bytes:
    """ "abcabcabc!" in one chunk of two turns: 3 bytes, a copy of 6 from 3 back; then 1 byte."""
    # Tables: bytes to take: symbols 1 and 2 (1; 2 to 3), a bit each. Distance and length less
    # one and two: 2 and 4, so symbols 2 (2 to 3) and 3 (4 to 7), the only one of its table.
    head = bits_of((0, 2), (3, 5), (0, 4), (1, 4), (1, 4))
    head += bits_of((3, 5), (0, 4), (0, 4), (1, 4), (4, 5), (0, 4), (0, 4), (0, 4), (1, 4))
    head += bits_of((2, 16)) + "1" + "1"  # two turns; take symbol 2, and its low bit: 3 bytes
    tail = "0" + "0" + "0" + "00" + "0"  # distance 2 + 0, length 4 + 0; take symbol 1: 1 byte
    cut = -(-len(head) // 16) * 16
    bits = (head + tail).ljust(-(-len(head + tail) // 16) * 16, "0")
    words = [int(bits[i : i + 16][::-1], 2).to_bytes(2, "little") for i in range(0, len(bits), 16)]
    before, after = words[: cut // 16], words[cut // 16 :]
    body = b"".join(before) + b"abc" + b"".join(after) + b"!"
    return (
        b"RNC\1" + (10).to_bytes(4, "big") + len(body).to_bytes(4, "big") + bytes(5) + b"\1" + body
    )


def test_packed_data_is_unpacked() -> None:
    assert unpacked(packed()) == b"abcabcabc!"


@pytest.mark.parametrize("damage", [b"", b"RNC\2" + bytes(30), packed()[:24], packed()[:-1]])
def test_damaged_packed_data_is_refused(damage: bytes) -> None:
    with pytest.raises(ValueError, match="pack"):
        unpacked(damage)


def test_the_second_games_lines_are_found_and_unpacked(tmp_path: Path) -> None:
    block = bytes(22) + packed()
    (tmp_path / "sky.dsk").write_bytes(bytes(32) + block)
    entry = (50_007).to_bytes(2, "little") + (0x800002).to_bytes(3, "little")
    music = (60_101).to_bytes(2, "little") + bytes(6)
    size = len(block).to_bytes(3, "little")
    (tmp_path / "sky.dnr").write_bytes((2).to_bytes(4, "little") + music + entry + size)
    game = Sky(tmp_path / "sky.dsk")
    assert game.lines() == [Line("50007", "unknown", ((32, len(block)),))]
    (sound,) = game.sounds(game.lines()[0])
    assert len(sound) == pytest.approx(10 * 16_000 / 11_025, abs=1)


def test_an_absent_package_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="apt-get install beneath-a-steel-sky"):
        sky(Packages((tmp_path,)))


class TwoTexts(Listener):
    """Hears the same words in everything, but none in a high voice."""

    def __init__(self) -> None:
        pass

    def hear(self, signal: Signal) -> str:
        steep = np.abs(np.diff(signal)).mean() / np.abs(signal).mean()
        return "" if steep > 0.6 else "Please wait here. Thank you."

    def sides(self, signal: Signal, at: int) -> Sides:
        return Sides("Please wait here.", "Thank you.")


class Shelf:
    """A game whose lines are buzzes: with a pause, in two segments, plain, and not understood."""

    name = "shelf"

    def lines(self) -> list[Line]:
        return [Line(f"{kind}{n}", "joe", ((0, 1),) * (1 + (kind == "seams"))) for n in range(8)
                for kind in ("own", "seams", "plain", "noise", "long")]  # fmt: skip

    def sounds(self, line: Line) -> list[Signal]:
        kind = line.name[:-1]
        if kind == "own":
            return [np.concatenate([buzz(0.8), silence(0.4), buzz(0.9)])]
        if kind == "noise":
            return [buzz(2.0, 3000.0)]
        return [buzz(14.0)] if kind == "long" else [buzz(1.5)] * len(line.places)


def test_of_a_games_lines_half_have_pauses_of_the_speakers_own() -> None:
    chosen = actors(Shelf(), 8, TwoTexts(), np.random.default_rng(1))
    kinds = sorted(each.name.removeprefix("shelf-")[:-1] for each in chosen)
    assert kinds == ["own"] * 4 + ["plain"] * 2 + ["seams"] * 2
    for each in chosen:
        assert (each.source, each.text_by) == ("real:shelf", "moonshine")
        seams = [(border.kind, border.words) for border in each.borders if border.seam]
        assert seams == [("sentence", 3)] * ("seams" in each.name)
        if "own" in each.name:
            (own,) = silences(each.signal)
            assert own.samples == pytest.approx(samples(0.4), abs=2 * FRAME)
    again = actors(Shelf(), 8, TwoTexts(), np.random.default_rng(1))
    assert [each.name for each in again] == [each.name for each in chosen]
