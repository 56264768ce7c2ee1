"""Noise at a bad moment, the heard part of a cut answer, and owed answers: an answer that noise cut
off or that had to wait is still given once if somebody waits for it."""

from __future__ import annotations

import pytest

from pipeline import events
from pipeline.conversation.prompt import CUT_OFF
from pipeline.settings import Endpointing
from reachy_voice.testing import AT_ONCE, Cast, say, silence, speak
from tests.support.protocol_client import text_item
from tests.support.stories import (
    TIME,
    Story,
    brain,
    cast,
    ears,
    perform,
    slow_speaker,
    sure_of_more,
    voice,
)
from tests.support.wired import send

pytestmark = pytest.mark.quick


def gaps_ms(story: Story) -> list[int]:
    return [int(row.split()[-2]) for row in story.table() if "after a gap" in row]


def test_history_keeps_no_words_that_were_not_heard() -> None:
    """Each word takes 200 ms; the second piece has ten, and is interrupted near its end."""
    engines = cast()
    engines.llm.deltas = ("It is noon, ", "and I am very hungry. ", "Do you want some lunch? ")
    first = perform(speak(TIME, 1.024), engines=engines)
    audio = max(first.end_ms(), 1299)
    begins = (audio + 2_250) // 32 * 32 - 64
    story = perform(
        *(speak(TIME, 1.024), silence(begins / 1000 - 1.024), speak("No, thank you.", 0.512)),
        engines=engines,
        settings=AT_ONCE,
    )
    assert f"{begins + 64} answer cancelled" in story.table()
    words = (begins + 64 - audio) // 200
    whole = "".join(engines.llm.deltas).split()  # type: ignore[arg-type]
    assert story.prompt()[1] == ("assistant", " ".join(whole[:words]) + CUT_OFF)


def test_a_late_gate_makes_no_longer_gaps() -> None:
    """The model writes a word every 200 ms, as fast as it is spoken."""

    def gaps(engines: Cast) -> list[int]:
        engines.llm.per_token_s = 0.2
        text = "It is noon, and I am very hungry today after all this hard work because I had none."
        engines.llm.deltas = [f"{word} " for word in text.split()]
        return gaps_ms(perform(speak(TIME, 0.64), engines=engines))

    assert max(gaps(sure_of_more(TIME)), default=0) <= max(gaps(cast()), default=0)


def test_turns_are_committed_in_the_order_spoken() -> None:
    story = perform(
        speak("I have a dog.", 0.64),
        silence(1.056),
        speak("What does he eat?", 0.64),
        silence(0.004),
        send("input_audio_buffer.commit"),
        send("response.create"),
        engines=cast(ears(takes_s=2.5)),
    )
    assert story.prompt() == [("user", "I have a dog. What does he eat?")]


@pytest.mark.parametrize("at_ms", range(700, 3_600, 145))
def test_a_commit_at_the_end_of_a_turn_commits_it_once(at_ms: int) -> None:
    """The transcript is so slow that the turn has ended but is not committed. The client asks for
    answers itself."""

    detection = {"type": "server_vad", "create_response": False}
    story = perform(
        *(speak(TIME, 0.64), silence(at_ms / 1000 - 0.64)),
        *(send("input_audio_buffer.commit"), send("response.create")),
        engines=cast(ears(takes_s=3.0)),
        session={"audio": {"input": {"turn_detection": detection}}},
    )
    assert not story.events(events.Refused)
    assert [row.split(" ", 1)[1] for row in story.table("committed")].count("committed") == 1
    assert story.prompt() == [("user", TIME)]
    assert len(story.events(events.ReplyStarted)) == 1


def test_a_turn_is_answered_after_a_response_requested_during_it() -> None:
    story = perform(
        *(speak("What time", 0.32), send("response.create"), speak("is it?", 0.32)),
        engines=cast(tts=voice(seconds_per_word=1)),
    )
    assert ("user", TIME) in story.prompt()


def test_noise_after_a_turn_does_not_cancel_its_answer() -> None:
    story = perform(speak(TIME, 0.64), silence(1.12), say(0.32), engines=cast(ears(takes_s=1.5)))
    assert story.engines.llm.prompts


