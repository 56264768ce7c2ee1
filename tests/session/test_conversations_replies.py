"""Conversations to the millisecond: the fate of the replies.

As in ``tests/session/test_conversations.py``: 61 ms for a transcript, 51 ms for the turn detector,
101 ms for a first token, 81 ms for a first sound; the end of a turn is computed from the
judgements.
"""

from __future__ import annotations

from typing import Any

import pytest

from pipeline import events
from pipeline.engines.contract import ToolCall
from pipeline.engines.word_scale import UNMEASURED, WordScale
from pipeline.settings import SessionSettings, Speculation
from reachy_voice.testing import Act, Cast, say, silence, speak
from tests.support.protocol_client import text_item
from tests.support.stories import (
    LAST_MS,
    STT_S,
    TIME,
    TURN_S,
    brain,
    cast,
    ears,
    lines,
    perform,
    sure_of_more,
    voice,
)
from tests.support.wired import Message, send

pytestmark = pytest.mark.quick


def detection(**changes: Any) -> dict[str, Any]:
    """Fields of a ``session.update`` that change turn detection."""
    return {"audio": {"input": {"turn_detection": {"type": "server_vad", **changes}}}}


# --- begun on a stable partial transcript ------------------------------------------------------

JOKE = "Tell me a joke."
TRAILING = speak(JOKE, 1.024), say(0.096)
"""The voice trails off after the last word; the transcript does not change then."""


def guessing() -> Cast:
    return cast(ears(streams=True), brain(first_s=0.2))


def test_a_reply_to_a_stable_partial_is_ready_when_the_turn_ends() -> None:
    story = perform(*TRAILING, engines=guessing())
    end = story.end_ms()
    assert (
        story.table()[-7:]
        == lines(f"""
        1056             thinks about '{JOKE}'
        1152             user pauses
        {end}            user stops
        {end}            heard '{JOKE}'
        {end}            answer begins
        {max(end, 1256)} says 'I am here.'
        {max(end, 1337)} audio
        {max(end, 1337) + LAST_MS} answer completed
    """)[-7:]
    )


def test_a_reply_to_a_partial_ends_with_the_next_word() -> None:
    story = perform(*TRAILING, engines=guessing())
    assert [row for row in story.table() if int(row.split()[0]) < 1056] == lines("""
        64   user speaks
        288  thinks about 'Tell'
        512  thrown away
        544  thinks about 'Tell me'
        768  thrown away
        800  thinks about 'Tell me a'
        1024 thrown away
    """)


def test_a_reply_to_misheard_words_is_replaced() -> None:
    engines = guessing()
    engines.stt.corrections[JOKE] = "Tell me a yoke."
    story = perform(*TRAILING, engines=engines)
    end = story.end_ms()
    audio = max(end, 1494)
    assert [row for row in story.table() if int(row.split()[0]) >= 1056] == lines(f"""
        1056             thinks about '{JOKE}'
        1152             user pauses
        1213             thrown away
        1213             thinks about 'Tell me a yoke.'
        {end}            user stops
        {end}            heard 'Tell me a yoke.'
        {end}            answer begins
        {max(end, 1413)} says 'I am here.'
        {audio}          audio
        {audio + LAST_MS} answer completed
    """)


def test_beyond_its_budget_a_session_begins_a_reply_when_the_turn_is_likely_over() -> None:
    """Six pauses with wasted work and no budget, then a clear end."""
    pauses = [act for n in range(7) for act in (speak(f"well{n}", 0.32), silence(0.16))]
    engines = sure_of_more(*(" ".join(f"well{n}" for n in range(m)) for m in range(1, 7)))
    last = " ".join(f"well{n}" for n in range(7))
    settings = SessionSettings(speculation=Speculation(budget=0.0))
    story = perform(*pauses, engines=engines, settings=settings)
    thoughts = [row for row in story.table() if "thinks about" in row]
    assert len(thoughts) == 7, "the first six begin at their first silent frames"
    begins = 480 * 6 + 320 + 32 + 61
    [*_, row] = thoughts
    assert row == f"{begins + 51} thinks about '{last}'", "the last one when the detector is sure"


def test_beyond_its_budget_open_words_still_keep_the_turn() -> None:
    """Six pauses with wasted work, then one that sounds like the end."""
    texts = [" ".join(f"well{n}" for n in range(m)) for m in range(1, 8)]
    engines = sure_of_more(*texts)
    engines.turn.probabilities[texts[-1]] = 0.98
    pauses = [act for n in range(7) for act in (speak(f"well{n}", 0.32), silence(0.16))]
    settings = SessionSettings(speculation=Speculation(budget=0.0))
    story = perform(
        *pauses, silence(0.54), speak("it is.", 0.512), engines=engines, settings=settings
    )
    assert len(story.events(events.SpeechStopped)) == 1


