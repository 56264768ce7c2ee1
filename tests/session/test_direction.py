"""The direction of speech: it is reported with a turn, and speech from elsewhere is ignored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import events
from pipeline.commands import Direction, NoteDirection
from pipeline.events import DirectionHeard, ReplyFinished, SpeechStarted, SpeechStopped
from pipeline.hearing.direction import Directions
from pipeline.settings import Sector, SessionSettings
from reachy_voice.testing import Scene, in_virtual_time, scene
from tests.support.protocol_client import Client

pytestmark = pytest.mark.quick

FRONT = SessionSettings(accept=Sector(90, 60))


@given(st.floats(0, 360), st.floats(1, 360), st.floats(-180, 180))
def test_a_sector_holds_angles_near_its_centre(centre: float, width: float, off: float) -> None:
    inside = (centre + off) % 360 in Sector(centre, width)
    if abs(abs(off) - width / 2) > 1e-6:
        assert inside == (abs(off) < width / 2)


def test_the_newest_speech_counts() -> None:
    told = Directions()
    assert told.now_deg(0.0) is told.lately_deg(0.0) is None
    told.note(Direction(40.0, speech=True), 0.0)
    told.note(Direction(170.0, speech=False), 0.1)
    assert told.now_deg(0.2) == told.lately_deg(0.2) == 40.0
    assert (told.now_deg(0.5), told.lately_deg(0.5)) == (None, 40.0)  # an earlier speaker's
    assert told.lately_deg(1.6) is None


def test_without_an_array_all_speech_counts() -> None:
    told = Directions(Sector(90, 60))
    assert not told.elsewhere(0.0)
    told.note(Direction(200.0, speech=True), 0.0)
    assert told.elsewhere(0.1)
    assert (told.others(0.1), told.others(0.4)) == (True, False)
    told.note(Direction(80.0, speech=True), 0.2)
    assert not told.elsewhere(0.3)
    told.note(Direction(80.0, speech=False), 0.6)
    assert told.elsewhere(0.6)
    assert not told.elsewhere(1.7)  # no reading any more


async def speak(played: Scene, azimuth_deg: float | None, seconds: float = 1.0) -> None:
    for _ in range(round(seconds / 0.1)):
        if azimuth_deg is not None:
            await played.do(NoteDirection(Direction(azimuth_deg, speech=True)))
        await played.say(0.1)


async def pause(played: Scene, seconds: float) -> None:
    for _ in range(round(seconds / 0.1)):
        await played.do(NoteDirection(Direction(0.0, speech=False)))
        await played.hear(0.1)


@pytest.mark.parametrize(("azimuth_deg", "turns"), [(75.0, 1), (170.0, 0), (None, 1)])
@in_virtual_time
async def test_speech_from_elsewhere_is_not_answered(azimuth_deg: float | None, turns: int) -> None:
    async with scene(settings=FRONT) as played:
        await speak(played, azimuth_deg)
        if azimuth_deg is None:
            await played.hear(4.0)
        else:
            await pause(played, 4.0)
    assert [e.direction_deg for e in played.events(SpeechStarted)] == [azimuth_deg] * turns
    assert len(played.events(ReplyFinished)) == turns
    assert len(played.events(DirectionHeard)) == (50 if azimuth_deg is not None else 0)


@in_virtual_time
async def test_an_open_turn_takes_speech_from_any_direction() -> None:
    async with scene(settings=FRONT) as played:
        await speak(played, 90.0, 0.5)
        await speak(played, 200.0, 2.0)
        await pause(played, 4.0)
    (stopped,) = played.events(SpeechStopped)
    assert stopped.audio_ms >= 2500


@in_virtual_time
async def test_a_turn_ends_when_only_the_microphone_stalls() -> None:
    async with scene() as played:
        await speak(played, 90.0, 1.0)
        for _ in range(40):
            await played.do(NoteDirection(Direction(90.0, speech=False)))
            await played.sleep_until(played.loop.time() + 0.1)
    assert len(played.events(ReplyFinished)) == 1


def test_a_known_direction_is_sent() -> None:
    client = Client()
    sent = client.apply(
        events.SpeechStarted("a", 0),
        events.SpeechStopped("a", 300),
        events.SpeechStarted("b", 320, 75.0),
        events.SpeechStopped("b", 900, 80.0),
    )
    told = [(m["type"][-7:], m.get("direction_deg")) for m in sent if "speech_st" in m["type"]]
    assert told == [("started", None), ("stopped", None), ("started", 75.0), ("stopped", 80.0)]
