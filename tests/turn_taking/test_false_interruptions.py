"""Speech that cut an answer off before all its words were known, and should not have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipeline.commands import Configure, CreateResponse, TurnDetection
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
from pipeline.realtime.responses import ResponseEvents
from pipeline.settings import Endpointing
from pipeline.turn_record import TurnRecord
from reachy_voice.testing import VOICE, Act, Scene, ScriptedLlm, ScriptedStt, play, say, silence
from tests.support.overlap import HEARD_S, QUESTION, QUESTION_S, STORY, over, story

pytestmark = pytest.mark.quick

FIRST_LOOKS = ("What is", "What is")
"""If two looks find the beginning of a question, it cuts the answer off."""
TOLD = "".join(STORY).split()


def interrupted(final: str, *then: Act, **options: Any) -> Scene:
    """``then``: what the client does while the words are unknown."""
    return over(say(0.42), *then, silence(12.0), texts=(*FIRST_LOOKS, final), **options)


def spoken(finished: ReplyFinished) -> str:
    return "".join(item.text for item in finished.items if isinstance(item, MessageItem))


def heard_of(played: Scene, started: ReplyStarted) -> str:
    """The part of a reply that the conversation keeps."""
    records = played.events(TurnRecord)
    return next(record.heard for record in records if record.reply_id == started.reply_id)


@pytest.mark.parametrize(
    ("final", "then", "modality"),
    [
        pytest.param("Mm-hmm.", (), "audio", id="aloud"),
        pytest.param("No, go on.", (), "audio", id="if asked for"),
        pytest.param(
            *("Mm-hmm.", (Configure(replace(VOICE, modality="text")),), "text"),
            id="in writing, if asked for",
        ),
    ],
)
def test_the_answer_goes_on_where_it_was_if_the_final_words_are_a_listeners(
    final: str, then: tuple[Act, ...], modality: str
) -> None:
    played = interrupted(final, *then)
    assert played.ends == [("cancelled", "turn_detected"), ("completed", None)]
    cut, rest = played.events(ReplyStarted)
    whole = f"{heard_of(played, cut)} {spoken(played.events(ReplyFinished)[1])}"
    assert whole.split() == TOLD, "no word is lost, none is said twice"
    assert (cut.continues, rest.continues, rest.modality) == ("", cut.reply_id, modality)
    voiced = {event.reply_id for event in played.events(ReplyAudio)}
    assert (rest.reply_id in voiced) == (modality == "audio")
    assert len(played.prompts) == 1, "the language model is not asked again"
    assert [record.origin for record in played.events(TurnRecord)] == ["voice", "rest"]
    assert len(played.events(InputCommitted)) == 2, "the listener's words stay in the conversation"
    sent: dict[str, Any] = {}
    ResponseEvents(rest, "conv", "joe", lambda kind, /, **fields: sent.update(fields), {})
    assert sent["response"]["metadata"] == {"reachy_voice.continues": cut.reply_id}
    judged = played.events(TurnJudged)[-1]
    assert judged.wait_ms == Endpointing().clear_wait_ms, "the shortest wait"
    assert judged.reasons[-1] == "false interruption"


def test_a_noise_without_words_is_rejected_and_the_answer_goes_on() -> None:
    played = interrupted("")
    assert played.events(SpeechRejected)
    assert played.statuses == ["cancelled", "completed"]


@pytest.mark.parametrize("final", ["What is the time?", "Stop."])
def test_speech_that_meant_it_is_answered(final: str) -> None:
    played = interrupted(final)
    assert [started.continues for started in played.events(ReplyStarted)] == ["", ""]
    assert played.prompts[-1][-1][1] == final


@pytest.mark.parametrize("heard_s", [1.6, 2.2, 3.0])
@pytest.mark.parametrize("final", ["Mm-hmm.", ""])
def test_the_model_reads_all_of_an_answer_that_went_on(final: str, heard_s: float) -> None:
    texts = (*FIRST_LOOKS, final, "Who was it?")
    acts = (say(0.42), silence(12.0), say(1.0), silence(1.0))
    played = over(*acts, texts=texts, heard_s=heard_s)
    answers = [text for role, text in played.prompts[-1] if role == "assistant"]
    assert " ".join(answers).replace(f"{CUT_OFF} ", " ").split() == TOLD
    assert len(answers) == (2 if final else 1)


def test_nothing_is_resumed_for_a_client_that_creates_the_answers() -> None:
    config = replace(VOICE, turn_detection=TurnDetection(create_response=False))
    stt = ScriptedStt((QUESTION, *FIRST_LOOKS, "Mm-hmm."))
    ask = (say(QUESTION_S), silence(1.0), CreateResponse())
    acts = (*ask, silence(3.0), say(0.42), silence(6.0))
    played = play(*acts, config=config, stt=stt, llm=story())
    assert len(played.events(InputCommitted)) == 2
    assert played.statuses == ["cancelled"]


def test_an_answer_talked_over_by_a_noise_is_given_again_if_no_rest_is_known() -> None:
    words = tuple(f"{word} " for word in ("once upon a time there was a robot " * 2).split())
    played = interrupted("", llm=ScriptedLlm(deltas=words, per_token_s=0.3), heard_s=3.8)
    assert played.ends == [("cancelled", "turn_detected"), ("completed", None)]
    assert played.prompts[1] == played.prompts[0]
    assert [record.origin for record in played.events(TurnRecord)][-1] == "again"


def test_an_answer_of_which_next_to_nothing_was_heard_is_given_again_whole() -> None:
    played = interrupted("Mm-hmm.", heard_s=1.2)
    assert len(heard_of(played, played.events(ReplyStarted)[0])) < len("once upon a time")
    assert spoken(played.events(ReplyFinished)[1]).split() == TOLD


def test_of_an_unfinished_answer_the_rest_ends_with_a_whole_sentence() -> None:
    text = "".join(f"This is sentence number {n} of a very long answer. " for n in range(60))
    words = tuple(f"{word} " for word in text.split())
    played = interrupted("Mm-hmm.", llm=ScriptedLlm(deltas=words, per_token_s=0.15))
    rest = played.events(ReplyFinished)[-1]
    assert rest.status == "completed"
    assert spoken(rest).rstrip().endswith("answer.")


async def second_reply(played: Scene) -> None:
    while len(played.events(ReplyStarted)) < 2:
        await played.hear(0.02)


@pytest.mark.parametrize("final", ["Mm-hmm.", ""])
@pytest.mark.parametrize("after_s", [0.1, 0.5, 1.0])
def test_a_rest_of_which_little_was_heard_is_still_the_rest(after_s: float, final: str) -> None:
    acts = (say(0.42), second_reply, silence(after_s), say(0.42), silence(12.0))
    played = over(*acts, texts=(*FIRST_LOOKS, "Mm-hmm.", final), heard_s=HEARD_S)
    assert len(played.prompts) == 1, "the language model is not asked again"
    told = " ".join(text for role, text in played.chat if role == "assistant")
    assert told.split() == TOLD
    continued = [bool(started.continues) for started in played.events(ReplyStarted)]
    assert continued == [False, True, True]


def test_a_second_false_interruption_is_taken_back() -> None:
    looks = (*FIRST_LOOKS, "Mm-hmm.") * 2
    played = over(say(0.42), silence(4.0), say(0.42), silence(12.0), texts=looks)
    first, second, third = played.events(ReplyStarted)
    assert (second.continues, third.continues) == (first.reply_id, second.reply_id)
    told = [heard_of(played, started) for started in (first, second, third)]
    assert " ".join(told).split() == TOLD
