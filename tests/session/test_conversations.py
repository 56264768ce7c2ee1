"""Conversations to the millisecond: who says what when, and the outcome.

By default engines take 61 ms for a transcript, 51 ms for the turn detector, 101 ms for a first
token and 81 ms for a first sound. The end of a turn is computed from the judgements
(``Story.end_ms``), since their weights are tuned elsewhere; everything else follows from these
times.
"""

from __future__ import annotations

import asyncio

import pytest

from pipeline import events
from pipeline.audio import LISTEN_RATE
from pipeline.conversation.prompt import CUT_OFF
from pipeline.events import SpeechPaused
from pipeline.settings import Endpointing
from reachy_voice.testing import AT_ONCE, Act, Scene, VirtualLoop, say, silence, speak, wait
from tests.support.stories import (
    LAST_MS,
    TIME,
    Story,
    cast,
    ears,
    instinct,
    lines,
    perform,
    slow_speaker,
    sure_of_more,
    voice,
)
from tests.support.wired import Message, send

pytestmark = pytest.mark.quick


def quiet_on_the_wire(story: Story, from_ms: int, to_ms: int) -> bool:
    return not [s for s in story.wire.log if s.by == "server" and from_ms <= s.at_ms < to_ms]


# --- when a turn is over -----------------------------------------------------------------------


def test_a_clear_end_hides_the_work_in_the_silence() -> None:
    story = perform(speak(TIME, 1.024))
    end = story.end_ms()
    assert end - 1024 <= Endpointing().likely_wait_ms
    audio = max(end, 1299)
    assert story.table("voices") == lines(f"""
        64               user speaks
        1056             user pauses
        1117             thinks about '{TIME}'
        {end}            user stops
        {end}            heard '{TIME}'
        {end}            answer begins
        1218             voices 'I am here.'
        {max(end, 1218)} says 'I am here.'
        {audio}          audio
        {audio + LAST_MS} answer completed
    """)


def test_a_hesitation_is_waited_for_and_the_discarded_reply_is_not_sent() -> None:
    story = perform(
        speak("I want the", 0.768),
        silence(0.288),
        speak("blue ball.", 0.512),
        engines=sure_of_more("I want the"),
    )
    end = story.end_ms()
    audio = max(end, 1843)
    assert story.table("voices") == lines(f"""
        64               user speaks
        800              user pauses
        861              thinks about 'I want the'
        962              voices 'I am here.'
        1088             user goes on
        1088             thrown away
        1600             user pauses
        1661             thinks about 'I want the blue ball.'
        {end}            user stops
        {end}            heard 'I want the blue ball.'
        {end}            answer begins
        1762             voices 'I am here.'
        {max(end, 1762)} says 'I am here.'
        {audio}          audio
        {audio + LAST_MS} answer completed
    """)
    assert quiet_on_the_wire(story, 65, end)
    assert story.prompt() == [("user", "I want the blue ball.")]


@pytest.mark.parametrize("unfinished", ["Eggs, milk and", "I want, um", "Turn to the"])
def test_words_that_need_more_lengthen_the_wait(unfinished: str) -> None:
    open_end, plain = (
        perform(speak(f"{unfinished}", 0.768)),
        perform(speak("Turn to the left.", 0.768)),
    )
    assert open_end.end_ms() > plain.end_ms()
    for story in (open_end, plain):
        assert f"{story.end_ms()} answer begins" in story.table()


def test_a_short_answer_to_our_question_is_taken_at_once() -> None:
    def answered(first: str) -> int:
        engines = cast()
        engines.llm.answers_to["Hello there."] = (first,)
        engines.turn.probabilities["Green"] = 0.1
        story = perform(
            speak("Hello there.", 0.32), silence(2.24), speak("Green", 0.192), engines=engines
        )
        end = story.end_ms(1)
        assert f"{end} heard 'Green'" in story.table()
        return end - 2752

    asked, told = answered("Which colour? "), answered("I am here. ")
    assert asked < told


def test_a_one_word_answer_waits_for_no_turn_detector() -> None:
    story = perform(speak("Yes.", 0.32), engines=cast(turn=instinct(takes_s=2.0)))
    end = story.end_ms()
    assert end - 320 <= Endpointing().likely_wait_ms
    assert f"{end} answer begins" in story.table()
    assert not [e for e in story.events(events.TurnJudged) if "sound" in e.reasons]