def test_no_judgement_follows_a_pause() -> None:
    engines = sure_of_more("I want the")
    engines.llm.read_s = 0.01
    story = perform(
        speak("I want the", 0.768), silence(0.096), speak("blue ball.", 0.512), engines=engines
    )
    table = story.table("judged")
    resumed = table.index("896 user goes on")
    assert not [row for row in table[resumed:] if row.startswith("896 judged")]


# --- an answer that is owed --------------------------------------------------------------------


def test_an_answer_is_given_again_once() -> None:
    """Noise restarts it only once, so an echo cannot make it begin for ever."""
    noises = (silence(0.32), *(say(0.32), silence(1.28)) * 7)
    story = perform(speak(TIME, 0.64), *noises, engines=slow_speaker())
    assert story.statuses == ["cancelled", "completed"]


def test_an_answer_that_was_sent_but_not_played_yet_is_given_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.speaking.tuning.FIRST_LEAD_S", 0.08)  # 40 ms of jitter
    engines = cast(tts=voice(seconds_per_word=0.08))
    engines.llm.deltas = ("Yes. ",)
    rows = perform(speak(TIME, 0.64), engines=engines).table()
    (audio,) = (int(row.split()[0]) for row in rows if row.endswith(" audio"))
    begins = audio // 32 * 32
    engines = cast(tts=voice(seconds_per_word=0.08))
    engines.llm.deltas = ("Yes. ",)
    story = perform(speak(TIME, 0.64), silence(begins / 1000 - 0.64), say(0.16), engines=engines)
    assert story.statuses == ["completed", "completed"]
    assert story.prompt() == [("user", TIME)]


def test_a_requested_answer_is_given_again() -> None:
    create = send("response.create", response={"instructions": "Greet."})
    story = perform(create, silence(0.16), say(0.32), engines=slow_speaker())
    # Nothing was said, so there is nothing to answer: a greeting is not repeated.
    assert story.statuses == ["cancelled"]
    hello = send("conversation.item.create", item=text_item())
    story = perform(hello, create, silence(0.16), say(0.32), engines=slow_speaker())
    assert story.statuses == ["cancelled", "completed"]
    assert story.engines.llm.prompts[-1][0].content.startswith("Greet.")


def test_an_answer_with_its_own_input_is_given_again() -> None:
    create = send("response.create", response={"input": [text_item("Tell a joke.")]})
    story = perform(create, silence(0.16), say(0.32), engines=slow_speaker())
    assert story.statuses == ["cancelled", "completed"]
    prompts = [prompt[-1].content for prompt in story.engines.llm.prompts]
    assert prompts == ["Tell a joke."] * 2


def test_what_was_deleted_is_not_answered() -> None:
    question = speak(TIME, 0.64), silence(0.32)
    [committed] = perform(*question, engines=slow_speaker()).events(events.InputCommitted)
    delete = send("conversation.item.delete", item_id=committed.item_id)
    story = perform(*question, say(0.44), delete, say(0.2), engines=slow_speaker())
    assert story.statuses == ["cancelled"]


def test_a_model_that_cannot_read_does_not_delay_a_clear_end() -> None:
    engines = cast(llm=brain(read_s=3.0, first_s=3.0))
    story = perform(speak("Yes.", 0.64), engines=engines)
    assert story.end_ms() - 640 <= Endpointing().likely_wait_ms + 32


def test_answers_that_are_switched_off_in_the_pause_are_not_given() -> None:
    off = {"turn_detection": {"type": "server_vad", "create_response": False}}
    update = send("session.update", session={"type": "realtime", "audio": {"input": off}})
    story = perform(speak(TIME, 0.64), silence(0.08), update, engines=sure_of_more(TIME))
    assert story.events(events.InputCommitted)
    assert not story.events(events.ReplyStarted)


def test_a_hesitant_speaker_keeps_speculative_replies_on() -> None:
    """A pause in each turn wastes less than the answers cost, so the last reply begins as early as
    the first."""
    turn = speak("I want the", 0.512), silence(0.448), speak("blue ball.", 0.512), silence(3.008)
    story = perform(*turn * 12, engines=sure_of_more("I want the"))
    last = [row.split(" ", 1) for row in story.table()][-12:]
    thinks = [int(at) for at, what in last if "thinks" in what][-1]
    stops = [int(at) for at, what in last if "user stops" in what][-1]
    assert thinks < stops
