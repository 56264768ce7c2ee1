"""Speech over an answer, where something changes before it is known whether it interrupts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipeline.audio import LISTEN_RATE
from pipeline.commands import (
    CancelResponse,
    Configure,
    CreateResponse,
    ResponseOptions,
    TurnDetection,
)
from pipeline.engines.contract import ToolCall
from pipeline.events import (
    ReplyFinished,
    ReplyHeld,
    ReplyWentOn,
    SpeechIgnored,
    SpeechStarted,
    SpeechStopped,
    TranscriptPartial,
    TranscriptReady,
)
from pipeline.items import MessageItem, TextPart
from pipeline.settings import Filler, SessionSettings
from reachy_voice.testing import (
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
    in_virtual_time,
    scene,
)
from tests.turn_taking.test_overlaps import (
    QUESTION_S,
    VOICE,
    audio,
    first_answer,
    over_the_answer,
    sent_s,
    story,
)

pytestmark = pytest.mark.quick

QUESTION = "Tell me a story."
HEARD = replace(VOICE, turn_detection=TurnDetection())
DEAF = replace(VOICE, turn_detection=TurnDetection(interrupt_response=False))


@in_virtual_time
async def test_an_answer_that_may_not_be_interrupted_any_more_goes_on() -> None:
    stt = ScriptedStt(texts=(QUESTION, "What about tea?"))
    async with scene(stt=stt, llm=story(), config=HEARD) as played:
        await played.say(QUESTION_S)
        await played.hear(3.0)
        await played.say(0.16)
        await played.do(Configure(DEAF))
        await played.say(0.6)
        await played.hear(25.0)
    statuses = [event.status for event in played.events(ReplyFinished)]
    # What was said meanwhile is answered after it.
    assert statuses == ["completed", "completed"]
    assert played.events(TranscriptReady)[-1].text == "What about tea?"


@pytest.mark.parametrize(
    ("said", "statuses"), [("Mm-hmm.", ["completed"]), ("What about tea?", ["cancelled"])]
)
@in_virtual_time
async def test_an_answer_to_given_input_can_be_interrupted(
    said: str, statuses: Sequence[str]
) -> None:
    asked = MessageItem("x", "user", (TextPart("Tell me a story."),))
    async with scene(stt=ScriptedStt(texts=(said,)), llm=story(), config=HEARD) as played:
        await played.do(CreateResponse(options=ResponseOptions(input=(asked,))))
        await played.hear(3.0)
        await played.say(0.6)
        await played.hear(8.0)
    assert [event.status for event in played.events(ReplyFinished)][:1] == statuses
    if said == "Mm-hmm.":
        assert sent_s(played) == pytest.approx(9.0)
        assert not played.events(SpeechStarted)


@in_virtual_time
async def test_words_recognised_while_weighed_are_published_with_the_rest() -> None:
    words = ["what", "about", "some", "tea", "please", "now", "or", "later", "my", "friend"]
    growing = tuple(" ".join(words[: n // 4 + 1]) for n in range(60))
    stt = ScriptedStt(texts=(QUESTION, " ".join(words)))
    config = replace(VOICE, partials=True)
    async with scene(stt=stt, llm=story(), config=config) as played:
        await played.say(QUESTION_S)
        await played.hear(3.0)
        stt.partials = growing
        await played.say(1.2)
        await played.hear(2.0)
    item_id = played.events(SpeechStarted)[1].item_id
    told = [event.text for event in played.events(TranscriptPartial) if event.item_id == item_id]
    assert " ".join(words).startswith("".join(told))
    assert len(told) > 3


@in_virtual_time
async def test_a_recogniser_that_hangs_does_not_hold_everything_up() -> None:
    stt = ScriptedStt(texts=(QUESTION, "Stop it now, please."))
    async with scene(stt=stt, llm=story(), config=HEARD) as played:
        await played.say(QUESTION_S)
        await played.hear(3.0)
        stt.takes_s = 10.0
        await played.say(2.0)
        await played.hear(12.0)
    assert first_answer(played).reason == "turn_detected"
    ended_at = next(at for at, event in played.log if isinstance(event, ReplyFinished))
    assert ended_at - (QUESTION_S + 3.0) < 1.3
    assert played.events(TranscriptReady)[-1].text == "Stop it now, please."
    assert audio(played)


@in_virtual_time
async def test_fillers_take_turns_with_tool_calls() -> None:
    filler = Filler(after_ms=1000, sentences=("One.", "Two."))
    llm = ScriptedLlm(deltas=(ToolCall("look", "{}"),), first_s=2.0)
    tts = ScriptedTts()
    async with scene(llm=llm, tts=tts, settings=SessionSettings(filler=filler)) as played:
        for _ in range(3):
            await played.do(CreateResponse())
            await played.hear(6.0)
    assert tts.said == ["One.", "Two.", "One."]


class GrowingStt(ScriptedStt):
    """Hears more of it after a second."""

    def text(self) -> str:
        if len(self.finished) == 1:
            return QUESTION
        longer = len(self.finished[-1]) > 1.2 * LISTEN_RATE
        return "Mm-hmm. What about tea?" if longer else "Mm-hmm."


@in_virtual_time
async def test_speech_that_goes_on_after_a_backchannel_holds_the_answer_at_once() -> None:
    unsure = ScriptedTurn(probability=0.02)
    begun = scene(stt=GrowingStt(), turn=unsure, llm=story(), config=HEARD)
    async with begun as played:
        await played.say(QUESTION_S)
        await played.hear(3.0)
        await played.say(0.36)
        await played.hear(0.3)
        await played.say(1.2)
        await played.hear(2.0)
    resumed_s = QUESTION_S + 3.0 + 0.36 + 0.3
    ended_at = played.time_of(ReplyFinished)
    sent = [at for at, _ in audio(played) if resumed_s - 0.3 < at < ended_at]
    assert sent  # in the pause it went on
    assert max(sent) < resumed_s + 0.1
    assert resumed_s + 0.3 < ended_at < resumed_s + 0.9
    assert played.events(TranscriptReady)[-1].text == "Mm-hmm. What about tea?"


@in_virtual_time
async def test_what_is_said_while_the_client_ends_the_answer_is_a_turn() -> None:
    stt = ScriptedStt(texts=(QUESTION, "okay"))
    async with scene(stt=stt, llm=story(), config=VOICE) as played:
        await played.say(QUESTION_S)
        await played.hear(3.0)
        await played.say(0.3)
        await played.do(CancelResponse())
        await played.hear(2.5)
    assert [event.text for event in played.events(TranscriptReady)] == [QUESTION, "okay"]
    assert not played.events(SpeechIgnored)


@in_virtual_time
async def test_speech_still_weighed_is_published_before_the_next() -> None:
    """The recogniser is slow: the first words are not read yet when others interrupt."""
    stt = ScriptedStt(texts=(QUESTION, "what about tea"))
    async with scene(stt=stt, llm=story(), config=VOICE) as played:
        await played.say(QUESTION_S)
        await played.hear(3.0)
        stt.takes_s = 4.0
        await played.say(0.2)
        await played.hear(2.7)
        await played.say(1.5)
        await played.hear(9.0)
    spoken = [
        (type(event).__name__, event.item_id)
        for _, event in played.log
        if isinstance(event, SpeechStarted | SpeechStopped)
    ]
    ids = list(dict.fromkeys(item_id for _, item_id in spoken))
    assert len(ids) == 3
    kinds = ("SpeechStarted", "SpeechStopped")
    assert spoken == [(kind, item_id) for item_id in ids for kind in kinds]


@in_virtual_time
async def test_noise_releases_no_answer_that_ended_speech_still_holds() -> None:
    stt = ScriptedStt(texts=("Tell me a story.", "Stop."), takes_s=0.06)
    async with scene(stt=stt, llm=story()) as played:
        await over_the_answer(played, 0.1)
        stt.takes_s = 4.0  # longer than any pause
        await played.hear(3.0)
        assert len(played.events(ReplyHeld)) == 1
        await played.say(0.02)
        await played.hear(0.3)
        assert not played.events(ReplyWentOn)
        await played.hear(4.0)
    assert first_answer(played).status == "cancelled"
    assert not played.events(ReplyWentOn)
