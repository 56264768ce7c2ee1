"""Which events make the robot listen, think, speak and look where; without robot or clock."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.robot.gaze import FARTHEST_RAD, FORGOTTEN_S, HYSTERESIS_RAD, Gaze, yaw_of
from hardware.robot.motion import Motion
from hardware.robot.poses import LIMITS, NEUTRAL, SPEED_LIMITS, swayed
from hardware.robot.posture import DEAF_S, THINKS_S, Mode, Posture
from pipeline.commands import Direction
from pipeline.engines.contract import ToolCall
from pipeline.events import (
    Event,
    FellAsleep,
    InputCleared,
    InputCommitted,
    ReplyAudio,
    ReplyFinished,
    SpeechIgnored,
    SpeechPaused,
    SpeechRejected,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    Woke,
)
from pipeline.items import FunctionCallItem
from pipeline.messages import Usage
from pipeline.settings import SessionSettings
from reachy_voice.testing import AT_ONCE, Scene, ScriptedLlm, in_virtual_time, scene

pytestmark = pytest.mark.quick

RATE = 16_000
VOICE = np.full(RATE // 10, 8000, np.int16)
"""A tenth of a second."""
STARTED = SpeechStarted("item_1", 0)
PAUSED, RESUMED = SpeechPaused("item_1", 900, 64), SpeechResumed("item_1", 1200)
STOPPED = SpeechStopped("item_1", 900)
COMMITTED = InputCommitted("item_1", None)
AUDIO = ReplyAudio("reply_1", "item_2", 0, VOICE, RATE)
ASLEEP, AWAKE = FellAsleep("silence"), Woke("word")
IGNORED = SpeechIgnored(0, 300, "mm-hm", "backchannel")


def finished(status: str = "completed", reply_id: str = "reply_1", *items: object) -> Event:
    return ReplyFinished(reply_id, status, items, Usage(0, 0, 0, 0))  # type: ignore[arg-type]


def told(*events: Event) -> Posture:
    posture = Posture()
    for event in events:
        posture.note(event, 1.0)
    return posture


@pytest.mark.parametrize(
    ("events", "mode"),
    [
        ([], "idle"),
        ([STARTED], "listening"),
        ([STARTED, STOPPED], "thinking"),
        ([STARTED, PAUSED], "pausing"),
        ([STARTED, PAUSED, RESUMED], "listening"),
        ([STARTED, PAUSED, STOPPED], "thinking"),
        ([STARTED, PAUSED, SpeechRejected("item_1")], "idle"),
        ([PAUSED], "idle"),
        ([AUDIO, PAUSED], "speaking"),
        ([STARTED, STOPPED, COMMITTED], "thinking"),
        ([COMMITTED], "thinking"),
        ([STARTED, STOPPED, SpeechRejected("item_1")], "idle"),
        ([STARTED, InputCleared()], "idle"),
        ([STARTED, STOPPED, COMMITTED, AUDIO], "speaking"),
        ([AUDIO, AUDIO, finished()], "idle"),
        ([AUDIO, finished(reply_id="an out-of-band one")], "speaking"),
        ([AUDIO, IGNORED], "speaking"),
        ([IGNORED], "idle"),
        ([STARTED, IGNORED], "listening"),
        ([AUDIO, COMMITTED], "speaking"),
        ([AUDIO, STARTED], "listening"),
        ([AUDIO, STARTED, finished("cancelled")], "listening"),
        ([AUDIO, finished("cancelled")], "idle"),
        ([COMMITTED, finished("failed")], "idle"),
        ([ASLEEP], "asleep"),
        ([ASLEEP, AWAKE], "idle"),
        ([ASLEEP, AWAKE, STARTED], "listening"),
        ([ASLEEP, AUDIO], "speaking"),
        ([ASLEEP, AUDIO, finished()], "asleep"),
        ([AUDIO, ASLEEP, finished()], "asleep"),
        ([STARTED, STOPPED, SpeechRejected("item_1"), ASLEEP], "asleep"),
    ],
)
def test_events_make_a_mode(events: Sequence[Event], mode: Mode) -> None:
    assert told(*events).mode(1.0) == mode


def test_it_keeps_thinking_while_a_tool_is_called() -> None:
    call = FunctionCallItem(id="item_3", call_id="call_1", name="look", arguments="{}")
    posture = told(STARTED, STOPPED, COMMITTED, finished("completed", "reply_1", call))
    assert posture.mode(2.0) == "thinking"


def test_it_does_not_think_for_ever() -> None:
    posture = told(COMMITTED)
    assert posture.mode(1.0 + THINKS_S - 0.01) == "thinking"
    assert posture.mode(1.0 + THINKS_S) == "idle"


def test_it_speaks_until_its_audio_has_played() -> None:
    posture = told(AUDIO)
    posture.played(VOICE, RATE, at=1.3)
    posture.note(finished(), 1.1)
    assert posture.mode(1.39) == "speaking"
    assert posture.mode(1.41) == "idle"


def test_it_stops_moving_its_head_when_it_is_interrupted() -> None:
    posture = told(AUDIO)
    for tenth in range(30):
        posture.played(VOICE, RATE, at=1.0 + tenth / 10)
    swaying = [posture.sway(1.0 + n / 50) for n in range(50)]
    assert max(abs(sway.pitch) for sway in swaying) > math.radians(1)
    posture.note(STARTED, 2.0)
    assert [posture.sway(2.0 + n / 50).pitch for n in range(14)][-1] == 0.0
    assert posture.mode(2.3) == "listening"


def test_it_breathes_when_idle_and_holds_still_when_it_listens() -> None:
    idle, listening = told(), told(STARTED)
    assert len({idle.target(1.0 + n / 10) for n in range(20)}) > 10
    assert len({listening.target(1.0 + n / 10) for n in range(20)}) == 1


# --- looking at the speaker ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("azimuth_deg", "yaw_deg"),
    [(0, 90), (90, 0), (180, -90), (45, 45), (270, 0), (200, -70), (350, 80), (360, 90)],
)
def test_a_linear_array_hears_only_the_front_half(azimuth_deg: float, yaw_deg: float) -> None:
    assert math.degrees(yaw_of(Direction(azimuth_deg, True))) == pytest.approx(yaw_deg)


def looks(directions: Sequence[Direction], begin: float = 0.0) -> Gaze:
    gaze = Gaze()
    for n, direction in enumerate(directions):
        gaze.heard(direction, begin + n / 10, 0.0)
    return gaze


def degrees(gaze: Gaze, now: float = 1.0) -> float:
    return math.degrees(gaze.yaw(now))


def test_it_ignores_noise_and_single_readings() -> None:
    assert degrees(looks([Direction(40, False)] * 10)) == 0
    assert degrees(looks([Direction(40, True)] * 2)) == 0
    outlier = [Direction(90, True)] * 3 + [Direction(10, True)] + [Direction(90, True)] * 2
    assert degrees(looks(outlier)) == 0


def test_it_does_not_follow_small_changes() -> None:
    directions = [Direction(60, True)] * 5 + [Direction(60 + 9, True)] * 5
    assert degrees(looks(directions)) == pytest.approx(30)
    directions += [Direction(60 + 11, True)] * 5
    assert degrees(looks(directions), 1.5) == pytest.approx(19)


def test_old_readings_do_not_count() -> None:
    gaze = Gaze()
    for at in (0.0, 1.0, 2.0, 3.0):
        gaze.heard(Direction(40, True), at, 0.0)
    assert gaze.yaw(3.0) == 0


def test_it_looks_ahead_after_a_long_silence() -> None:
    gaze = looks([Direction(40, True)] * 3)
    assert gaze.yaw(FORGOTTEN_S) > 0
    assert gaze.yaw(FORGOTTEN_S + 0.3) == 0


def test_it_does_not_look_at_its_own_voice() -> None:
    posture = told(AUDIO)
    posture.played(VOICE, RATE, at=1.0)
    for n in range(20):
        if n == 10:
            posture.note(finished(), 2.0)
        if n < 10 + DEAF_S * 10:
            posture.heard(Direction(20, True), 1.0 + n / 10, 0.0)
    assert posture.gaze.yaw(3.0) == 0
    for n in range(3):
        posture.heard(Direction(20, True), 3.0 + n / 10, 0.0)
    assert posture.gaze.yaw(3.3) > 0


def test_it_keeps_looking_while_it_answers() -> None:
    posture = told(STARTED)
    for n in range(3):
        posture.heard(Direction(40, True), 1.0 + n / 10, 0.0)
    for event in (STOPPED, COMMITTED, AUDIO):
        posture.note(event, 2.0)
        assert math.degrees(posture.target(2.0).yaw) == pytest.approx(50, abs=4)


@given(
    st.lists(st.floats(-1000, 1000), min_size=1, max_size=40),
    st.floats(-1.4, 1.4),
)
def test_the_gaze_is_bounded_and_only_moves_in_steps(
    azimuths: list[float], array_yaw: float
) -> None:
    gaze = Gaze()
    before = 0.0
    for n, azimuth in enumerate(azimuths):
        gaze.heard(Direction(azimuth, True), n / 10, array_yaw)
        after = gaze.yaw(n / 10)
        assert abs(after) <= FARTHEST_RAD
        assert after == before or abs(after - before) > HYSTERESIS_RAD
        before = after


# --- any story ----------------------------------------------------------------------------------

anything = st.one_of(
    st.sampled_from([STARTED, STOPPED, COMMITTED, AUDIO, IGNORED, InputCleared(), finished()]),
    st.builds(Direction, st.floats(0, 360), st.booleans()),
    st.floats(0, 1),
)


@given(st.lists(st.tuples(anything, st.floats(0, 0.3)), max_size=60))
def test_whatever_happens_the_robot_keeps_to_limits_and_speeds(
    story: list[tuple[Event | Direction | float, float]],
) -> None:
    posture, motion, now = Posture(), Motion(NEUTRAL), 0.0
    for what, seconds in story:
        match what:
            case Direction():
                posture.heard(what, now, motion.pose.yaw)
            case float():
                posture.played((VOICE * what).astype(np.int16), RATE, now + what)
            case _:
                posture.note(what, now)
        now += seconds
        before = motion.pose
        wanted = posture.target(now)
        after = motion.step(wanted, seconds)
        sent = swayed(motion.pose, posture.sway(now))
        for limit, most, aim, was, is_, out in zip(
            LIMITS, SPEED_LIMITS, wanted, before, after, sent, strict=True
        ):
            assert max(abs(aim), abs(out)) <= limit + 1e-12
            assert abs(is_ - was) <= most * seconds + 1e-9


# --- a real session -----------------------------------------------------------------------------


def modes(played: Scene) -> list[Mode]:
    """The robot's activities in the scene's log; repeats count once."""
    posture = Posture()
    seen: list[Mode] = []
    for at, event in played.log:
        if isinstance(event, ReplyAudio):
            posture.played(event.pcm, event.rate, at)
        posture.note(event, at)
        mode = posture.mode(at)
        if not seen or seen[-1] != mode:
            seen.append(mode)
    end = played.log[-1][0] + 10
    return [*seen, posture.mode(end)] if seen[-1] != posture.mode(end) else seen


TURN: list[Mode] = ["listening", "pausing", "thinking", "speaking"]


@pytest.mark.parametrize(
    ("said", "quiet_s", "settings", "expected"),
    [
        (["hello"], [8.0], None, [*TURN, "idle"]),
        (["word "] * 40, [2.0, 20.0], AT_ONCE, [*TURN, *TURN, "idle"]),  # interrupted
        ([ToolCall("look", "{}")], [4.0], None, TURN[:3]),
    ],
)
@in_virtual_time
async def test_a_session(
    said: list[str | ToolCall],
    quiet_s: list[float],
    settings: SessionSettings | None,
    expected: list[Mode],
) -> None:
    async with scene(settings=settings, llm=ScriptedLlm(said)) as played:
        for seconds in quiet_s:
            await played.say(1.0)
            await played.hear(seconds)
        assert modes(played) == expected


def test_one_antenna_goes_down_at_the_first_silent_frames() -> None:
    listening, pausing = told(STARTED).target(1.0), told(STARTED, PAUSED).target(1.0)
    assert pausing.right_antenna < listening.right_antenna
    assert pausing == listening._replace(right_antenna=pausing.right_antenna)
