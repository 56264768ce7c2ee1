"""Background voices neither open a turn, keep one open, nor get into one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.commands import CommitAudio, Configure, NoiseReduction, WakeUp
from pipeline.events import (
    FellAsleep,
    InputCommitted,
    ReplyHeld,
    SpeechRejected,
    SpeechStarted,
    SpeechStopped,
)
from pipeline.settings import Endpointing, SessionSettings, Wake
from pipeline.turn_record import TurnRecord
from reachy_voice.testing import (
    VOICE,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTurn,
    in_virtual_time,
    play,
    say,
    scene,
    silence,
)

pytestmark = pytest.mark.quick

SPEAKER, SECOND, TELEVISION = 9000, 2800, 900
"""Levels: 0, 10 and 20 dB below the speaker."""


def loud_s(stt: ScriptedStt, level: int) -> float:
    """Seconds at this level in the audio recognised last."""
    return float(np.count_nonzero(np.abs(stt.finished[-1]) == level)) / 16_000


def test_a_turn_ends_although_a_television_goes_on() -> None:
    stt = ScriptedStt()
    played = play(say(1.5, SPEAKER), say(12, TELEVISION), stt=stt)
    assert len(played.events(SpeechStarted)) == 1
    assert played.time_of(InputCommitted) - played.began < 1.5 + 1.0
    (stopped,) = played.events(SpeechStopped)
    assert stopped.background_db == pytest.approx(20, abs=0.5)
    assert loud_s(stt, SPEAKER) == pytest.approx(1.5, abs=0.01)
    assert loud_s(stt, TELEVISION) < 0.25
    (record,) = played.events(TurnRecord)
    assert record.background_db == stopped.background_db


@pytest.mark.parametrize(
    ("asked", "ours", "ends"),
    [
        (None, 12.0, False),
        (None, 9.0, True),
        (None, None, False),
        ("near_field", 12.0, True),
        ("near_field", None, True),
        ("far_field", 9.0, False),
    ],
)
def test_the_client_says_how_near_its_speakers_are(
    asked: NoiseReduction | None, ours: float | None, ends: bool
) -> None:
    settings = SessionSettings(endpointing=Endpointing(background_db=ours))
    played = play(
        Configure(replace(VOICE, noise_reduction=asked)),
        say(1.5, SPEAKER),
        say(4, SECOND),
        settings=settings,
    )
    assert bool(played.events(InputCommitted)) == ends


def test_a_television_stays_background_after_a_turn_that_the_client_commits() -> None:
    acts = (say(0.25, TELEVISION), CommitAudio(), say(8, TELEVISION), say(1, SPEAKER))
    played = play(say(1.5, SPEAKER), *acts)
    assert len(played.events(SpeechStarted)) == 2


@pytest.mark.parametrize(("seconds", "recognised_s"), [(0.9, 0.3), (1.2, 0.3), (0.5, 0.5)])
def test_a_television_in_a_thinking_pause_is_left_out(seconds: float, recognised_s: float) -> None:
    """But the speaker's own quiet words are not, which are short."""
    stt, turn = ScriptedStt(("I went to the",)), ScriptedTurn(probability=0.1)
    acts = (say(1.2, SPEAKER), say(seconds, TELEVISION), say(1, SPEAKER), silence(4))
    played = play(*acts, stt=stt, turn=turn)
    assert len(played.events(InputCommitted)) == 1
    assert loud_s(stt, SPEAKER) == pytest.approx(2.2, abs=0.01)
    assert loud_s(stt, TELEVISION) == pytest.approx(recognised_s, abs=0.06)


def test_a_television_hardly_holds_an_answer() -> None:
    llm = ScriptedLlm([f"word{n} " for n in range(60)])
    acts = [act for _ in range(10) for act in (say(0.8, TELEVISION), silence(0.4))]
    played = play(say(1.5, SPEAKER), *acts, say(0.6, SPEAKER), silence(1), llm=llm)
    held = played.times_of(ReplyHeld)
    assert len([at for at in held if at < 13.5]) <= 1
    assert any(at >= 13.5 for at in held), "but its speaker does"


def test_a_nearer_speaker_displaces_an_open_background_turn() -> None:
    stt = ScriptedStt()
    played = play(say(3, TELEVISION), say(1.5, SPEAKER), say(3, TELEVISION), stt=stt)
    background, turn = played.events(SpeechStarted)
    (rejected,) = played.events(SpeechRejected)
    assert (rejected.item_id, rejected.exclusion) == (background.item_id, "background")
    assert [each.item_id for each in played.events(InputCommitted)] == [turn.item_id]
    assert turn.audio_ms == pytest.approx(2872, abs=64)
    assert loud_s(stt, SPEAKER) == pytest.approx(1.5, abs=0.05)
    assert loud_s(stt, TELEVISION) < 0.4


def test_asleep_a_displaced_background_leaves_no_turn_behind() -> None:
    settings = SessionSettings(wake=Wake(mode="touch"))
    acts = (say(3, TELEVISION), say(1.5, SPEAKER), silence(3), WakeUp(), silence(12))
    played = play(*acts, settings=settings)
    assert not played.events(SpeechStarted)
    assert [each.why for each in played.events(FellAsleep)] == ["start", "silence"]


@in_virtual_time
async def test_a_turn_without_words_leaves_no_level_behind() -> None:
    stt = ScriptedStt(texts=["", "hello"])
    async with scene(stt=stt) as played:
        await speak(played, SPEAKER)
        await speak(played, TELEVISION)
        assert len(played.events(SpeechRejected)) == len(played.events(InputCommitted)) == 1


def test_a_late_verdict_on_a_noise_leaves_the_speaker_of_the_next_turn_known() -> None:
    stt = ScriptedStt(hears=lambda pcm: "hello" if SPEAKER in np.abs(pcm) else "")
    stt.takes_s = 4.0
    acts = (silence(2.8), say(1.2, SPEAKER), say(14, TELEVISION))
    played = play(say(0.8, SECOND), *acts, stt=stt)
    assert [each.background_db for each in played.events(SpeechStopped)] == [
        0,
        pytest.approx(20, abs=0.5),
    ]


async def speak(played: Scene, level: int) -> None:
    await played.hear(1.5, level=level)
    await played.hear(3)
