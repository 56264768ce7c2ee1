"""Hearing through a sound card: the echo of its playback is cancelled."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.commands import AppendAudio, SessionConfig
from pipeline.echo.card import CardEcho, CardReference
from pipeline.echo.path import EchoWindow, Playback
from pipeline.events import ReplyAudio, ReplyHeld, ReplyStarted, ReplyWentOn, SpeechStarted
from pipeline.hearing.card import ChipHearing, HalfDuplexHearing
from reachy_voice.testing import Scene, ScriptedLlm, in_virtual_time, play, say, scene, silence
from tests.support.echo_sound import hum, pcm, power_db, room, speechlike, through

pytestmark = pytest.mark.machine

RATE, WINDOW, PIECE = LISTEN_RATE, 512, LISTEN_RATE // 50


def played(starts_s: tuple[float, ...], answer_s: float, whole_s: float) -> np.ndarray:
    whole = np.zeros(round(whole_s * RATE), np.float32)
    for number, start_s in enumerate(starts_s):
        sound = 0.5 * speechlike(answer_s, 30 + number)
        at = round(start_s * RATE)
        whole[at : at + len(sound)] = sound
    return whole


def hear(path: CardEcho, reference: np.ndarray, microphone: np.ndarray) -> list[EchoWindow]:
    windows: list[EchoWindow] = []
    for at in range(0, len(microphone) - PIECE + 1, PIECE):
        heard, told = (pcm(sound[at : at + PIECE]) for sound in (microphone, reference))
        windows += path.process(heard, Playback(told), (at + PIECE) / RATE)
    return windows


def left_db(windows: list[EchoWindow], echo: np.ndarray, begin_s: float, end_s: float) -> float:
    begin, end = round(begin_s * RATE), round(end_s * RATE)
    kept = np.concatenate([w.frame.pcm for w in windows if begin <= w.frame.index < end])
    return power_db(to_float(kept)) - power_db(echo[begin:end])


@pytest.mark.parametrize("moved_ms", [-30, 25, 60])
def test_a_relearned_echo_is_not_realigned_twice(moved_ms: int) -> None:
    """The filter followed the echo by itself; a later finding must not move it again."""
    reference = played((0.5, 12.0, 24.0), 10.0, 35.0)
    before, after = (through(reference, room(delay_ms, seed=3)) for delay_ms in (80, 80 + moved_ms))
    cut = round(3.5 * RATE)
    echo = np.concatenate((before[:cut], after[cut:]))
    windows = hear(CardEcho(WINDOW), reference, echo + hum(len(echo), 1))
    for begin_s in (8.5, 16.0, 20.0, 28.0, 32.0):
        assert left_db(windows, echo, begin_s, begin_s + 2) < -15


@pytest.mark.parametrize("gaps_every_s", [None, 0.4])
def test_an_echo_that_jumps_out_of_reach_is_found_within_the_answer(
    gaps_every_s: float | None,
) -> None:
    """The card may keep reporting gaps meanwhile; corrected gaps must not restart the search."""
    reference = played((0.5,), 34.0, 35.0)
    before, after = (through(reference, room(delay_ms, seed=3)) for delay_ms in (80, 480))
    cut = 14 * RATE
    echo = np.concatenate((before[:cut], after[cut:]))
    microphone = echo + hum(len(echo), 1)
    path = CardEcho(WINDOW)
    windows = hear(path, reference[:cut], microphone[:cut])
    step = round((gaps_every_s or 1.0) * RATE) // PIECE * PIECE
    for at in range(cut, len(echo), step):
        if gaps_every_s and at < 24 * RATE:
            path.reference_moved(0)
        windows += hear(path, reference[at : at + step], microphone[at : at + step])
        if 23 * RATE <= at < 24 * RATE:
            assert path.delay_ms == pytest.approx(480, abs=12)
    assert path.delay_ms == pytest.approx(480, abs=12)
    assert left_db(windows, echo, 9.0, 13.5) < -15
    assert left_db(windows, echo, 26.0, 33.0) < -15


@pytest.mark.parametrize("level", [0.0, 0.5])
def test_a_room_is_kept_during_an_answer(level: float) -> None:
    """The microphone is switched off for 16 s, or a person is much louder than the echo."""
    reference = played((0.5,), 38.0, 40.0)
    echo = through(reference, room(80, seed=3))
    off, on = 10 * RATE, 26 * RATE
    microphone = echo + hum(len(echo), 1)
    louder = microphone[off:on] + level * speechlike(16.0, 77)
    microphone[off:on] = louder if level else 0
    path = CardEcho(WINDOW)
    windows = hear(path, reference, microphone)
    assert path.found
    assert left_db(windows, echo, 7.0, 9.5) < -15
    assert left_db(windows, echo, 30.0, 37.0) < -15


def test_a_reported_gap_is_corrected_within_a_second() -> None:
    """After the gap the loudspeaker's stream is reported 480 samples later than before."""
    reference = played((0.5, 8.0), 6.0, 15.0)
    echo = through(reference, room(70, seed=4))
    path = CardEcho(WINDOW)
    cut = 10 * RATE
    hear(path, reference[:cut], echo[:cut] + hum(cut, 1))
    late = np.concatenate((np.zeros(480, np.float32), reference[cut:-480]))
    path.reference_moved(-480)
    windows = hear(path, late, echo[cut:] + hum(len(echo) - cut, 2))
    kept = np.concatenate([w.frame.pcm for w in windows])[RATE : 3 * RATE]
    assert power_db(to_float(kept)) - power_db(echo[cut + RATE : cut + 3 * RATE]) < -12


