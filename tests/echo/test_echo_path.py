"""Sent audio, its echo and the residual."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import EMPTY, LISTEN_RATE, Pcm, to_float
from pipeline.echo.client import MOST_ROOMS, ClientEcho, MicrophoneClock, Rooms, SentSound
from pipeline.echo.kalman import Samples
from pipeline.echo.path import NOTHING_KNOWN, EchoMemory, EchoWindow
from tests.support.echo_sound import hum, pcm, power_db, room, speechlike, through

pytestmark = pytest.mark.machine

WINDOW = 512
RATE = LISTEN_RATE
PIECE = RATE // 50
ANSWER_S = 6.0
STARTS_S = (1.0, 10.0, 19.0)
WHOLE_S = 26.0


@dataclass
class EchoingClient:
    """A client across a network, in a room: it plays what it receives, and its microphone hears
    that."""

    response: Samples
    """From loudspeaker to microphone."""
    down_s: float = 0.12
    """Minimum delay to the client's player."""
    up_s: float = 0.02
    """Minimum delay from the client's microphone."""
    jitter_s: float = 0.01
    seed: int = 1
    said: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    """A person's speech, by microphone samples."""
    played: Samples = field(default_factory=lambda: np.zeros(0, np.float32))

    def play(self, sound: Pcm, sent_s: float, more_s: float = 0.0) -> None:
        """``sound`` was sent at that time on the server's clock and arrives ``more_s`` later than
        usual."""
        at = round((sent_s + self.down_s + more_s) * RATE)
        start = max(at, len(self.played))
        silence = np.zeros(start - len(self.played), np.float32)
        self.played = np.concatenate((self.played, silence, to_float(sound)))

    def heard(self, seconds: float) -> Iterator[tuple[Pcm, float]]:
        """Pieces of the microphone's stream from 0 on, with their arrival times at the server."""
        count = round(seconds * RATE)
        whole = hum(count, self.seed)
        for sound in (through(self.played, self.response)[:count], self.said[:count]):
            whole[: len(sound)] += sound
        rng = np.random.default_rng(self.seed)
        for start in range(0, count - PIECE + 1, PIECE):
            late_s = self.up_s + float(rng.uniform(0, self.jitter_s))
            yield pcm(whole[start : start + PIECE]), (start + PIECE) / RATE + late_s


def conversation(
    client: EchoingClient,
    more_s: Sequence[float] = (0.0, 0.0, 0.0),
    path: ClientEcho | None = None,
    seed: int = 20,
    clock_s: float = 0.0,
) -> tuple[ClientEcho, list[EchoWindow]]:
    """Three answers of six seconds, sent in 40 ms pieces, a quarter of a second ahead. ``clock_s``:
    start time on the server's clock."""
    path = path or ClientEcho(WINDOW)
    outgoing: list[tuple[float, Pcm]] = []
    for number, (start_s, later_s) in enumerate(zip(STARTS_S, more_s, strict=True)):
        answer = pcm(0.5 * speechlike(ANSWER_S, seed + number))
        for at in range(0, len(answer), 640):
            piece = answer[at : at + 640]
            sent_s = start_s + max(0.0, at / RATE - 0.25)
            outgoing.append((sent_s, piece))
            client.play(piece, sent_s, later_s)
    windows: list[EchoWindow] = []
    for heard, now in client.heard(WHOLE_S):
        while outgoing and outgoing[0][0] <= now:
            at, piece = outgoing.pop(0)
            path.sent(piece, RATE, clock_s + at)
        windows += path.process(heard, NOTHING_KNOWN, clock_s + now)
    return path, windows


def sound_of(windows: Sequence[EchoWindow], begin_s: float, end_s: float) -> np.ndarray:
    kept = [w.frame.pcm for w in windows if begin_s * RATE <= w.frame.index < end_s * RATE]
    return to_float(np.concatenate(kept))


def left_db(windows: Sequence[EchoWindow], client: EchoingClient, begin_s: float) -> float:
    """Level of the residual relative to the echo in the last four seconds of an answer."""
    heard = np.concatenate([piece for piece, _ in client.heard(WHOLE_S)])
    begin, end = begin_s + 2, begin_s + ANSWER_S
    echo = to_float(heard[int(begin * RATE) : int(end * RATE)])
    return power_db(sound_of(windows, begin, end)) - power_db(echo)