def test_a_turn_ends_without_a_failing_turn_detector() -> None:
    engines = cast()
    engines.turn.crash()
    story = perform(speak(TIME, 1.024), engines=engines)
    end = story.end_ms()
    assert end - 1024 <= Endpointing().unsure_wait_ms
    assert f"{end} answer begins" in story.table()
    assert f"{max(end, 1299)} audio" in story.table()


def test_a_turn_ends_without_a_verdict_on_its_words() -> None:
    engines = cast()
    engines.llm.end_probability = None
    story = perform(speak(TIME, 1.024), engines=engines)
    assert f"{story.end_ms()} answer begins" in story.table()
    assert not [e for e in story.events(events.TurnJudged) if "words" in e.reasons]


def test_a_turn_ends_before_its_transcript_is_there() -> None:
    story = perform(speak(TIME, 0.64), engines=cast(ears(takes_s=1.5)))
    assert story.table() == lines(f"""
        64    user speaks
        672   user pauses
        2172  thinks about '{TIME}'
        2172  user stops
        2172  heard '{TIME}'
        2172  answer begins
        2273  says 'I am here.'
        2354  audio
        2914  answer completed
    """)


def test_noise_begins_no_turn() -> None:
    story = perform(say(0.64))
    assert story.table() == lines(f"""
        64                user speaks
        672               user pauses
        {story.end_ms()}  user stops
        {story.end_ms()}  noise
    """)
    assert not story.engines.llm.prompts


def test_a_client_that_stalls_in_its_turn_is_still_answered() -> None:
    stall_ms = Endpointing().stall_ms
    story = perform(speak(TIME, 0.64), wait(6.0))
    paused = 640 + stall_ms  # by the clock, since no audio comes
    table = story.table()
    assert table[:3] == lines(f"""
        64            user speaks
        {paused}      user pauses
        {paused + 61} thinks about '{TIME}'
    """)
    [began] = [int(row.split()[0]) for row in table if row.endswith("answer begins")]
    assert began in (paused + 102, paused + 112, paused + stall_ms), "as judged, or silence later"


def heard_through(stall_ms: int, blocked_ms: int = 0) -> Story:
    """After 320 ms the network and then the whole loop stall; the speech of that time arrives at
    once."""

    async def stall(scene: Scene) -> None:
        await asyncio.sleep(stall_ms / 1000)
        assert isinstance(scene.loop, VirtualLoop)
        scene.loop.now += blocked_ms / 1000

    return perform(speak("What time", 0.32), stall, speak("is it?", 0.32))


@pytest.mark.parametrize(("stall_ms", "blocked_ms"), [(0, 350), (100, 250), (160, 200)])
def test_a_blocked_loop_puts_no_silence_between_words(stall_ms: int, blocked_ms: int) -> None:
    """Audio sent meanwhile is still unread when the client would count as stalled."""
    story = heard_through(stall_ms, blocked_ms)
    assert [pause.audio_ms for pause in story.events(SpeechPaused)] == [640]


