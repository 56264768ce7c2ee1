"""An answer that is cut off by noise, or must wait, is given in the end: once, and only if somebody
still waits for it. And what is begun early stays worth its price over a long conversation."""

from __future__ import annotations

import pytest

from pipeline import events
from pipeline.settings import Endpointing
from tests.support.talk_script import Story, brain, cast, perform, sure_of_more, voice

pytestmark = pytest.mark.quick

TIME = "What time is it?"
SLOW = 0.6
"""Seconds for each word of a slow voice."""


def statuses(story: Story) -> list[str]:
    return [event.status for event in story.events(events.ReplyFinished)]


def test_an_answer_is_given_again_once() -> None:
    """Noise cuts it off at its beginning only once, so an echo cannot make it begin for ever."""
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
    # Nothing was said, so there is nothing to answer: a greeting is let go.
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


def test_what_was_deleted_is_not_answered() -> None:
    engines = cast(tts=voice(seconds_per_word=SLOW))
    story = perform(f"0 640 {TIME}\n960 640 ~", engines)
    item = story.events(events.InputCommitted)[0].item_id
    delete = f'> conversation.item.delete {{"item_id": "{item}"}}'
    engines = cast(tts=voice(seconds_per_word=SLOW))
    story = perform(f"0 640 {TIME}\n960 640 ~\n1400 {delete}", engines)
    assert statuses(story) == ["cancelled"]


def test_a_model_that_is_kept_from_reading_does_not_hold_a_plain_end() -> None:
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


def test_a_hesitant_speaker_does_not_switch_work_ahead_off() -> None:
    """A pause in each turn costs less than the answers; the last one is begun like the first."""
    lines = []
    for turn in range(12):
        at = turn * 4_480
        lines += [f"{at} 512 I want the", f"{at + 960} 512 blue ball."]
    story = perform("\n".join(lines), sure_of_more("I want the"))
    last = [row.split(" ", 1) for row in story.table()][-12:]
    thinks = [int(at) for at, what in last if "thinks" in what][-1]
    stops = [int(at) for at, what in last if "user stops" in what][-1]
    assert thinks < stops
