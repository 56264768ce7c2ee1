"""Speech far below the speaker's level is background: levels and scores in, signals out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from benchmarks.harness.acoustics import Signal as Sound
from benchmarks.harness.acoustics import gained, rms_dbfs, room_tone, to_pcm, to_signal
from benchmarks.harness.energy import frame_db
from benchmarks.harness.virtual_engines import InlineVad
from pipeline.audio import LISTEN_RATE, AudioFrame, Resampler
from pipeline.engines.stages import Stages
from pipeline.engines.vad.silero import SileroVad
from pipeline.hearing.client import ClientHearing
from pipeline.hearing.listening import Listener
from pipeline.hearing.nearness import Nearness, WindowEvidence, WindowScore, weigh
from pipeline.hearing.turn_taker import Signal, TurnEnd, TurnPause, TurnStart, TurnTaker
from pipeline.settings import Echo, Endpointing
from tests.support.recordings import recording

pytestmark = pytest.mark.engines

WINDOW = 512
WINDOWS_PER_S = LISTEN_RATE / WINDOW

MUTED, ROOM, WIND, NEAR_WIND, MURMUR, HUM, SPEAKER, SOFT, QUIETER, TURNED, TELEVISION = (
    (0.0, -200.0),
    (0.01, -70.0),
    (0.02, -58.0),
    (0.02, -56.5),
    (0.05, -50.0),
    (0.2, -50.0),
    (0.99, -25.0),
    (0.9, -31.0),
    (0.9, -33.5),
    (0.9, -40.0),
    (0.9, -43.0),
)
"""A VAD score and a level in dBFS."""


@dataclass
class Ear:
    """Judges and follows one stream; a pause ends after ``wait_ms``."""

    settings: Endpointing = field(default_factory=Endpointing)
    wait_ms: int = 400
    windows: int = 0
    rumble_hz: float | None = None
    """Of a loud tone below all voices; 0: an offset."""

    def __post_init__(self) -> None:
        self.nearness, self.taker = Nearness(), TurnTaker(self.settings)
        self.noise = np.random.default_rng(1)

    def hear(
        self, speech: tuple[float, float], seconds: float, post_filtered: float | None = None
    ) -> list[Signal]:
        found: list[Signal] = []
        score, dbfs = speech
        for _ in range(round(seconds * WINDOWS_PER_S)):
            sound = gained(self.noise.normal(size=WINDOW).astype(np.float32), dbfs)
            if self.rumble_hz is not None:
                at_s = (self.windows * WINDOW + np.arange(WINDOW)) / LISTEN_RATE
                sound += 0.25 * np.cos(2 * np.pi * self.rumble_hz * at_s).astype(np.float32)
            pcm = to_pcm(sound)
            frame = AudioFrame(pcm, LISTEN_RATE, self.windows * WINDOW)
            self.windows += 1
            known = WindowEvidence(score, post_filtered)
            heard = self.nearness.hear(known, frame, self.taker.open, self.settings)
            found += self.taker.feed(heard.score, frame, heard.below_db, heard.nearer_from)
            found += self.taker.judge(self.wait_ms)
        return found

    def hear_all(self, *script: tuple[tuple[float, float], float]) -> list[Signal]:
        return [signal for sound, seconds in script for signal in self.hear(sound, seconds)]


def kinds(signals: list[Signal]) -> list[type[Signal]]:
    return [type(signal) for signal in signals]


def seconds(samples: int) -> float:
    return samples / LISTEN_RATE


@pytest.mark.parametrize(
    ("evidence", "turn_is_open", "heard"),
    [
        (WindowEvidence(0.9), False, WindowScore(0.9)),
        # Level.
        (WindowEvidence(0.9, below_db=11.0), False, WindowScore(0.9)),
        (WindowEvidence(0.9, below_db=13.0), False, WindowScore(0.25, 13.0)),
        (WindowEvidence(0.9, below_db=13.0), True, WindowScore(0.9, 13.0)),
        # Direction, which does not count in an open turn.
        (WindowEvidence(0.9, elsewhere=True), False, WindowScore(0.25)),
        (WindowEvidence(0.9, elsewhere=True, others=True), False, WindowScore(0.0)),
        (WindowEvidence(0.9, elsewhere=True, others=True), True, WindowScore(0.9)),
        # A motor, which a speaker outlasts.
        (WindowEvidence(0.9, motor=True), False, WindowScore(0.25)),
        (WindowEvidence(0.9, motor=True), True, WindowScore(0.9)),
        # Echo: explained, in doubt, and louder than explained.
        (WindowEvidence(0.9, 0.0, llr=1.0), False, WindowScore(0.0)),
        (WindowEvidence(0.9, 0.0, llr=3.0), False, WindowScore(0.25)),
        (WindowEvidence(0.9, 0.0, llr=1.0), True, WindowScore(0.0)),
        (WindowEvidence(0.9, 0.0, llr=6.0), True, WindowScore(0.9)),
        (WindowEvidence(0.3, 0.95, llr=12.0), False, WindowScore(0.95)),
        # Near-end speech over an answer, from elsewhere or far away.
        (WindowEvidence(0.3, 0.95, llr=12.0, elsewhere=True), False, WindowScore(0.25)),
        (WindowEvidence(0.3, 0.95, llr=12.0, below_db=20.0), False, WindowScore(0.25, 20.0)),
    ],
)
def test_all_evidence_counts(
    evidence: WindowEvidence, turn_is_open: bool, heard: WindowScore
) -> None:
    assert weigh(evidence, turn_is_open, 0.5, 12.0) == heard


def test_without_a_margin_no_level_counts() -> None:
    assert weigh(WindowEvidence(0.9, below_db=40.0), False, 0.5, None) == WindowScore(0.9)


def test_a_turn_ends_despite_a_television() -> None:
    signals = Ear().hear_all((ROOM, 0.5), (SPEAKER, 2), (TELEVISION, 10))
    assert kinds(signals) == [TurnStart, TurnPause, TurnEnd]
    paused, ended = cast(TurnPause, signals[1]), cast(TurnEnd, signals[2])
    assert seconds(paused.speech_end) == pytest.approx(2.5, abs=0.1)
    assert paused.end - paused.speech_end <= 0.13 * LISTEN_RATE, "a word's end, and no more"
    assert ended.below_db == pytest.approx(18, abs=1.5)


@pytest.mark.parametrize("score", [0.9, 0.985, 1.0])
def test_each_turn_ends_although_a_television_is_as_loud_as_the_room_by_now(score: float) -> None:
    """However sure the VAD is of it."""
    television = (score, -43.0)
    signals = Ear().hear_all(*[(SPEAKER, 2), (television, 12)] * 2)
    assert kinds(signals) == [TurnStart, TurnPause, TurnEnd] * 2
    assert seconds(cast(TurnEnd, signals[-1]).speech_end) == pytest.approx(16, abs=0.1)


LOUD, NEARLY = ((0.9, -37.0), 0.25), ((0.9, -33.0), 0.1)
"""A television at -12 dB, with its loudest syllables at -8 dB."""


@pytest.mark.parametrize(("before", "ends_at_s"), [([LOUD, NEARLY] * 5, 4.25), ([(ROOM, 2)], 8)])
def test_earlier_background_must_become_louder_to_count(
    before: list[tuple[tuple[float, float], float]], ends_at_s: float
) -> None:
    """In a quiet room a voice falls and rises like that."""
    script = (*before, (ROOM, 0.5), (SPEAKER, 2), *[LOUD, NEARLY] * 10)
    signals = Ear().hear_all(*script, (ROOM, 1))
    ends = [each for each in signals if isinstance(each, TurnEnd)]
    assert seconds(ends[-1].speech_end) == pytest.approx(ends_at_s, abs=0.15)


def test_a_soft_moment_in_a_long_turn_is_not_background() -> None:
    nearly = (0.9, -32.0)
    falls = ((nearly, 0.4), (SPEAKER, 10.9), (TURNED, 0.2), (nearly, 1.2))
    signals = Ear().hear_all((SPEAKER, 2), *falls, (SPEAKER, 2), (ROOM, 1))
    assert kinds(signals).count(TurnEnd) == 1
    assert seconds(cast(TurnEnd, signals[-1]).speech_end) == pytest.approx(16.7, abs=0.1)


def test_pauses_of_the_background_change_nothing() -> None:
    blips = ((ROOM, 0.3), (TELEVISION, 0.8)) * 3
    signals = Ear(wait_ms=1500).hear_all((SPEAKER, 2), (TELEVISION, 0.8), *blips)
    assert kinds(signals) == [TurnStart, TurnPause, TurnEnd]


@pytest.mark.parametrize(
    ("script", "ends_at_s"),
    [
        ([(TURNED, 0.2)], 2.2),
        ([(TURNED, 0.45)], 2.45),
        ([(ROOM, 0.2), (TURNED, 0.45)], 2.65),
        ([(SOFT, 3)], 5.0),
        ([(TURNED, 0.3), (SPEAKER, 1)], 3.3),
        ([(TURNED, 0.5), (SPEAKER, 1)], 3.5),
        ([(ROOM, 0.2), (SPEAKER, 1)], 3.2),
    ],
)
def test_a_quiet_word_belongs_to_the_speaker(
    script: list[tuple[tuple[float, float], float]], ends_at_s: float
) -> None:
    """The level rises again, or the word ends soon."""
    signals = Ear(wait_ms=600).hear_all((SPEAKER, 2), *script, (ROOM, 2))
    assert isinstance(signals[-1], TurnEnd)
    assert kinds(signals).count(TurnEnd) == 1
    assert seconds(signals[-1].speech_end) == pytest.approx(ends_at_s, abs=0.05)
    assert signals[-1].below_db == 0


@pytest.mark.parametrize(
    ("then", "opens"),
    [
        ([(TELEVISION, 20)], False),
        ([(ROOM, 5), (SOFT, 1)], True),
        ([(ROOM, 0.3), (TURNED, 1)], False),
        ([(ROOM, 1), (TURNED, 1)], True),
        ([(TELEVISION, 1), (ROOM, 2), (TURNED, 1)], False),
        ([(TELEVISION, 1), (ROOM, 4), (TURNED, 1)], True),
        ([(ROOM, 3), ((0.9, -47.0), 1)], False),
        ([(ROOM, 7), ((0.9, -47.0), 1)], True),
        ([(ROOM, 1), *[(NEAR_WIND, 0.5), (ROOM, 0.5)] * 6, ((0.9, -47.0), 1)], True),
        ([(ROOM, 0.3), (TURNED, 1), (ROOM, 2), (TURNED, 1)], False),
        ([(ROOM, 0.3), (TURNED, 1), (ROOM, 4), (TURNED, 1)], True),
        ([(ROOM, 0.3), *[(MURMUR, 0.2), (ROOM, 0.6)] * 20, (TURNED, 1)], False),
        ([(ROOM, 1), (QUIETER, 2), (ROOM, 1), (SOFT, 1)], True),
        ([(ROOM, 0.3), (QUIETER, 6), (ROOM, 1), (SOFT, 1)], False),
        ([(ROOM, 1), *[(WIND, 0.1), (ROOM, 0.1)] * 15, (TURNED, 1)], True),
        ([(HUM, 20), (TURNED, 1)], False),
        ([(HUM, 31), (TURNED, 1)], True),
        ([(TELEVISION, 25), (ROOM, 2), (TELEVISION, 1)], False),
        ([(TELEVISION, 20), (SPEAKER, 1)], True),
        ([(TELEVISION, 1), (ROOM, 2)] * 35, False),
    ],
)
def test_the_speakers_level_is_remembered(
    then: list[tuple[tuple[float, float], float]], opens: bool
) -> None:
    ear = Ear()
    assert kinds(ear.hear_all((SPEAKER, 2), (ROOM, 1))) == [TurnStart, TurnPause, TurnEnd]
    assert (TurnStart in kinds(ear.hear_all(*then))) == opens


@pytest.mark.parametrize(
    ("sounds", "wait_ms"),
    [
        pytest.param([(SPEAKER, 2), (ROOM, 2)], 1200, id="before the turn ends"),
        pytest.param([(SPEAKER, 2), ((0.9, -45.0), 0.5), (ROOM, 2)], 400, id="after soft words"),
        pytest.param([(MUTED, 1), (MURMUR, 1), (SPEAKER, 2), (MURMUR, 4)], 400, id="muted first"),
        pytest.param([(NEAR_WIND, 1), (MURMUR, 30), (SPEAKER, 2), (MURMUR, 3)], 400, id="a fan"),
    ],
)
def test_quiet_lets_a_softer_person_begin(
    sounds: list[tuple[tuple[float, float], float]], wait_ms: int
) -> None:
    ear = Ear(wait_ms=wait_ms)
    first = kinds(ear.hear_all(*sounds))
    assert (first.count(TurnStart), first[-1]) == (1, TurnEnd)
    assert TurnStart in kinds(ear.hear(TURNED, 1))


def test_a_softer_person_is_heard_again() -> None:
    ear = Ear()
    ear.hear_all((SPEAKER, 2), (ROOM, 4), (TURNED, 5))
    assert TurnStart in kinds(ear.hear_all((ROOM, 1), (TURNED, 1)))


def test_a_softer_person_is_heard_as_often_as_a_louder_one() -> None:
    ear, softer = Ear(), (0.9, -39.0)
    script = ((SPEAKER, 2), (ROOM, 2), (softer, 2), (ROOM, 2)) * 5
    assert kinds(ear.hear_all(*script)).count(TurnStart) == 10


def test_the_level_of_a_turn_without_words_is_not_remembered() -> None:
    ear = Ear()
    ear.hear_all((TURNED, 2), (ROOM, 1), (SPEAKER, 2), (ROOM, 1))
    ear.nearness.forget_turn()
    assert TurnStart in kinds(ear.hear(TURNED, 1))


def test_an_echo_is_not_learned_from() -> None:
    ear = Ear()
    ear.hear(SPEAKER, 0.5)
    ear.hear(SPEAKER, 2, post_filtered=0.9)
    ear = Ear()
    loud = (0.99, -10.0)
    assert kinds(ear.hear(loud, 2, post_filtered=0.99)) == [TurnStart]
    signals = ear.hear_all((SPEAKER, 2), (ROOM, 1))
    assert kinds(signals) == [TurnPause, TurnEnd]
    assert seconds(cast(TurnEnd, signals[-1]).speech_end) == pytest.approx(4, abs=0.1)


def test_a_nearer_speaker_begins_the_turn() -> None:
    signals = Ear().hear_all((TELEVISION, 5), (SPEAKER, 2), (TELEVISION, 5))
    assert kinds(signals) == [TurnStart, TurnStart, TurnPause, TurnEnd]
    assert seconds(cast(TurnStart, signals[1]).start) == pytest.approx(4.87, abs=0.04)
    assert seconds(cast(TurnEnd, signals[-1]).speech_end) == pytest.approx(7, abs=0.1)


@pytest.mark.parametrize(
    "rise",
    [
        [((0.9, -31.0), 0.7), (SPEAKER, 2)],
        [((0.9, -32.5), 0.3), ((0.9, -30.0), 0.5), ((0.9, -24.0), 2)],
    ],
)
def test_a_nearer_speakers_soft_first_words_belong_to_the_turn(
    rise: list[tuple[tuple[float, float], float]],
) -> None:
    signals = Ear().hear_all(((0.9, -39.5), 3), *rise)
    assert kinds(signals) == [TurnStart, TurnStart]
    assert seconds(cast(TurnStart, signals[1]).start) == pytest.approx(2.87, abs=0.04)


def test_background_before_a_long_turn_is_remembered_after_it() -> None:
    """Their loudest words then open no turn."""
    ear = Ear()
    ear.hear_all(*[LOUD, NEARLY] * 14, (ROOM, 0.5), (SPEAKER, 4), (ROOM, 1))
    assert ear.hear((0.9, -30.5), 0.5) == []


def test_a_second_person_at_the_same_level_continues_the_turn() -> None:
    signals = Ear().hear_all((SPEAKER, 2), (SOFT, 3), (SPEAKER, 2), (SOFT, 3), (ROOM, 1))
    assert kinds(signals) == [TurnStart, TurnPause, TurnEnd]
    assert seconds(cast(TurnEnd, signals[-1]).speech_end) == pytest.approx(10, abs=0.1)


@pytest.mark.parametrize("below_db", [6.8, 7.5, 9.0])
def test_a_lasting_fall_ends_a_long_turn(below_db: float) -> None:
    """Another, slightly softer voice that never pauses; it opens no turn."""
    ear = Ear()
    signals = ear.hear_all((SPEAKER, 4), ((0.9, -25.0 - below_db), 90))
    assert kinds(signals) == [TurnStart, TurnPause, TurnEnd]
    ended = cast(TurnEnd, signals[-1])
    assert seconds(ended.speech_end) < 28
    assert ended.below_db == pytest.approx(below_db, abs=1)
    assert kinds(ear.hear_all((SPEAKER, 1), (ROOM, 1))) == [TurnStart, TurnPause, TurnEnd]


def test_a_softer_person_who_keeps_trying_is_heard() -> None:
    ear, softer = Ear(), (0.95, -34.0)
    ear.hear_all((SPEAKER, 1), (ROOM, 1))
    tries = [ear.hear_all((softer, 2), (ROOM, 2)) for _ in range(9)]
    assert TurnStart in kinds(tries[-1])
    assert TurnStart not in kinds(tries[0])


@pytest.mark.parametrize(
    "levels",
    [
        [(-25, 5), (-33.5, 6), (-22.5, 2)],
        [(-33.5, 2), (-25, 2)],
        [(-36, 2), (-30.5, 1.5), (-23, 2)],
        [(-38, 1), (-31, 1), (-31, 1), (-25, 1), (-22, 1)],
    ],
)
def test_a_person_who_becomes_louder_makes_one_turn(levels: list[tuple[float, float]]) -> None:
    signals = Ear().hear_all(*(((0.95, dbfs), long_s) for dbfs, long_s in levels), (ROOM, 1))
    assert kinds(signals) == [TurnStart, TurnPause, TurnEnd]


@pytest.mark.parametrize("hz", [0, 20, 50])
def test_a_rumble_under_the_speech_neither_begins_nor_ends_a_turn(hz: float) -> None:
    ear = Ear()
    signals = ear.hear(SPEAKER, 2)
    ear.rumble_hz = hz
    signals += ear.hear(SPEAKER, 1)
    ear.rumble_hz = None
    signals += ear.hear_all((SPEAKER, 2), (ROOM, 1))
    assert kinds(signals) == [TurnStart, TurnPause, TurnEnd]
    assert seconds(cast(TurnEnd, signals[-1]).speech_end) == pytest.approx(5, abs=0.1)


# --- the real network --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stages(vad: SileroVad) -> Stages:
    turn = SimpleNamespace(history_seconds=8.0)
    return cast(Stages, SimpleNamespace(vad=InlineVad(vad), turn=turn))


def without_pauses(name: str, seconds: float, dbfs: float) -> Sound:
    """A person who talks without pause."""
    sound = to_signal(recording(name).pcm)
    levels = frame_db(sound)
    frames = sound[: len(levels) * 160].reshape(-1, 160)[levels > levels.max() - 32].ravel()
    said = np.resize(frames, round(seconds * LISTEN_RATE))
    return gained(said, dbfs - rms_dbfs(said))


def scene(seconds: float, *parts: tuple[float, Sound]) -> Sound:
    """``parts``: sounds by start time, in seconds."""
    scene = room_tone(round(seconds * LISTEN_RATE), np.random.default_rng(1))
    for at_s, sound in parts:
        at = round(at_s * LISTEN_RATE)
        scene[at : at + len(sound)] += sound
    return scene


def heard(stages: Stages, sound: Sound, settings: Endpointing | None = None) -> list[Signal]:
    settings = settings or Endpointing()
    listener = Listener(stages, ClientHearing(WINDOW, Echo()), settings)

    async def hear() -> list[Signal]:
        found: list[Signal] = []
        async for signals in listener.hear(to_pcm(sound)):
            found += signals + listener.judge(600)
        return found

    return asyncio.run(hear())


@pytest.mark.real
@pytest.mark.parametrize("name", ["something", "goforward", "librivox-0880"])
def test_a_real_television_18_db_below_neither_delays_nor_opens_turns(
    stages: Stages, name: str
) -> None:
    said = to_signal(recording(name).pcm)
    said = gained(said, -25 - rms_dbfs(said))
    over_s = 3 + len(said) / LISTEN_RATE
    television = without_pauses("two_cities", over_s + 27, -43)
    signals = heard(stages, scene(over_s + 28, (0, television), (3, said)))
    ends = [signal for signal in signals if isinstance(signal, TurnEnd)]
    assert seconds(ends[-1].speech_end) < over_s + 0.3
    assert 12 < ends[-1].below_db < 30
    starts = [signal for signal in signals if isinstance(signal, TurnStart)]
    assert seconds(starts[-1].start) < over_s


@pytest.mark.real
def test_a_real_monologue_of_60_s_is_not_cut(stages: Stages) -> None:
    signals = heard(stages, scene(62, (0.5, without_pauses("two_cities", 60, -25))))
    ended = signals[-1]
    assert isinstance(ended, TurnEnd)
    assert kinds(signals).count(TurnEnd) == 1
    assert seconds(ended.speech_end) > 60


@pytest.mark.real
def test_a_real_second_speaker_at_the_same_level_is_heard(stages: Stages) -> None:
    first, second = without_pauses("beckett", 3, -25), without_pauses("librivox-0880", 3, -28)
    signals = heard(stages, scene(8, (0.5, first), (3.5, second)))
    assert isinstance(signals[-1], TurnEnd)
    assert kinds(signals).count(TurnEnd) == 1
    assert seconds(signals[-1].speech_end) > 6


@pytest.mark.real
def test_a_real_quiet_last_word_is_kept(stages: Stages) -> None:
    said = without_pauses("something", 2, -25)
    word = without_pauses("goforward", 0.4, -38)
    signals = heard(stages, scene(6, (1, said), (3.1, word)))
    assert isinstance(signals[-1], TurnEnd)
    assert seconds(signals[-1].speech_end) > 3.2


@pytest.mark.real
@pytest.mark.parametrize("name", ["something", "librivox-0880"])
def test_a_child_is_heard_10_db_below_the_adult_before(stages: Stages, name: str) -> None:
    """A child's voice is made of an adult's, whose pitch and formants are a third higher."""
    higher = Resampler(LISTEN_RATE, LISTEN_RATE * 3 // 4).feed(recording(name).pcm)
    child = to_signal(higher)
    child = gained(child, -35 - rms_dbfs(child))
    adult = without_pauses("beckett", 2, -25)
    signals = heard(stages, scene(12, (1, adult), (6, child)))
    starts = [signal for signal in signals if isinstance(signal, TurnStart)]
    assert len(starts) == 2
    assert 5.7 < seconds(starts[-1].start) < 6.6