@pytest.mark.parametrize("down_s", [0.03, 0.12, 0.45, 1.0, 1.4])
def test_an_echo_is_found_and_cancelled(down_s: float) -> None:
    """A later echo is found later."""
    client = EchoingClient(room(5, seed=1), down_s=down_s)
    path, windows = conversation(client)
    # Microphone samples count when they arrive, at least 20 ms late.
    assert path.delay_ms == pytest.approx((down_s + 0.02 + 0.005) * 1000, abs=12)
    if down_s < 1:
        assert left_db(windows, client, STARTS_S[1]) < -8
    assert left_db(windows, client, STARTS_S[2]) < -12


def test_windows_have_every_sample_in_its_place() -> None:
    client = EchoingClient(room(5, seed=2))
    _, windows = conversation(client)
    assert windows[0].frame.index == 0
    assert all(a.frame.end == b.frame.index for a, b in pairwise(windows))
    assert windows[-1].frame.end >= WHOLE_S * RATE - WINDOW - 320
    quiet = [w for w in windows if w.frame.end < STARTS_S[0] * RATE]
    assert all(w.post_filtered is None for w in quiet)
    loud = [w for w in windows if STARTS_S[2] + 1 < w.frame.index / RATE < STARTS_S[2] + 5]
    assert all(w.post_filtered is not None and len(w.post_filtered) == WINDOW for w in loud)


def test_sound_without_echo_is_never_touched() -> None:
    said = 0.3 * speechlike(WHOLE_S, seed=5)
    client = EchoingClient(np.zeros(1, np.float32), said=said)
    path, windows = conversation(client)
    heard = np.concatenate([piece for piece, _ in client.heard(WHOLE_S)])
    assert path.delay_ms is None
    whole = np.concatenate([w.frame.pcm for w in windows])
    assert np.array_equal(whole, heard[: len(whole)])
    assert all(w.post_filtered is None and w.llr == 15 for w in windows)


def test_words_over_an_echo_come_through() -> None:
    said = np.zeros(int(WHOLE_S * RATE), np.float32)
    words = 0.2 * speechlike(2.0, seed=77)
    begin = int((STARTS_S[2] + 2.5) * RATE)
    said[begin : begin + len(words)] = words
    client = EchoingClient(room(5, seed=3), said=said)
    _, windows = conversation(client)
    whole = to_float(np.concatenate([w.frame.pcm for w in windows]))
    kept = whole[begin : begin + len(words)]
    assert np.corrcoef(kept, words)[0, 1] > 0.85
    louder = [w.llr for w in windows if begin < w.frame.index < begin + 2 * RATE]
    before = [w.llr for w in windows if begin - 2 * RATE < w.frame.index < begin - 1000]
    assert np.median(louder) > 4
    assert np.median(before) < 2


@pytest.mark.parametrize("later_s", [0.02, -0.025, 0.2])
def test_a_changed_player_delay_is_followed(later_s: float) -> None:
    client = EchoingClient(room(5, seed=4), down_s=0.2)
    path, windows = conversation(client, (0.0, 0.0, later_s))
    assert left_db(windows, client, STARTS_S[2]) < -8
    assert path.delay_ms == pytest.approx((0.2 + 0.025 + later_s) * 1000, abs=15)


@pytest.mark.parametrize(("down_s", "most_db"), [(0.12, -20), (0.3, -12)])
def test_a_known_room_is_clean_at_once(down_s: float, most_db: float) -> None:
    """Over another network, as soon as the echo is found there."""
    response = room(5, seed=6)
    path = ClientEcho(WINDOW)
    conversation(EchoingClient(response), path=path)
    known = room_of(path)
    client = EchoingClient(response, down_s=down_s, seed=9)
    _, again = conversation(client, path=ClientEcho(WINDOW, known), seed=40)
    assert left_db(again, client, STARTS_S[0]) < most_db


