"""Whether a short sound is an echo of what was sent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.echo.client import ClientEcho
from pipeline.echo.likeness import Likeness, compare
from pipeline.echo.path import NOTHING_KNOWN, EchoMemory, EchoWindow
from tests.support.echo_sound import hum, pcm, power_db, room, speechlike, through
from tests.support.recordings import recording

pytestmark = pytest.mark.machine

MOST = 24_000
SECONDS = 3.0
BEGIN = 2 * LISTEN_RATE


def ms(count: int) -> int:
    return count * LISTEN_RATE // 1000


def answer(seed: int = 1) -> np.ndarray:
    return speechlike(SECONDS, seed)


def parts(heard: np.ndarray, length_ms: int) -> tuple[Pcm, Pcm]:
    """The audio sent up to 1.5 s before, and ``length_ms`` of the audio heard."""
    end = BEGIN + ms(length_ms)
    return pcm(answer()[BEGIN - MOST : end]), pcm(heard[BEGIN:end])


@pytest.mark.parametrize("delay_ms", [10, 300, 1400])
@pytest.mark.parametrize("gain", [1.0, 0.05])
def test_an_echo_is_known_by_its_first_sound(delay_ms: int, gain: float) -> None:
    echo = gain * through(answer(), room(delay_ms, seed=2)) + hum(len(answer()), 3)
    likeness = compare(*parts(echo, 224))
    assert likeness.is_echo
    assert likeness.delay_samples == pytest.approx(ms(delay_ms), abs=16)


def test_another_person_is_no_echo() -> None:
    other, found = recording("beckett").pcm, []
    for begin_s in (1.0, 4.0, 7.0, 10.0):
        begin = round(begin_s * LISTEN_RATE)
        sent = recording("two_cities").pcm[begin : begin + MOST + ms(224)]
        starts = range(LISTEN_RATE // 2, len(other) - ms(224), LISTEN_RATE // 4)
        found += [compare(sent, other[start : start + ms(224)]).is_echo for start in starts]
    assert len(found) > 50
    assert found.count(False) >= 0.98 * len(found)


def test_a_voice_over_an_echo_does_not_hide_it() -> None:
    echo = through(answer(), room(120, seed=2))
    other = speechlike(SECONDS, seed=21)
    other *= np.sqrt(np.square(echo).mean() / np.square(other).mean())
    assert compare(*parts(echo + other, 224)).is_echo


@pytest.mark.parametrize("length_ms", [96, 160, 224, 400])
def test_a_knock_is_no_echo(length_ms: int) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        heard = hum(ms(length_ms), seed)
        heard[ms(40) : ms(41)] = rng.normal(0, 0.3, ms(1))
        sent = recording("two_cities").pcm[seed * LISTEN_RATE // 2 :][: MOST + len(heard)]
        assert not compare(sent, pcm(heard)).is_echo


def test_a_short_unlike_sound_is_undecided() -> None:
    other = recording("beckett").pcm[LISTEN_RATE:]
    assert compare(pcm(answer()[: MOST + ms(96)]), other[: ms(96)]).is_echo is None


@pytest.mark.parametrize(
    ("length_ms", "value", "is_echo"),
    [(96, 0.25, None), (96, 0.35, True), (224, 0.2, True), (224, 0.15, False), (400, 0.15, True)],
)
def test_a_longer_echo_needs_less_likeness(
    length_ms: int, value: float, is_echo: bool | None
) -> None:
    assert Likeness(0, value, ms(length_ms)).is_echo is is_echo


@pytest.mark.parametrize("value", [0, 1000])
def test_silence_and_a_steady_level_have_no_likeness(value: int) -> None:
    steady = np.full(MOST + ms(224), value, np.int16)
    assert not compare(steady, pcm(speechlike(SECONDS, 21)[: ms(224)])).is_echo
    assert not compare(pcm(answer()[: MOST + ms(224)]), steady[: ms(224)]).is_echo


@given(st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_any_sound_has_a_likeness_between_0_and_1(length_ms: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sent = (rng.integers(-32768, 32768, MOST + ms(length_ms)) * rng.uniform(0, 1)).astype(np.int16)
    likeness = compare(sent, sent[rng.integers(0, MOST) :][: ms(length_ms)])
    assert 0 <= likeness.value <= 1
    assert 0 <= likeness.delay_samples <= MOST


# --- in a session's path -----------------------------------------------------------------------

WINDOW = 512
PIECE = LISTEN_RATE // 50


def hear(
    path: ClientEcho, sent: Pcm, heard: np.ndarray, until_s: float, from_s: float = 0.0
) -> list[EchoWindow]:
    """``sent`` leaves at ``from_s``; ``heard`` arrives in 20 ms pieces in real time."""
    windows: list[EchoWindow] = []
    path.sent(sent, LISTEN_RATE, from_s)
    for start in range(round(from_s * LISTEN_RATE), round(until_s * LISTEN_RATE), PIECE):
        piece = pcm(heard[start : start + PIECE])
        windows += path.process(piece, NOTHING_KNOWN, (start + PIECE) / LISTEN_RATE)
    return windows


def test_an_echo_is_cancelled_from_its_first_sound_on() -> None:
    path = ClientEcho(WINDOW)
    echo = through(answer(), room(100, seed=2)) + hum(len(answer()), 3)
    hear(path, pcm(answer()), echo, 0.4)
    assert path.classify_onset(ms(120)) == "echo"
    assert path.found
    assert path.delay_ms == pytest.approx(100, abs=2)


@pytest.mark.parametrize("moved_ms", [-45, -20, 20, 45, 200])
def test_an_echo_is_followed_when_its_player_loses_or_gains_time(moved_ms: int) -> None:
    path, moved = ClientEcho(WINDOW), 4 * LISTEN_RATE
    long = speechlike(8.0, 1)
    before = through(long, room(100, seed=2))
    after = through(long, room(100 + moved_ms, seed=2))
    echo = np.concatenate((before[:moved], after[moved:])) + hum(len(long), 3)
    hear(path, pcm(long), echo, 0.4)
    assert path.classify_onset(ms(120)) == "echo"
    hear(path, pcm(np.zeros(0)), echo, 4.26, from_s=0.4)
    assert path.classify_onset(ms(4050)) == "echo"
    assert path.delay_ms == pytest.approx(100 + moved_ms, abs=2)
    windows = hear(path, pcm(np.zeros(0)), echo, 6.0, from_s=4.26)
    left = np.concatenate([each.frame.pcm for each in windows])
    assert power_db(to_float(left)) < power_db(echo[round(4.26 * LISTEN_RATE) :][: len(left)]) - 10


def test_a_voice_over_a_removed_echo_is_speech() -> None:
    path = ClientEcho(WINDOW)
    long = speechlike(8.0, 1)
    echo = through(long, room(100, seed=2)) + hum(len(long), 3)
    said = to_float(recording("beckett").pcm[LISTEN_RATE:][: LISTEN_RATE // 2])
    begin, loud = 5 * LISTEN_RATE, np.square(echo).mean()
    echo[begin : begin + len(said)] += said * np.sqrt(loud / np.square(said).mean())
    hear(path, pcm(long), echo, 0.4)
    assert path.classify_onset(ms(120)) == "echo"
    hear(path, pcm(np.zeros(0)), echo, 5.3, from_s=0.4)
    assert path.classify_onset(ms(5050)) == "speech"


def test_a_late_echo_of_a_short_answer_is_found() -> None:
    path = ClientEcho(WINDOW)
    short = answer()[: 2 * LISTEN_RATE // 5]
    echo = through(np.pad(short, (0, 2 * LISTEN_RATE)), room(1450, seed=2))
    hear(path, pcm(short), echo + hum(len(echo), 3), 1.72)
    assert path.classify_onset(ms(1482)) == "echo"
    assert path.delay_ms == pytest.approx(1450, abs=2)


def test_a_room_whose_echo_was_never_cancelled_is_not_kept() -> None:
    """The supposed echo was none, or it ended before anything was learned."""
    kept: list[EchoMemory | None] = []
    path = ClientEcho(WINDOW, keep=kept.append)
    long = speechlike(6.0, 1)
    echo = through(long, room(100, seed=2))
    echo[2 * LISTEN_RATE // 5 :] = 0
    heard = echo + hum(len(long), 3)
    hear(path, pcm(long), heard, 0.4)
    assert path.classify_onset(ms(120)) == "echo"
    hear(path, pcm(np.zeros(0)), heard, 5.0, from_s=0.4)
    path.close()
    assert path.found
    assert kept == []


def test_a_voice_before_any_playback_is_no_echo() -> None:
    path = ClientEcho(WINDOW)
    hear(path, pcm(np.concatenate((np.zeros(LISTEN_RATE), answer()))), answer(), 0.1)
    assert path.classify_onset(ms(40)) == "speech"
    assert not path.found


def test_a_microphone_without_echo_is_not_searched_again() -> None:
    path = ClientEcho(WINDOW)
    long = speechlike(6.0, 1)
    hear(path, pcm(long), hum(len(long), 3), 5.9)
    assert path.classify_onset(round(5.85 * LISTEN_RATE)) == "speech"


def test_short_answers_do_not_prove_the_absence_of_echo() -> None:
    path = ClientEcho(WINDOW)
    short, room_tone = pcm(answer()[: LISTEN_RATE // 2]), hum(15 * LISTEN_RATE, 3)
    for at_s in (0.0, 2.5, 5.0, 7.5, 10.0):
        hear(path, short, room_tone, at_s + 2.5, from_s=at_s)
    hear(path, short, room_tone, 13.0, from_s=12.5)
    assert path.classify_onset(round(12.95 * LISTEN_RATE)) == "unknown"
