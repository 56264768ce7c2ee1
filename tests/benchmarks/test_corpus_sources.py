"""Where the corpus's speech comes from: game files, texts, borders between words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.acoustics import (
    Signal,
)
from benchmarks.harness.energy import silences
from benchmarks.turns.clips import Line
from benchmarks.turns.listen import Listener, Sides, border_kind, likely_token_after
from benchmarks.turns.people import Packages, actors, kind_of, plausible, sky
from benchmarks.turns.queen import Queen
from benchmarks.turns.rnc import unpacked
from benchmarks.turns.sky import Sky
from benchmarks.turns.voices import _flite_ends
from tests.benchmarks.corpus_speech import FRAME, buzz, samples, silence

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
def test_border_kinds(text: str, tokens: int, kind: str) -> None:
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
    with pytest.raises(ValueError, match="is not Flight"):
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
    """Hears the same words in everything, except in a high voice."""

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
