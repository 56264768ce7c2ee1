"""Noise at a bad moment, the heard part of a cut answer, and owed answers: an answer that noise cut
off or that had to wait is still given once if somebody waits for it."""

from __future__ import annotations

import json

import pytest

from pipeline import events
from pipeline.conversation.prompt import CUT_OFF
from pipeline.settings import Endpointing
from reachy_voice.testing import AT_ONCE, Cast
from tests.support.talk_script import Story, brain, cast, ears, perform, sure_of_more, voice

pytestmark = pytest.mark.quick

TIME = "What time is it?"


def gaps_ms(story: Story) -> list[int]:
    return [int(row.split()[-2]) for row in story.table() if "after a gap" in row]


def test_history_keeps_no_words_that_were_not_heard() -> None:
    """Each word takes 200 ms; the second piece has ten, and is interrupted near its end."""
    engines = cast()
    engines.llm.deltas = ("It is noon, ", "and I am very hungry. ", "Do you want some lunch? ")
    first = perform(f"0 1024 {TIME}", engines)
    audio = max(first.end_ms(), 1299)
    begins = (audio + 2_250) // 32 * 32 - 64
    story = perform(f"0 1024 {TIME}\n{begins} 512 No, thank you.", engines, settings=AT_ONCE)
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
        return gaps_ms(perform(f"0 640 {TIME}", engines))

    assert max(gaps(sure_of_more(TIME)), default=0) <= max(gaps(cast()), default=0)


def test_turns_are_committed_in_the_order_spoken() -> None:
    story = perform(
        """
        0    640 I have a dog.
        1696 640 What does he eat?
        2340 >   input_audio_buffer.commit
        2340 >   response.create
        """,
        cast(ears(takes_s=2.5)),
    )
    assert story.prompt() == [("user", "I have a dog. What does he eat?")]


@pytest.mark.parametrize("at_ms", range(700, 3_600, 145))
def test_a_commit_at_the_end_of_a_turn_commits_it_once(at_ms: int) -> None:
    """The transcript is so slow that the turn has ended but is not committed. The client asks for
    answers itself."""
    asked = f"{at_ms} > input_audio_buffer.commit\n{at_ms} > response.create"
    detection = {"type": "server_vad", "create_response": False}
    story = perform(
        f"0 640 {TIME}\n{asked}",
        cast(ears(takes_s=3.0)),
        session={"audio": {"input": {"turn_detection": detection}}},
    )
    assert not story.events(events.Refused)
    assert [row.split(" ", 1)[1] for row in story.table("committed")].count("committed") == 1
    assert story.prompt() == [("user", TIME)]
    assert len(story.events(events.ReplyStarted)) == 1


def test_a_turn_is_answered_after_a_response_requested_during_it() -> None:
    story = perform(f"0 640 {TIME}\n320 > response.create", cast(tts=voice(seconds_per_word=1)))
    assert ("user", TIME) in story.prompt()


def test_noise_after_a_turn_does_not_cancel_its_answer() -> None:
    story = perform(f"0 640 {TIME}\n1760 320 ~", cast(ears(takes_s=1.5)))
    assert story.engines.llm.prompts


def test_no_judgement_follows_a_pause() -> None:
    engines = sure_of_more("I want the")
    engines.llm.read_s = 0.01
    story = perform("0 768 I want the\n864 512 blue ball.", engines)
    table = story.table("judged")
    resumed = table.index("896 user goes on")
    assert not [row for row in table[resumed:] if row.startswith("896 judged")]


# --- an answer that is owed --------------------------------------------------------------------

SLOW = 0.6
"""Seconds per word of a slow voice."""


def statuses(story: Story) -> list[str]:
    return [event.status for event in story.events(events.ReplyFinished)]


def test_an_answer_is_given_again_once() -> None:
    """Noise restarts it only once, so an echo cannot make it begin for ever."""
    noises = "\n".join(f"{at} 320 ~" for at in range(960, 12_000, 1_600))
    story = perform(f"0 640 {TIME}\n{noises}", cast(tts=voice(seconds_per_word=SLOW)))
    assert statuses(story) == ["cancelled", "completed"]


