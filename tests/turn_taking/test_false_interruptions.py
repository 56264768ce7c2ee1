"""Speech that cut an answer off before all its words were known, and should not have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipeline.commands import Configure, CreateResponse, SessionConfig, TurnDetection
from pipeline.conversation.prompt import CUT_OFF
from pipeline.events import (
    InputCommitted,
    ReplyAudio,
    ReplyFinished,
    ReplyStarted,
    SpeechRejected,
    TurnJudged,
)
from pipeline.items import MessageItem
from pipeline.realtime.responses import Response
from pipeline.settings import Endpointing
from pipeline.turn_record import TurnRecord
from reachy_voice.testing import (
    Scene,
    ScriptedLlm,
    ScriptedStt,
    in_virtual_time,
    run_virtual,
    scene,
)
from tests.turn_taking.test_overlaps import QUESTION_S, STORY, VOICE, over_the_answer, story

pytestmark = pytest.mark.quick

FIRST_LOOKS = ("What is", "What is")
"""If two looks find the beginning of a question, it cuts the answer off."""


def interrupted(
    final: str,
    *,
    llm: ScriptedLlm | None = None,
    heard_s: float = 3.0,
    then: SessionConfig | None = None,
) -> Scene:
    """``then``: what the client configures while the words are unknown."""

    async def main() -> Scene:
        texts = ("Tell me a story.", *FIRST_LOOKS, final)
        async with scene(config=VOICE, stt=ScriptedStt(texts=texts), llm=llm or story()) as played:
            await played.say(QUESTION_S)
            await played.hear(heard_s)
            await played.say(0.42)
            if then:
                await played.do(Configure(then))
            await played.hear(12.0)
        return played

    return run_virtual(main())  # type: ignore[no-any-return]


def spoken(finished: ReplyFinished) -> str:
    return "".join(item.text for item in finished.items if isinstance(item, MessageItem))


def heard_of(played: Scene, reply_id: str) -> str:
    """The part of a reply that the conversation keeps."""
    records = [record for record in played.events(TurnRecord) if record.reply_id == reply_id]
    return records[0].heard


def test_the_answer_goes_on_where_it_was_if_the_final_words_are_a_listeners() -> None:
    llm = story()
    played = interrupted("Mm-hmm.", llm=llm)
    cut, rest = played.events(ReplyFinished)
    assert (cut.status, cut.reason) == ("cancelled", "turn_detected")
    assert rest.status == "completed"
    whole = f"{heard_of(played, cut.reply_id)} {spoken(rest)}"
    assert whole.split() == "".join(STORY).split(), "no word is lost, none is said twice"
    assert len(llm.prompts) == 1, "the language model is not asked again"


def test_the_rest_names_the_answer_that_it_continues() -> None:
    played = interrupted("Mm-hmm.")
    first, second = played.events(ReplyStarted)
    assert (first.continues, second.continues) == ("", first.reply_id)
    sent: dict[str, Any] = {}

    def send(kind: str, /, **fields: Any) -> None:
        sent.update(fields)

    Response(second, "conv", "joe", send)
    assert sent["response"]["metadata"] == {"reachy_voice.continues": first.reply_id}
    assert [record.origin for record in played.events(TurnRecord)] == ["voice", "rest"]
    assert len(played.events(InputCommitted)) == 2, "the listener's words stay in the conversation"


def test_the_rest_is_written_if_the_client_reads_from_now_on() -> None:
    played = interrupted("Mm-hmm.", then=replace(VOICE, modality="text"))
    cut, rest = played.events(ReplyStarted)
    assert (rest.modality, bool(rest.continues)) == ("text", True)
    assert not [each for each in played.events(ReplyAudio) if each.reply_id == rest.reply_id]
    finished = played.events(ReplyFinished)[-1]
    assert finished.status == "completed"
    whole = f"{heard_of(played, cut.reply_id)} {spoken(finished)}"
    assert whole.split() == "".join(STORY).split()


def test_the_answer_goes_on_after_the_shortest_wait() -> None:
    played = interrupted("Mm-hmm.")
    judged = played.events(TurnJudged)[-1]
    assert judged.wait_ms == Endpointing().clear_wait_ms
    assert judged.reasons[-1] == "false interruption"


def test_a_noise_without_words_is_rejected_and_the_answer_goes_on() -> None:
    played = interrupted("")
    assert played.events(SpeechRejected)
    assert [finished.status for finished in played.events(ReplyFinished)] == [
        "cancelled",
        "completed",
    ]


@pytest.mark.parametrize("final", ["What is the time?", "Stop."])
def test_speech_that_meant_it_is_answered(final: str) -> None:
    llm = story()
    played = interrupted(final, llm=llm)
    assert [started.continues for started in played.events(ReplyStarted)] == ["", ""]
    assert llm.prompts[-1][-1].content == final


@pytest.mark.parametrize("heard_s", [1.6, 2.2, 3.0])
@pytest.mark.parametrize("final", ["Mm-hmm.", ""])
def test_the_model_reads_all_of_an_answer_that_went_on(final: str, heard_s: float) -> None:
    llm = story()

    async def main() -> None:
        texts = ("Tell me a story.", *FIRST_LOOKS, final, "Who was it?")
        async with scene(config=VOICE, stt=ScriptedStt(texts=texts), llm=llm) as played:
            await played.say(QUESTION_S)
            await played.hear(heard_s)
            await played.say(0.42)
            await played.hear(12.0)
            await played.say(1.0)
            await played.hear(1.0)

    run_virtual(main())
    answers = [message.content for message in llm.prompts[-1] if message.role == "assistant"]
    assert " ".join(answers).replace(f"{CUT_OFF} ", " ").split() == "".join(STORY).split()
    assert len(answers) == (2 if final else 1)


@in_virtual_time
async def test_nothing_is_resumed_for_a_client_that_creates_the_answers() -> None:
    config = replace(VOICE, turn_detection=TurnDetection(create_response=False))
    stt = ScriptedStt(texts=("Tell me a story.", *FIRST_LOOKS, "Mm-hmm."))
    async with scene(config=config, stt=stt, llm=story()) as played:
        await played.say(QUESTION_S)
        await played.hear(1.0)
        await played.do(CreateResponse())
        await played.hear(3.0)
        await played.say(0.42)
        await played.hear(6.0)
    assert len(played.events(InputCommitted)) == 2
    assert [finished.status for finished in played.events(ReplyFinished)] == ["cancelled"]


def test_an_answer_talked_over_by_a_noise_is_given_again_if_no_rest_is_known() -> None:
    words = tuple(f"{word} " for word in ("once upon a time there was a robot " * 2).split())
    llm = ScriptedLlm(deltas=words, per_token_s=0.3)
    played = interrupted("", llm=llm, heard_s=3.8)
    cut, again = played.events(ReplyFinished)
    assert (cut.reason, again.status) == ("turn_detected", "completed")
    assert llm.prompts[1] == llm.prompts[0]
    assert [record.origin for record in played.events(TurnRecord)][-1] == "again"


def test_an_answer_of_which_next_to_nothing_was_heard_is_given_again_whole() -> None:
    played = interrupted("Mm-hmm.", heard_s=1.2)
    cut, again = played.events(ReplyFinished)[:2]
    assert len(heard_of(played, cut.reply_id)) < len("once upon a time")
    assert spoken(again).split() == "".join(STORY).split()


def test_of_an_unfinished_answer_the_rest_ends_with_a_whole_sentence() -> None:
    sentences = [
        f"This is sentence number {number} of a very long answer. " for number in range(60)
    ]
    words = tuple(f"{word} " for sentence in sentences for word in sentence.split())
    played = interrupted("Mm-hmm.", llm=ScriptedLlm(deltas=words, per_token_s=0.15))
    rest = played.events(ReplyFinished)[-1]
    assert rest.status == "completed"
    assert spoken(rest).rstrip().endswith("answer.")


@pytest.mark.parametrize("final", ["Mm-hmm.", ""])
@pytest.mark.parametrize("after_s", [0.1, 0.5, 1.0])
@in_virtual_time
async def test_a_rest_of_which_little_was_heard_is_still_the_rest(
    after_s: float, final: str
) -> None:
    llm = story()
    stt = ScriptedStt(texts=("Tell me a story.", *FIRST_LOOKS, "Mm-hmm.", final))
    async with scene(config=VOICE, stt=stt, llm=llm) as played:
        await over_the_answer(played, 0.42)
        while len(played.events(ReplyStarted)) < 2:
            await played.hear(0.02)
        await played.hear(after_s)
        await played.say(0.42)
        await played.hear(12.0)
    assert len(llm.prompts) == 1, "the language model is not asked again"
    items = [item for item in played.session.chat.items if isinstance(item, MessageItem)]
    told = " ".join(item.text for item in items if item.role == "assistant")
    assert told.split() == "".join(STORY).split()
    assert [bool(started.continues) for started in played.events(ReplyStarted)] == [
        False,
        True,
        True,
    ]


@in_virtual_time
async def test_a_second_false_interruption_is_taken_back() -> None:
    looks = (*FIRST_LOOKS, "Mm-hmm.") * 2
    stt = ScriptedStt(texts=("Tell me a story.", *looks))
    async with scene(config=VOICE, stt=stt, llm=story()) as played:
        await over_the_answer(played, 0.42)
        await played.hear(4.0)
        await played.say(0.42)
        await played.hear(12.0)
    first, second, third = played.events(ReplyStarted)
    assert (second.continues, third.continues) == (first.reply_id, second.reply_id)
    told = [heard_of(played, started.reply_id) for started in (first, second, third)]
    assert " ".join(told).split() == "".join(STORY).split()
