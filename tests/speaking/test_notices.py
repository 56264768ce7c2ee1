"""An engine fails: the user is told in one sentence, and the response still ends as failed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline import events
from pipeline.commands import CreateResponse, ResponseOptions, RetrieveItem, TruncateItem
from pipeline.errors import EngineError
from pipeline.items import AudioPart, MessageItem
from pipeline.messages import SpeechRequest
from pipeline.settings import SessionSettings
from pipeline.speaking.notices import KeptSentences, notice
from pipeline.speaking.playback import PlaybackClock
from pipeline.speaking.tuning import APOLOGY_KEPT_AFTER_S
from pipeline.turn_record import TurnRecord
from pipeline.work import Cancelled, Priority, Work
from reachy_voice.testing import (
    VOICE,
    Cast,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    in_virtual_time,
    play,
    run_virtual,
    say,
    scene,
    silence,
    wait,
    write,
)
from tests.support.moody_voice import MoodyTts
from tests.support.stories import hesitant
from tests.support.tables import SCENES, check, row
from tests.support.wired import wired

pytestmark = pytest.mark.quick

SORRY = "Sorry, please say that again."
SORRY_S = 5 * 0.3
APOLOGISING = SessionSettings(apology=SORRY)
BROKEN = EngineError("It broke")
HI = (write("Hi", "u"), CreateResponse())


def broken() -> ScriptedLlm:
    return ScriptedLlm(errors=[BROKEN])


def kept(tts: Any, sentence: str = SORRY) -> KeptSentences:
    """The voice, with the sentence synthesised in advance."""
    voice = KeptSentences(tts, {sentence: ""})
    run_virtual(voice.keep())
    return voice


# --- what is said ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    SCENES,
    [
        row(
            "a recogniser that fails",
            *(say(1.0), silence(5.0)),
            settings=APOLOGISING,
            stt=ScriptedStt(error=EngineError("no ears")),
            expect={"words": [SORRY], "ends": [("failed", "no ears")]},
        ),
        row(
            "a bug in a model",
            *(*HI, wait(5)),
            settings=APOLOGISING,
            llm=ScriptedLlm(errors=[ZeroDivisionError("bug")]),
            expect={"words": [SORRY], "statuses": ["failed"]},
        ),
        row(
            "a written answer",
            *(HI[0], CreateResponse(ResponseOptions(modality="text")), wait(5)),
            settings=APOLOGISING,
            llm=broken(),
            expect={"words": [], "statuses": ["failed"]},
        ),
        row(
            "an answer out of band",
            *(HI[0], CreateResponse(ResponseOptions(in_conversation=False)), wait(5)),
            settings=APOLOGISING,
            llm=broken(),
            expect={"words": [], "statuses": ["failed"]},
        ),
        row(
            "no apology in the settings",
            *(*HI, wait(5)),
            llm=broken(),
            expect={"words": [], "statuses": ["failed"]},
        ),
        row(
            "a model that stops",
            *(*HI, wait(5)),
            settings=APOLOGISING,
            llm=ScriptedLlm(errors=[Cancelled()]),
            expect={"words": [], "statuses": ["failed"]},
        ),
        row(
            "a voice that fails and kept nothing",
            *(*HI, wait(5)),
            settings=APOLOGISING,
            tts=ScriptedTts(error=BROKEN),
            expect={"audio_s": 0, "ends": [("failed", "It broke")]},
        ),
        row(
            "an answer in the words of a kept apology",
            *(*HI, wait(5)),
            llm=ScriptedLlm([SORRY]),
            tts=ScriptedTts(error=BROKEN),
            kept=kept(ScriptedTts()),
            expect={"audio_s": 0, "statuses": ["failed"]},
        ),
    ],
)
def test_an_apology_is_said_to_a_listener(acts, options, expect) -> None:  # type: ignore[no-untyped-def]
    check(acts, options, expect)


@in_virtual_time
async def test_after_a_failing_language_model_the_apology_is_said() -> None:
    llm = broken()
    async with scene(settings=APOLOGISING, llm=llm) as it:
        await it.act(*HI, wait(5))
        begin = ["ItemAdded", "ReplyStarted", "ReplyItemStarted"]
        end = ["ReplyItemFinished", "Timeline", "ReplyFinished"]
        assert it.names(events.ReplyText, events.ReplyAudio) == begin + end
        assert it.words == [SORRY]
        assert it.audio_s == pytest.approx(SORRY_S)
        assert it.ends == [("failed", "It broke")]
        (record,) = it.events(TurnRecord)
        assert (record.outcome, record.heard, record.sent_s) == ("failed", "", 0.0)
        assert record.first_audio_ms is None
        assert it.chat[-1] == ("assistant", SORRY), "the conversation has it"
        await it.act(CreateResponse(), wait(5))
    assert it.prompts[-1] == [("system", "Be brief."), ("user", "Hi")], "the model never reads it"
    assert all(SORRY not in m.content for prompt in llm.warmed for m in prompt)


def test_the_apology_is_sent_before_the_player_runs_dry() -> None:
    it = play(*HI, wait(5), settings=APOLOGISING, llm=broken())
    player, left_s = PlaybackClock(), []
    for at, event in it.log:
        if isinstance(event, events.ReplyAudio):
            left_s.append(player.plays_until - at)
            player.send(len(event.pcm) / event.rate, at)
    assert len(left_s) > 10
    assert min(left_s[1:]) > 0.01


def test_an_apology_in_mid_answer_is_a_separate_item() -> None:
    llm = ScriptedLlm(["Hello there, my friend. ", "And ", "so ", "on."])
    tts = ScriptedTts(errors=[None, BROKEN])
    it = play(*HI, wait(8), settings=APOLOGISING, llm=llm, tts=tts)
    (finished,) = it.events(events.ReplyFinished)
    assert finished.status == "failed"
    answer, sorry = finished.items
    assert isinstance(answer, MessageItem)
    assert isinstance(sorry, MessageItem)
    assert (answer.status, sorry.status) == ("incomplete", "completed")
    assert sorry.text == SORRY
    assert sorry.notice
    assert SORRY not in answer.text
    [part], [sorry_part] = answer.parts, sorry.parts
    assert isinstance(part, AudioPart)
    assert isinstance(sorry_part, AudioPart)
    assert sorry_part.seconds == pytest.approx(SORRY_S)
    assert part.seconds + sorry_part.seconds == pytest.approx(it.audio_s)


# --- what was kept -----------------------------------------------------------------------------


def test_a_failing_voice_says_the_kept_sentence() -> None:
    tts = ScriptedTts()
    voice = kept(tts)
    tts.error = BROKEN
    it = play(*HI, wait(5), settings=APOLOGISING, tts=tts, kept=voice)
    assert it.audio_s == pytest.approx(SORRY_S)
    assert SORRY in it.words
    assert it.ends == [("failed", "It broke")]


def test_a_stuck_voice_says_the_kept_sentence() -> None:
    tts = MoodyTts()
    voice = kept(tts)
    tts.moods = ["stuck"] * 9
    it = play(*HI, wait(30), settings=APOLOGISING, tts=tts, kept=voice)
    assert it.words[-1] == SORRY
    assert it.time_of(events.ReplyAudio) < 10.5 + APOLOGY_KEPT_AFTER_S
    assert tts.running == 0
    assert it.reply.status == "failed"


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


@pytest.mark.parametrize("sentences", [{"One moment.": "", SORRY: "en"}, {}])
@pytest.mark.parametrize(("rtf", "warns"), [(0.5, False), (2.5, True)])
def test_the_voices_speed_is_measured_at_the_start(
    rtf: float, warns: bool, sentences: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(ScriptedTts):
        async def synthesize(self, request: SpeechRequest, work: Work) -> Any:
            await asyncio.sleep(60.0)  # queued behind other work
            for _ in request.text:
                await asyncio.sleep(rtf)
                yield np.zeros(self.rate, np.int16)

    voice = KeptSentences(Slow(), sentences)
    run_virtual(voice.keep())
    assert voice.rtf == pytest.approx(rtf)
    assert ("slower than speech" in caplog.text) == warns


async def test_a_voice_without_a_rate_says_no_notice() -> None:
    class Lost(KeptSentences):
        @property
        def rate(self) -> int:
            raise BROKEN

    voice, work = Lost(ScriptedTts(), SORRY), Work(Priority.WARM_UP)
    assert len(await notice(SpeechRequest(SORRY), 16_000, voice, work)) == 0


def test_a_failed_speculative_reply_is_silent_until_its_gate_opens() -> None:
    tts, voice = ScriptedTts(error=BROKEN), kept(ScriptedTts())
    played = play(say(1.0), silence(16.0), tts=tts, kept=voice, **hesitant(APOLOGISING))
    assert played.time_of(events.ReplyStarted) == played.time_of(events.SpeechStopped) > 8.0
    assert len(played.prompts) == 2, "one of them behind the gate"
    assert played.words[-1] == SORRY
    assert played.statuses == ["failed"]


# --- an apology is an answer like others -------------------------------------------------------


@in_virtual_time
async def test_speech_over_the_apology_ends_it() -> None:
    async with scene(settings=APOLOGISING, llm=broken()) as it:
        await it.act(*HI, silence(0.6), say(0.5))
        assert max(it.times_of(events.ReplyAudio)) <= it.time_of(events.ReplyFinished)
        assert it.ends[0] == ("cancelled", "turn_detected")
        await it.act(silence(6.0))
    assert all(SORRY not in text for prompt in it.prompts for _, text in prompt)


def test_an_apology_can_be_truncated_and_retrieved() -> None:
    def cut(played: Scene) -> Any:
        said = played.session.chat.items[-1].id
        return played.do(TruncateItem(said, 0, 700), RetrieveItem(said))

    it = play(*HI, wait(5), cut, settings=APOLOGISING, llm=broken())
    assert not it.refusals
    assert it.events(events.ItemTruncated)[0].audio_end_ms == 700
    item = it.events(events.ItemRetrieved)[0].item
    assert isinstance(item, MessageItem)
    assert item.notice


@pytest.mark.parametrize("interrupted", [False, True])
@in_virtual_time
async def test_an_apology_conforms_to_the_protocol(interrupted: bool) -> None:
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


def test_an_apology_has_the_requested_voice() -> None:
    tts = ScriptedTts()
    engines: dict[str, Any] = {"llm": broken(), "tts": tts, "kept": kept(tts)}
    config = replace(VOICE, voice="ann", speed=1.2)
    it = play(*HI, wait(5), config=config, settings=APOLOGISING, **engines)
    asked = [(request.text, request.voice, request.speed) for request in tts.requests]
    assert asked == [(SORRY, "", 1.0), (SORRY, "ann", 1.2)]
    assert it.audio_s == pytest.approx(SORRY_S / 1.2, abs=0.001)