def test_an_answer_that_was_sent_but_not_played_yet_is_given_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.speaking.delivery.FIRST_LEAD_S", 0.08)  # 40 ms of jitter
    engines = cast(tts=voice(seconds_per_word=0.08))
    engines.llm.deltas = ("Yes. ",)
    rows = perform(f"0 640 {TIME}", engines).table()
    (audio,) = (int(row.split()[0]) for row in rows if row.endswith(" audio"))
    begins = audio // 32 * 32
    engines = cast(tts=voice(seconds_per_word=0.08))
    engines.llm.deltas = ("Yes. ",)
    story = perform(f"0 640 {TIME}\n{begins} 160 ~", engines)
    assert statuses(story) == ["completed", "completed"]
    assert story.prompt() == [("user", TIME)]


def test_a_requested_answer_is_given_again() -> None:
    create = '> response.create {"response": {"instructions": "Greet."}}'
    story = perform(f"0 {create}\n160 320 ~", cast(tts=voice(seconds_per_word=SLOW)))
    # Nothing was said, so there is nothing to answer: a greeting is not repeated.
    assert statuses(story) == ["cancelled"]
    item = (
        '{"item": {"type": "message", "role": "user", '
        '"content": [{"type": "input_text", "text": "Hello."}]}}'
    )
    story = perform(
        f"0 > conversation.item.create {item}\n10 {create}\n160 320 ~",
        cast(tts=voice(seconds_per_word=SLOW)),
    )
    assert statuses(story) == ["cancelled", "completed"]
    assert story.engines.llm.prompts[-1][0].content.startswith("Greet.")


def test_an_answer_with_its_own_input_is_given_again() -> None:
    text = {"type": "input_text", "text": "Tell a joke."}
    given = {"input": [{"type": "message", "role": "user", "content": [text]}]}
    create = f"> response.create {json.dumps({'response': given})}"
    story = perform(f"0 {create}\n160 320 ~", cast(tts=voice(seconds_per_word=SLOW)))
    assert statuses(story) == ["cancelled", "completed"]
    prompts = [prompt[-1].content for prompt in story.engines.llm.prompts]
    assert prompts == ["Tell a joke."] * 2


def test_what_was_deleted_is_not_answered() -> None:
    engines = cast(tts=voice(seconds_per_word=SLOW))
    story = perform(f"0 640 {TIME}\n960 640 ~", engines)
    item = story.events(events.InputCommitted)[0].item_id
    delete = f'> conversation.item.delete {{"item_id": "{item}"}}'
    engines = cast(tts=voice(seconds_per_word=SLOW))
    story = perform(f"0 640 {TIME}\n960 640 ~\n1400 {delete}", engines)
    assert statuses(story) == ["cancelled"]


def test_a_model_that_cannot_read_does_not_delay_a_clear_end() -> None:
    engines = cast(llm=brain(read_s=3.0, first_s=3.0))
    story = perform("0 640 Yes.", engines)
    assert story.end_ms() - 640 <= Endpointing().likely_wait_ms + 32


def test_answers_that_are_switched_off_in_the_pause_are_not_given() -> None:
    detection = '{"type": "server_vad", "create_response": false}'
    update = (
        '{"session": {"type": "realtime", "audio": {"input": '
        f'{{"turn_detection": {detection}}}}}}}}}'
    )
    story = perform(f"0 640 {TIME}\n720 > session.update {update}", sure_of_more(TIME))
    assert story.events(events.InputCommitted)
    assert not story.events(events.ReplyStarted)


def test_a_hesitant_speaker_keeps_speculative_replies_on() -> None:
    """A pause in each turn wastes less than the answers cost, so the last reply begins as early as
    the first."""
    lines = []
    for turn in range(12):
        at = turn * 4_480
        lines += [f"{at} 512 I want the", f"{at + 960} 512 blue ball."]
    story = perform("\n".join(lines), sure_of_more("I want the"))
    last = [row.split(" ", 1) for row in story.table()][-12:]
    thinks = [int(at) for at, what in last if "thinks" in what][-1]
    stops = [int(at) for at, what in last if "user stops" in what][-1]
    assert thinks < stops
