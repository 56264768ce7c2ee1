"""Speakers: names in the conversation, and people whom the robot ignores."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline import events
from pipeline.commands import CommitAudio, Direction, NoteDirection
from pipeline.errors import EngineError
from pipeline.settings import Accept, Sector, SessionSettings
from pipeline.turn_record import TurnRecord
from reachy_voice.testing import (
    PUSH_TO_TALK,
    Scene,
    ScriptedLlm,
    ScriptedSpeaker,
    ScriptedStt,
    people,
    play,
    say,
    silence,
)
from tests.support.overlap import QUESTION, over

pytestmark = pytest.mark.quick

TOM, ANNA, TELEVISION = 3_000, 6_000, 9_000
HOME = people(Tom=TOM, Anna=ANNA)


def listening_to(people: Accept, accept: Sector | None = None) -> SessionSettings:
    return SessionSettings(people=people, accept=accept)


def at_home(*acts: Any, speaker: ScriptedSpeaker | None = None, **options: Any) -> Scene:
    options.setdefault("stt", ScriptedStt(texts=("What time is it?", "And now?", "Where are you?")))
    return play(*acts, speaker=speaker or ScriptedSpeaker(), people=HOME, **options)


def records(played: Scene) -> list[tuple[str, str | None, str | None]]:
    found = played.events(TurnRecord)
    return [(each.outcome, each.speaker, each.exclusion) for each in found if each.item_id]


def test_the_speaker_is_in_the_turn_and_prompt_but_not_the_transcript() -> None:
    played = at_home(
        *(say(1.5, TOM), silence(5.0)),
        *(say(1.5, ANNA), silence(5.0)),
        say(1.5, TELEVISION),
        silence(5.0),
    )
    assert played.transcripts == ["What time is it?", "And now?", "Where are you?"]
    assert [each.speaker for each in played.events(events.TranscriptReady)] == ["Tom", "Anna", ""]
    assert records(played) == [("answered", who, None) for who in ("Tom", "Anna", "")]
    user = [text for role, text in played.prompts[-1] if role == "user"]
    assert user == ["Tom says: What time is it?", "Anna says: And now?", "Where are you?"]


def test_the_beginning_of_the_prompt_stays_the_same() -> None:
    played = at_home(*((say(1.5, TOM), silence(5.0), say(1.5, ANNA), silence(5.0)) * 2))
    for before, after in zip(played.prompts, played.prompts[1:], strict=False):
        assert after[: len(before)] == before


def test_no_voice_is_identified_while_nobody_is_enrolled() -> None:
    speaker = ScriptedSpeaker()
    played = play(say(1.5), silence(4.0), speaker=speaker)
    assert not speaker.heard
    assert records(played) == [("answered", None, None)]
    assert played.prompts[-1][-1] == ("user", "hello")


def test_the_speaker_is_identified_during_recognition() -> None:
    """While the recogniser takes longer, answers come no later."""
    firsts = []
    for options in ({}, {"speaker": ScriptedSpeaker(takes_s=0.05), "people": HOME}):
        played = play(say(1.5, TOM), silence(4.0), stt=ScriptedStt(takes_s=0.06), **options)
        firsts.append(played.time_of(events.ReplyAudio))
    assert firsts[0] == firsts[1]


def test_resumed_speech_cancels_the_identification() -> None:
    speaker = ScriptedSpeaker(takes_s=5.0)
    played = at_home(say(1.5, TOM), silence(0.1), say(1.5, TOM), silence(8.0), speaker=speaker)
    assert len(speaker.heard) == 2
    assert not speaker.running
    assert records(played) == [("answered", "Tom", None)]


@pytest.mark.parametrize("error", [EngineError("The engine failed"), None])
def test_an_unidentified_speaker_is_answered(error: EngineError | None) -> None:
    seconds = 1.5 if error else 0.3
    speaker = ScriptedSpeaker(error=error)
    played = at_home(
        say(seconds, TELEVISION), silence(4.0), speaker=speaker, settings=listening_to("known")
    )
    assert records(played) == [("answered", None, None)]


def test_a_stranger_is_not_answered_and_the_record_says_why() -> None:
    speaker, llm = ScriptedSpeaker(), ScriptedLlm()
    played = at_home(
        *(say(1.5, TELEVISION), silence(4.0)),
        *(say(1.5, TOM), silence(5.0)),
        speaker=speaker,
        llm=llm,
        settings=listening_to("known"),
    )
    assert records(played) == [("rejected", "", "stranger"), ("answered", "Tom", None)]
    assert played.transcripts == ["And now?"]
    assert len(llm.prompts) == 1


def test_a_stranger_who_is_enrolled_is_known_at_once() -> None:
    stranger = say(1.5, ANNA), silence(5.0)
    enrolled = people(Tom=TOM, Anna=ANNA)
    played = play(
        *(*stranger, *stranger, lambda scene: setattr(scene.stages, "people", enrolled)),
        *(*stranger, say(1.5, TELEVISION), silence(5.0)),
        speaker=ScriptedSpeaker(),
        people=people(Tom=TOM),
        settings=listening_to("known"),
    )
    refused = ("rejected", "", "stranger")
    assert records(played) == [refused, refused, ("answered", "Anna", None), refused]


def test_a_stranger_does_not_end_an_answer() -> None:
    played = over(
        say(1.2, TELEVISION),
        silence(12.0),
        texts=("The weather will be fine tomorrow.",),
        speaker=ScriptedSpeaker(),
        people=people(You=TOM),
        settings=listening_to("known"),
    )
    assert played.transcripts == [QUESTION]
    assert played.statuses == ["cancelled", "completed"]
    first, second = played.events(events.ReplyStarted)
    assert second.continues == first.reply_id


def test_committed_audio_is_kept_and_has_a_speaker() -> None:
    played = at_home(
        say(1.5, TELEVISION),
        CommitAudio(),
        silence(0.1),
        say(1.5, TOM),
        CommitAudio(),
        silence(1.0),
        config=PUSH_TO_TALK,
        settings=listening_to("known"),
    )
    assert [each.speaker for each in played.events(events.TranscriptReady)] == ["", "Tom"]


@pytest.mark.parametrize(
    ("accept", "azimuth_deg", "outcome"),
    [
        ("front", 100.0, ("answered", None, None)),
        ("front", 170.0, ("rejected", None, "elsewhere")),
        ("everyone", 170.0, ("answered", None, None)),
    ],
)
def test_late_direction_decides_whether_a_turn_is_answered(
    accept: Accept, azimuth_deg: float, outcome: tuple[str, None, str | None]
) -> None:
    """A late array: the turn begins before the direction is known."""
    settings = listening_to(accept, accept=Sector(90.0, 60.0))
    heard = NoteDirection(Direction(azimuth_deg, True))
    played = play(say(1.2), heard, silence(4.0), settings=settings)
    assert records(played) == [outcome]