def test_waste_is_all_discarded_work() -> None:
    """The model works from the transcript until the user resumes."""
    engines = sure_of_more("I want the")
    engines.llm.first_s = 0.5
    story = perform(
        speak("I want the", 0.768), silence(0.288), speak("blue ball.", 0.512), engines=engines
    )
    [thrown_away] = story.events(events.SpeculationDiscarded)
    assert thrown_away.engine_seconds == pytest.approx(STT_S + TURN_S + 1.088 - 0.861)


# --- engines that take their time --------------------------------------------------------------


@pytest.mark.parametrize(
    ("stt_s", "read_s", "goes_on_ms", "word_scales", "turns"),
    [
        (STT_S, 0.8, 1740, {"en": UNMEASURED}, 1),
        (STT_S, 0.8, 1740, {}, 2),
        (1.0, 0.4, 1990, {"en": UNMEASURED}, 1),
    ],
)
def test_a_slow_judgement_is_waited_for(
    stt_s: float, read_s: float, goes_on_ms: int, word_scales: dict[str, WordScale], turns: int
) -> None:
    engines = cast(llm=brain(read_s=read_s, first_s=read_s + 0.05))
    engines.stt.takes_s = stt_s
    engines.word_scales = word_scales
    engines.turn.probabilities["Please ask her to."] = 0.98
    engines.llm.end_probabilities["Please ask her to."] = 0.00001
    pause = silence(goes_on_ms / 1000 - 0.64)
    acts = speak("Please ask her to.", 0.64), pause, speak("Come in.", 0.64)
    story = perform(*acts, engines=engines)
    assert len(story.events(events.SpeechStopped)) == turns


def test_a_commit_does_not_wait_for_a_slow_model() -> None:
    story = perform(speak(TIME, 0.64), engines=cast(llm=brain(first_s=0.6)))
    end = story.end_ms()
    assert end < 733 + 600
    assert story.table()[-6:] == lines(f"""
        {end} user stops
        {end} heard '{TIME}'
        {end} answer begins
        1333  says 'I am here.'
        1414  audio
        1974  answer completed
    """)


def test_a_slow_voice_makes_no_avoidable_gap() -> None:
    """Each word of 200 ms takes 250 ms to make: the listener waits 50 ms for every word but the
    first."""
    story = perform(speak(TIME, 0.64), engines=cast(tts=voice(per_word_s=0.25)))
    audio = max(story.end_ms(), 834 + 81)
    assert [row for row in story.table() if "audio" in row or "completed" in row] == lines(f"""
        {audio}       audio
        {audio + 250} audio after a gap of 50 ms
        {audio + 500} audio after a gap of 50 ms
        {audio + 660} answer completed
    """)


def test_a_first_clause_is_spoken_before_the_rest_is_written() -> None:
    engines = cast()
    engines.llm.deltas = ("It is noon, ", 0.4, "so let us eat. ")
    story = perform(speak(TIME, 0.64), engines=engines)
    end = story.end_ms()
    audio = max(end, 834 + 81)
    assert [row for row in story.table("voices") if "voices" in row or "audio" in row] == lines(f"""
        834     voices 'It is noon,'
        {audio} audio
        1254    voices 'so let us eat.'
    """)


# --- tools -------------------------------------------------------------------------------------

OUTPUT = {"type": "function_call_output", "call_id": "call_7", "output": "done"}
"""Of the first call."""


def test_a_call_is_answered_while_the_words_before_it_are_said() -> None:
    """The call leaves as soon as it is complete; the answer to its output follows the words."""
    waving = cast()
    waving.llm.answers_to["Please wave at me."] = ("I will wave. ", ToolCall("wave", "{}"))
    story = perform(
        speak("Please wave at me.", 0.64),
        silence(0.314),
        send("conversation.item.create", item=OUTPUT),
        send("response.create"),
        engines=waving,
    )
    (call,) = story.events(events.ReplyArguments)
    assert call.call_id == OUTPUT["call_id"]
    said = 915 + LAST_MS
    assert story.table()[-10:] == lines(f"""
        896           answer begins
        896           says 'I will wave.'
        896           calls with {{}}
        915           audio
        {said}        answer completed
        {said}        answer begins
        {said}        thinks about 'done'
        {said + 101}  says 'I am here.'
        {said + 182}  audio
        {said + 182 + LAST_MS} answer completed
    """)


CANCELLED = silence(0.146), send("response.cancel")