def test_no_room_is_kept_without_echo() -> None:
    kept: list[EchoMemory | None] = []
    path = ClientEcho(WINDOW, keep=kept.append)
    conversation(EchoingClient(np.zeros(1, np.float32)), path=path)
    path.close()
    assert kept == []


def test_headphones_end_the_cancelling() -> None:
    response = room(5, seed=7)
    path, _ = conversation(EchoingClient(response))
    assert path.found
    rooms = Rooms()
    rooms.keep("here", room_of(path))
    path = ClientEcho(WINDOW, rooms.of("here"), lambda room: rooms.keep("here", room))
    conversation(EchoingClient(np.zeros(1, np.float32)), path=path)
    assert path.delay_ms is None
    path.close()
    assert rooms.of("here") is None


def room_of(path: ClientEcho) -> EchoMemory:
    kept: list[EchoMemory | None] = []
    path._keep = kept.append
    path.close()
    assert kept[0]
    return kept[0]


def test_the_number_of_rooms_is_limited() -> None:
    rooms, known = Rooms(), cast(EchoMemory, object())
    rooms.keep("", known)
    for number in range(MOST_ROOMS + 3):
        rooms.keep(f"10.0.0.{number}", known)
    assert len(rooms) == MOST_ROOMS
    assert rooms.of("10.0.0.0") is None
    assert rooms.of("") is None
    assert rooms.of("10.0.0.5") is known


# --- the place of what is sent -----------------------------------------------------------------


def test_the_clock_follows_the_least_late_piece() -> None:
    clock = MicrophoneClock()
    assert clock.index(5.0) == 0
    for number, late_s in enumerate((0.03, 0.01, 0.08, 0.02), 1):
        clock.arrived(number * 320, number * 0.02 + late_s)
    assert clock.index(1.01) == RATE


@pytest.mark.parametrize("muted_s", [3.0, 300.0])
def test_a_client_that_was_muted_is_clean_again(muted_s: float) -> None:
    client = EchoingClient(room(5, seed=2))
    path, _ = conversation(client)
    for second in range(int(muted_s)):
        path.sent(np.ones(RATE, np.int16), RATE, WHOLE_S + second)
    again = EchoingClient(room(5, seed=2))
    _, windows = conversation(again, path=path, seed=60, clock_s=WHOLE_S + muted_s)
    first = windows[0].frame.index  # after the earlier ones
    frames = [replace(w.frame, index=w.frame.index - first) for w in windows]
    assert left_db(list(map(EchoWindow, frames)), again, STARTS_S[0]) < -12


def test_a_slower_clock_is_followed() -> None:
    clock = MicrophoneClock()
    for second in range(1, 601):
        clock.arrived(second * RATE, second * 1.0001)
    assert clock.index(600.06) == pytest.approx(600 * RATE, abs=0.004 * RATE)


@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(1, 700)), max_size=12),
    st.lists(st.integers(1, 800), min_size=1, max_size=20),
)
def test_sent_audio_can_be_read_back(sends: list[tuple[int, int]], steps: list[int]) -> None:
    truth = np.zeros(60_000, np.int16)
    sent, at, end, value = SentSound(60_000), 0, 0, 1
    for wait, count in sends:
        at += wait
        start = max(at, end)
        truth[start : start + count] = value
        sent.send(np.full(count, value, np.int16), at)
        end, value = start + count, value + 1
    passed = 0
    for step in steps:
        sent.pass_to(passed + step)
        assert np.array_equal(sent.read(passed, passed + step), truth[passed : passed + step])
        passed += step
    assert np.array_equal(sent.read(0, passed), truth[:passed])


def test_audio_flushed_by_the_player_is_not_heard() -> None:
    sent = SentSound(RATE)
    sent.send(np.full(100, 5, np.int16), 50)
    sent.send(np.full(100, 6, np.int16), 50)
    sent.cut(120)
    sent.send(np.full(10, 7, np.int16), 130)
    sent.pass_to(200)
    heard = sent.read(0, 200)
    assert (heard[50:120] == 5).all()
    assert not heard[120:130].any()
    assert (heard[130:140] == 7).all()
    assert not heard[140:].any()
    assert len(sent.read(5, 5)) == len(EMPTY)