def test_little_unheard_reference_is_kept() -> None:
    reference = CardReference(1000)
    for _ in range(50):
        reference.play(np.full(100, 7, np.int16))
        reference.arrives(40, 0.0)
    reference.pass_to(40)
    assert np.array_equal(reference.read(0, 40), np.full(40, 7, np.int16))
    reference.arrives(90, 0.0)
    reference.pass_to(90)
    assert not reference.read(40, 90).any()
    assert reference.last_sound == 40


# --- in sessions -------------------------------------------------------------------------------


def story() -> ScriptedLlm:
    return ScriptedLlm(deltas=tuple(f"{word} " for word in ("and then I went on " * 8).split()))


async def answer(told: Scene, level: int, seconds: float) -> None:
    """A microphone that hears the playback at full level 20 ms later."""
    given: Pcm = np.full(PIECE, 1000, np.int16)
    for _ in range(round(seconds * 50)):
        microphone = np.full(PIECE, level, np.int16)
        await told.session.submit(AppendAudio(microphone, RATE, reference=given))
        await told.sleep_until(told.loop.time() + 0.02)


@pytest.mark.parametrize("half_duplex", [True, False])
@in_virtual_time
async def test_half_duplex_mutes_the_microphone_during_playback(half_duplex: bool) -> None:
    hearing = HalfDuplexHearing(WINDOW) if half_duplex else ChipHearing(WINDOW)

    async with scene(llm=story(), hearing=hearing) as told:
        await told.say(1.0)
        await told.hear(1.5)
        await answer(told, 3000, 2.0)
        await told.hear(0.58)
        await told.say(0.02)
        await told.hear(1.0)
    assert told.events(ReplyStarted)
    assert (len(told.events(SpeechStarted)) == 1) == half_duplex


def test_half_duplex_hears_again_soon_after() -> None:
    hearing = HalfDuplexHearing(WINDOW)
    heard: list[Pcm] = []
    loud, quiet = np.full(PIECE, 900, np.int16), np.zeros(PIECE, np.int16)
    for number in range(100):
        told = Playback(loud if number < 10 else quiet)
        heard += [w.frame.pcm for w in hearing.process(loud, told, 0.0)]
    first = int(np.flatnonzero(np.concatenate(heard))[0])
    assert first == 10 * PIECE + 6 * RATE // 10


def test_ducking_starts_and_ends_in_order() -> None:
    told = play(
        say(1.0), silence(1.5), say(0.3), silence(3.0), llm=story(), hearing=ChipHearing(WINDOW)
    )
    (reply,) = (e.reply_id for e in told.events(ReplyStarted)[:1])
    held = [type(e) for e in told.events(object) if isinstance(e, ReplyHeld | ReplyWentOn)]
    assert held[0] is ReplyHeld
    assert all(a is not b for a, b in itertools.pairwise(held))
    assert {e.reply_id for e in told.events(ReplyHeld)} == {reply}
    assert told.events(ReplyAudio)


@in_virtual_time
async def test_push_to_talk_keeps_no_playback() -> None:
    hearing = CardEcho(WINDOW)
    config = SessionConfig(instructions="", turn_detection=None)

    async with scene(hearing=hearing, config=config) as told:
        await answer(told, 3000, 2.0)
    assert len(hearing._reference._ahead) == 0
