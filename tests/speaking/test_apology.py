"""An engine fails: the user is told in one sentence, and the response still ends as failed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline.commands import AddItem, CreateResponse, ResponseOptions, RetrieveItem, TruncateItem
from pipeline.errors import EngineError
from pipeline.events import (
    ItemRetrieved,
    ItemTruncated,
    Refused,
    ReplyAudio,
    ReplyFinished,
    ReplyStarted,
    ReplyText,
)
from pipeline.items import AudioPart, MessageItem
from pipeline.messages import SpeechRequest
from pipeline.settings import SessionSettings
from pipeline.speaking.apology import KeptSentences, notice
from pipeline.speaking.playback import PlaybackClock
from pipeline.speaking.tuning import APOLOGY_KEPT_AFTER_S
from pipeline.turn_record import TurnRecord
from pipeline.work import Cancelled, Priority, Work
from reachy_voice.testing import (
    VOICE,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    in_virtual_time,
    run_virtual,
    scene,
    text_item,
)
from tests.support.gated import gated
from tests.support.moody_voice import MoodyTts, speechlike
from tests.support.wired import Cast, wired

pytestmark = pytest.mark.quick

SORRY = "Sorry, please say that again."
SORRY_S = 5 * 0.3
APOLOGISING = SessionSettings(apology=SORRY)
BROKEN = EngineError("It broke")


def audio_s(played: Scene) -> float:
    return sum(len(event.pcm) / event.rate for event in played.events(ReplyAudio))


def words(played: Scene) -> list[str]:
    return [event.text for event in played.events(ReplyText)]


@in_virtual_time
async def test_after_a_failing_language_model_the_apology_is_said() -> None:
    llm = ScriptedLlm(errors=[BROKEN])
    async with scene(config=VOICE, settings=APOLOGISING, llm=llm) as it:
        await it.do(AddItem(text_item("u", "Hi")), CreateResponse())
        await asyncio.sleep(5)
        assert it.names(ReplyText, ReplyAudio) == [
            "ItemAdded",
            "ReplyStarted",
            "ReplyItemStarted",
            "ReplyItemFinished",
            "Timeline",
            "ReplyFinished",
        ]
        assert words(it) == [SORRY]
        assert audio_s(it) == pytest.approx(SORRY_S)
        (finished,) = it.events(ReplyFinished)
        assert (finished.status, finished.error) == ("failed", "It broke")
        (record,) = it.events(TurnRecord)
        assert (record.outcome, record.heard, record.sent_s) == ("failed", "", 0.0)
        assert record.first_audio_ms is None
        # The conversation has it, and the model never reads it.
        said = it.session.chat.items[-1]
        assert isinstance(said, MessageItem)
        assert said.text == SORRY
        await it.do(CreateResponse())
        await asyncio.sleep(5)
    assert [m.content for m in llm.prompts[-1]] == ["Be brief.", "Hi"]
    assert all(SORRY not in m.content for prompt in llm.warmed for m in prompt)


@in_virtual_time
async def test_the_apology_is_sent_before_the_player_runs_dry() -> None:
    async with scene(config=VOICE, settings=APOLOGISING, llm=ScriptedLlm(errors=[BROKEN])) as it:
        await it.do(AddItem(text_item("u", "Hi")), CreateResponse())
        await asyncio.sleep(5)
    player, left_s = PlaybackClock(), []
    for at, event in it.log:
        if isinstance(event, ReplyAudio):
            left_s.append(player.plays_until - at)
            player.send(len(event.pcm) / event.rate, at)
    assert len(left_s) > 10
    assert min(left_s[1:]) > 0.01


@in_virtual_time
async def test_a_failure_in_the_middle_of_an_answer_gets_an_item_of_its_own() -> None:
    llm = ScriptedLlm(["Hello there, my friend. ", "And ", "so ", "on."])
    async with scene(
        config=VOICE,
        settings=APOLOGISING,
        llm=llm,
        tts=_fails_at(2),
    ) as it:
        await it.do(AddItem(text_item("u", "Hi")), CreateResponse())
        await asyncio.sleep(8)
    (finished,) = it.events(ReplyFinished)
    assert finished.status == "failed"
    answer, sorry = finished.items
    assert isinstance(answer, MessageItem)
    assert isinstance(sorry, MessageItem)
    assert (answer.status, sorry.status) == ("incomplete", "completed")
    assert sorry.text == SORRY
    assert sorry.notice
    assert SORRY not in answer.text
    [part] = answer.parts
    [sorry_part] = sorry.parts
    assert isinstance(part, AudioPart)
    assert isinstance(sorry_part, AudioPart)
    assert sorry_part.seconds == pytest.approx(SORRY_S)
    assert part.seconds + sorry_part.seconds == pytest.approx(audio_s(it))


def _fails_at(call: int) -> ScriptedTts:
    """A voice whose ``call``-th clause fails, and that speaks again then."""

    class Once(ScriptedTts):
        async def synthesize(self, request: SpeechRequest, work: Work) -> Any:
            self.error = BROKEN if len(self.said) + 1 == call else None
            async for pcm in super().synthesize(request, work):
                yield pcm

    return Once()


@in_virtual_time
async def test_after_a_failing_recogniser_the_apology_is_said() -> None:
    stt = ScriptedStt(error=EngineError("no ears"))
    async with scene(config=VOICE, settings=APOLOGISING, stt=stt) as it:
        await it.say(1.0)
        await it.hear(5.0)
    assert words(it) == [SORRY]
    (finished,) = it.events(ReplyFinished)
    assert (finished.status, finished.error) == ("failed", "no ears")


@pytest.mark.parametrize("kept", [True, False])
@in_virtual_time
async def test_a_voice_that_fails_says_the_sentence_that_was_kept(kept: bool) -> None:
    tts = ScriptedTts()
    voice = KeptSentences(tts, {SORRY: ""})
    if kept:
        await voice.keep()
    tts.error = BROKEN
    async with scene(
        config=VOICE,
        settings=APOLOGISING,
        tts=tts,
        kept=voice,
    ) as it:
        await it.do(AddItem(text_item("u", "Hi")), CreateResponse())
        await asyncio.sleep(5)
    assert audio_s(it) == pytest.approx(SORRY_S if kept else 0.0)
    assert (SORRY in words(it)) == kept
    (finished,) = it.events(ReplyFinished)
    assert (finished.status, finished.error) == ("failed", "It broke")


@in_virtual_time
async def test_an_answer_in_the_words_of_the_apology_is_not_the_apology() -> None:
    tts = ScriptedTts()
    kept = KeptSentences(tts, {SORRY: ""})
    await kept.keep()
    tts.error = BROKEN
    silent = SessionSettings(apology="")
    async with scene(
        config=VOICE, settings=silent, llm=ScriptedLlm([SORRY]), tts=tts, kept=kept
    ) as it:
        await it.do(AddItem(text_item("u", "Hi")), CreateResponse())
        await asyncio.sleep(5)
    assert audio_s(it) == 0.0
    assert it.events(ReplyFinished)[0].status == "failed"


@in_virtual_time
async def test_a_voice_that_is_stuck_says_what_was_kept() -> None:
    tts = MoodyTts()
    voice = KeptSentences(tts, {SORRY: ""})
    await voice.keep()
    tts.moods = ["stuck"] * 9
    async with scene(
        config=VOICE,
        settings=APOLOGISING,
        tts=tts,
        kept=voice,
    ) as it:
        await it.do(AddItem(text_item("u", "Hi")), CreateResponse())
        await asyncio.sleep(30)
    assert words(it)[-1] == SORRY
    assert it.time_of(ReplyAudio) < 10.5 + APOLOGY_KEPT_AFTER_S
    assert tts.running == 0
    assert it.events(ReplyFinished)[0].status == "failed"


@in_virtual_time
async def test_a_sentence_that_cannot_be_kept_is_tried_again() -> None:
    for error in (BROKEN, Cancelled()):
        tts = ScriptedTts(error=error)
        voice = KeptSentences(tts, {SORRY: ""})
        await voice.keep()
        with pytest.raises(type(error)):
            [pcm async for pcm in voice.synthesize(SpeechRequest(SORRY), Work())]
        tts.error = None
        await voice.keep()
        tts.error = BROKEN
        assert [pcm async for pcm in voice.synthesize(SpeechRequest(SORRY), Work())]
    silent = ScriptedTts()
    await KeptSentences(silent, {}).keep()
    assert silent.said == []


@pytest.mark.parametrize(("rtf", "warns"), [(0.5, False), (2.5, True)])
def test_the_voices_speed_is_measured_before_anybody_speaks(
    rtf: float, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(ScriptedTts):
        async def synthesize(self, request: SpeechRequest, work: Work) -> Any:
            await asyncio.sleep(60.0)  # its turn comes late
            for _ in request.text:
                await asyncio.sleep(rtf)
                yield np.zeros(self.rate, np.int16)

    voice = KeptSentences(Slow(), {"One moment.": "", SORRY: "en"})
    run_virtual(voice.keep())
    assert voice.rtf == pytest.approx(rtf)
    assert ("slower than speech" in caplog.text) == warns


@pytest.mark.parametrize(
    ("options", "settings", "error"),
    [
        (ResponseOptions(modality="text"), APOLOGISING, BROKEN),
        (ResponseOptions(in_conversation=False), APOLOGISING, BROKEN),
        (ResponseOptions(), SessionSettings(), BROKEN),
        (ResponseOptions(), APOLOGISING, Cancelled()),
    ],
)
@in_virtual_time
async def test_no_apology_without_a_listener(
    options: ResponseOptions, settings: SessionSettings, error: Exception
) -> None:
    llm = ScriptedLlm(errors=[error])
    async with scene(config=VOICE, settings=settings, llm=llm) as it:
        await it.do(AddItem(text_item("u", "Hi")), CreateResponse(options))
        await asyncio.sleep(5)
    assert words(it) == []
    assert it.events(ReplyFinished)[0].status == "failed"


async def test_a_voice_without_a_rate_says_no_notice() -> None:
    class Lost(KeptSentences):
        @property
        def rate(self) -> int:
            raise BROKEN

    voice, work = Lost(ScriptedTts(), SORRY), Work(Priority.WARM_UP)
    assert len(await notice(SpeechRequest(SORRY), 16_000, voice, work)) == 0


@in_virtual_time
async def test_after_a_bug_the_apology_is_said() -> None:
    llm = ScriptedLlm(errors=[ZeroDivisionError("bug")])
    async with scene(config=VOICE, settings=APOLOGISING, llm=llm) as it:
        await it.do(AddItem(text_item("u", "Hi")), CreateResponse())
        await asyncio.sleep(5)
    assert words(it) == [SORRY]
    assert it.events(ReplyFinished)[0].status == "failed"


@in_virtual_time
async def test_a_guess_that_fails_says_nothing_before_its_gate_opens() -> None:
    tts = ScriptedTts(error=BROKEN)
    voice = KeptSentences(ScriptedTts(), {SORRY: ""})
    await voice.keep()
    async with gated(tts, ["Hello."], apology=SORRY, kept=voice) as (reply, log):
        await asyncio.sleep(30)
        assert log == []
        assert reply.broken
        reply.confirm()
        await asyncio.sleep(5)
        assert isinstance(log[0], ReplyStarted)
        assert [e.text for e in log if isinstance(e, ReplyText)] == [SORRY]
        assert isinstance(log[-1], ReplyFinished)


@in_virtual_time
async def test_speech_over_the_apology_ends_it() -> None:
    llm = ScriptedLlm(errors=[BROKEN])
    async with scene(config=VOICE, settings=APOLOGISING, llm=llm) as it:
        await it.do(AddItem(text_item("u", "Hi")), CreateResponse())
        await it.hear(0.6)
        await it.say(0.5)
        ended_at = it.time_of(ReplyFinished)
        assert not [at for at, e in it.log if isinstance(e, ReplyAudio) and at > ended_at]
        finished = it.events(ReplyFinished)[0]
        assert (finished.status, finished.reason) == ("cancelled", "turn_detected")
        await it.hear(6.0)
    assert all(SORRY not in m.content for prompt in llm.prompts for m in prompt)


@in_virtual_time
async def test_a_client_can_do_with_it_what_it_can_do_with_any_item() -> None:
    llm = ScriptedLlm(errors=[BROKEN])
    async with scene(config=VOICE, settings=APOLOGISING, llm=llm) as it:
        await it.do(AddItem(text_item("u", "Hi")), CreateResponse())
        await asyncio.sleep(5)
        said = it.session.chat.items[-1].id
        await it.do(TruncateItem(said, 0, 700), RetrieveItem(said))
    assert not it.events(Refused)
    assert it.events(ItemTruncated)[0].audio_end_ms == 700
    item = it.events(ItemRetrieved)[0].item
    assert isinstance(item, MessageItem)
    assert item.notice


@pytest.mark.parametrize("interrupted", [False, True])
@in_virtual_time
async def test_it_is_whole_on_the_wire(interrupted: bool) -> None:
    """The conformance recorder checks order, ids and closing events."""
    cast = Cast(llm=ScriptedLlm(errors=[BROKEN] * 20))
    async with wired(cast, settings=APOLOGISING) as client:
        await client.say(1000)
        await client.hear(1000 if interrupted else 6000)
        if interrupted:
            await client.say(1000)
            await client.hear(8000)
        client.recorder.finish()
    messages = [json.loads(said.text) for said in client.log if said.by == "server"]
    done = [m["response"] for m in messages if m["type"] == "response.done"]
    assert done[0]["status"] == ("cancelled" if interrupted else "failed")
    [item] = done[0]["output"]
    assert item["content"][0]["transcript"] == SORRY
    assert "notice" not in item


@in_virtual_time
async def test_the_sentence_is_in_the_voice_that_is_asked_for() -> None:
    asked = []

    class Listening(MoodyTts):
        async def synthesize(self, request: SpeechRequest, work: Any) -> Any:
            asked.append((request.text, request.voice, request.speed))
            yield speechlike(1.0)

    tts = Listening()
    voice = KeptSentences(tts, {SORRY: ""})
    await voice.keep()
    config = replace(VOICE, voice="ann", speed=1.2)
    llm = ScriptedLlm(errors=[BROKEN])
    async with scene(
        config=config,
        settings=APOLOGISING,
        llm=llm,
        tts=tts,
        kept=voice,
    ) as it:
        await it.do(AddItem(text_item("u", "Hi")), CreateResponse())
        await asyncio.sleep(5)
    assert asked == [(SORRY, "", 1.0), (SORRY, "ann", 1.2)]
    heard = np.concatenate([event.pcm for event in it.events(ReplyAudio)])
    assert np.array_equal(heard, speechlike(1.0))