@pytest.mark.parametrize(
    ("tools", "then", "statuses"),
    [
        pytest.param(("wave", "dance"), (), ["completed"] * 2, id="another call has no output"),
        pytest.param(("wave",), CANCELLED, ["cancelled"], id="the client cancels"),
    ],
)
def test_an_answer_asked_for_while_the_words_before_a_call_are_said(
    tools: tuple[str, ...], then: tuple[Act | Message, ...], statuses: list[str]
) -> None:
    dancing = cast()
    calls = (ToolCall(tool, "{}") for tool in tools)
    dancing.llm.answers_to["Please wave at me."] = ("I will wave. ", *calls)
    story = perform(
        *(speak("Please wave at me.", 0.64), silence(0.314)),
        *(send("conversation.item.create", item=OUTPUT), send("response.create"), *then),
        engines=dancing,
    )
    assert story.statuses == statuses


# --- what a client does ------------------------------------------------------------------------


def test_new_instructions_in_a_pause_replace_the_reply_behind_its_gate() -> None:
    update = {"session": {"type": "realtime", "instructions": "Sing."}}
    story = perform(
        speak(TIME, 0.64),
        silence(0.16),
        send("session.update", **update),
        engines=sure_of_more(TIME),
    )
    end = story.end_ms()
    assert end > 800
    assert story.table()[-8:] == lines(f"""
        {end}       user stops
        {end}       heard '{TIME}'
        {end}       thrown away
        {end}       answer begins
        {end}       thinks about '{TIME}'
        {end + 101} says 'I am here.'
        {end + 182} audio
        {end + 182 + LAST_MS} answer completed
    """)
    assert [m.content for m in story.engines.llm.prompts[-1]] == ["Sing.", TIME]


def test_an_item_that_is_deleted_in_a_pause_is_not_answered() -> None:
    """The reply behind its gate read the item; the one that is given did not."""
    item = {**text_item("My name is Ann."), "id": "mine"}
    story = perform(
        send("conversation.item.create", item=item),
        *(speak(TIME, 0.64), silence(0.16)),
        send("conversation.item.delete", item_id="mine"),
        engines=sure_of_more(f"My name is Ann. {TIME}", TIME),
    )
    assert story.prompt(0) == [("user", f"My name is Ann. {TIME}")]
    assert story.prompt(1) == [("user", TIME)]
    assert len(story.events(events.ReplyStarted)) == 1


def test_a_response_requested_in_a_pause_does_not_replace_the_speculative_one() -> None:
    """It answers what was said before; the turn gets its answer when it ends."""
    story = perform(
        speak(TIME, 0.64), silence(0.16), send("response.create"), engines=sure_of_more(TIME)
    )
    end = story.end_ms()
    assert end > 982 + LAST_MS, "the asked one is over by then"
    assert [row for row in story.table() if int(row.split()[0]) >= 800] == lines(f"""
        800         answer begins
        800         thinks about 'You are Reachy.'
        901         says 'I am here.'
        982         audio
        {982 + LAST_MS} answer completed
        {end}       user stops
        {end}       heard '{TIME}'
        {end}       thrown away
        {end}       answer begins
        {end}       thinks about '{TIME}'
        {end + 101} says 'I am here.'
        {end + 182} audio
        {end + 182 + LAST_MS} answer completed
    """)


def test_without_interruption_both_turns_are_answered() -> None:
    """An uninterruptible answer is sent in one burst, so the client may still be playing it."""
    engines = cast(llm=brain(per_token_s=0.6))
    engines.llm.deltas = ("I am here. ", "And I stay. ")
    story = perform(
        speak(TIME, 0.64),
        silence(0.64),
        speak("And what day?", 0.64),
        engines=engines,
        session=detection(interrupt_response=False),
    )
    first, second = story.end_ms(0), story.end_ms(1)
    assert story.statuses == ["completed", "completed"]
    table = story.table()
    assert "1376 user speaks" in table
    assert f"{max(first, 834)} says 'I am here.'" in table
    assert "1434 says 'And I stay.'" in table, "while the user speaks"
    assert f"{second} answer begins" in table
    assert story.prompt()[-1] == ("user", "And what day?")


def test_without_create_response_a_turn_waits_for_the_client() -> None:
    acts = speak(TIME, 0.64), silence(2.36), send("response.create")
    story = perform(*acts, session=detection(create_response=False))
    end = story.end_ms()
    assert story.table() == lines(f"""
        64    user speaks
        672   user pauses
        {end} user stops
        {end} heard '{TIME}'
        3000  answer begins
        3000  thinks about '{TIME}'
        3101  says 'I am here.'
        3182  audio
        3742  answer completed
    """)