@pytest.mark.parametrize("stall_ms", [350, 900, 1900])
def test_silence_the_client_did_not_send_is_not_counted_or_recognised(stall_ms: int) -> None:
    story = heard_through(stall_ms)
    stalled, ended = [pause.audio_ms for pause in story.events(SpeechPaused)]
    assert (stalled, ended // 32) == (320, 20)
    # Each pause is recognised with 32 to 64 ms of its silence.
    assert sum(map(len, story.engines.stt.finished)) < 0.75 * LISTEN_RATE


def test_a_turn_ends_if_only_the_microphone_is_muted() -> None:
    """The client keeps sending other messages, more often than the stall limit."""

    def stops(*meanwhile: Act | Message) -> list[str]:
        rows = perform(speak(TIME, 0.64), *meanwhile).table()
        return [row for row in rows if row.endswith("user stops")]

    update = send("session.update", session={"type": "realtime"})
    assert stops(*(wait(0.1), update) * 60) == stops(wait(6.0)) != []


def test_push_to_talk() -> None:
    story = perform(
        speak(TIME, 0.64),
        silence(0.064),
        send("input_audio_buffer.commit"),
        send("response.create"),
        session={"audio": {"input": {"turn_detection": None}}},
    )
    assert story.table("committed") == lines(f"""
        704 committed
        704 answer begins
        765 heard '{TIME}'
        765 thinks about '{TIME}'
        866 says 'I am here.'
        947 audio
        947 answer completed
    """)


# --- two parts of one thought ------------------------------------------------------------------


SLOW_LAST_MS = 1_760
"""``LAST_MS`` with a ``slow_speaker``."""


def test_speech_over_an_answer_just_begun_is_answered_once() -> None:
    story = perform(
        speak("I have a dog.", 1.024),
        silence(0.672),
        speak("What does he eat?", 1.024),
        engines=slow_speaker(),
    )
    first, second = story.end_ms(0), story.end_ms(1)
    audio = max(second, 2995)
    assert story.table() == lines(f"""
        64                 user speaks
        1056               user pauses
        1117               thinks about 'I have a dog.'
        {first}            user stops
        {first}            heard 'I have a dog.'
        {first}            answer begins
        {max(first, 1218)} says 'I am here.'
        {max(first, 1299)} audio
        1792               user speaks
        1792               answer cancelled
        2752               user pauses
        2813               thinks about 'I have a dog. What does he eat?'
        {second}           user stops
        {second}           heard 'What does he eat?'
        {second}           answer begins
        {max(second, 2914)} says 'I am here.'
        {audio}            audio
        {audio + SLOW_LAST_MS} answer completed
    """)
    assert story.prompt() == [("user", "I have a dog. What does he eat?")]


def test_a_true_barge_in_leaves_what_was_heard_in_the_conversation() -> None:
    story = perform(
        *(speak("I have a dog.", 1.024), silence(2.752), speak("No, thank you.", 0.512)),
        engines=cast(tts=voice(seconds_per_word=1.5)),
        settings=AT_ONCE,
    )
    audio = max(story.end_ms(0), 1299)
    assert f"{audio} audio" in story.table()
    assert "3840 answer cancelled" in story.table()
    assert story.prompt() == [
        ("user", "I have a dog."),
        ("assistant", f"I am{CUT_OFF}"),
        ("user", "No, thank you."),
    ]


def test_the_second_part_begins_before_the_first_transcript_is_there() -> None:
    """The longest wait has ended the turn; its first part gets no separate answer."""
    unsure_ms = Endpointing().unsure_wait_ms
    again = 640 + unsure_ms + 128
    story = perform(
        speak("I have a dog.", 0.64),
        silence((again - 640) / 1000),
        speak("What does he eat?", 0.64),
        engines=cast(ears(takes_s=3.0)),
    )
    second = again + 640 + 32 + 3000
    assert story.table() == lines(f"""
        64             user speaks
        672            user pauses
        {again + 64}   user stops
        {again + 64}   user speaks
        3672           heard 'I have a dog.'
        {again + 672}  user pauses
        {second}       thinks about 'I have a dog. What does he eat?'
        {second}       user stops
        {second}       heard 'What does he eat?'
        {second}       answer begins
        {second + 101} says 'I am here.'
        {second + 182} audio
        {second + 182 + LAST_MS} answer completed
    """)


@pytest.mark.parametrize("before_ms", [32, 20, 10, 6, 0, -10, -20])
def test_speech_that_begins_while_the_gate_opens(before_ms: int) -> None:
    """The window at whose end the gate opens counts as speech if a quarter of it is at the user's
    level. Either way no word is lost or heard twice, and both parts get one answer."""
    gate = perform(speak("I have a dog.", 0.64)).end_ms()
    pause = silence((gate - before_ms - 640) / 1000)
    parts = speak("I have a dog.", 0.64), pause, speak("What does he eat?", 0.64)
    story = perform(*parts, engines=slow_speaker())
    heard = [event.text for event in story.events(events.TranscriptReady)]
    assert story.prompt() == [("user", "I have a dog. What does he eat?")]
    if before_ms > 8:
        assert f"{gate} user goes on" in story.table()
        assert heard == ["I have a dog. What does he eat?"]
        assert len(story.events(events.ReplyStarted)) == 1
    else:
        assert f"{gate} answer begins" in story.table()
        assert f"{gate + 64} answer cancelled" in story.table()
        assert heard == ["I have a dog.", "What does he eat?"]
