"""Engines replaced under running sessions, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from pipeline.commands import AddItem, CreateResponse, SessionConfig, TurnDetection
from pipeline.conversation.memory import LastingConversation
from pipeline.engines.leases import Leases
from pipeline.engines.stages import Stages
from pipeline.errors import PromptTooLong
from pipeline.events import ReplyAudio, ReplyFinished, ReplyItemFinished, TranscriptReady
from pipeline.items import MessageItem, TextPart
from pipeline.messages import LlmRequest
from pipeline.work import Cancelled, Work
from reachy_voice.testing import (
    LevelVad,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    in_virtual_time,
    scene,
)

pytestmark = pytest.mark.quick


@in_virtual_time
async def test_new_leases_wait_while_they_are_closed() -> None:
    leases = Leases()
    first = await leases.take()
    leases.close()
    second = asyncio.create_task(leases.take())
    await asyncio.sleep(0)
    assert not second.done()
    nobody = asyncio.create_task(leases.none())
    await asyncio.sleep(0)
    assert not nobody.done()
    first()
    first()
    await nobody
    leases.open()
    (await second)()


@in_virtual_time
async def test_those_that_came_later_are_not_waited_for() -> None:
    leases = Leases()
    first = await leases.take()
    ended = asyncio.create_task(leases.ended())
    await asyncio.sleep(0)
    later = await leases.take()
    first()
    await ended
    later()


def words(llm: ScriptedLlm) -> ScriptedLlm:
    llm.deltas = ("One. ", "Two two two two two two. ", "Three.")
    return llm


@in_virtual_time
async def test_an_answer_ends_with_the_voice_that_it_began_with() -> None:
    old, new = ScriptedTts(), ScriptedTts(rate=24_000)
    async with scene(tts=old, llm=words(ScriptedLlm())) as played:
        await played.say(0.6)
        await played.hear(1.2)
        assert played.events(ReplyAudio)
        assert not played.events(ReplyFinished)
        played.stages.tts = new
        await asyncio.sleep(6)
        assert len(played.events(ReplyFinished)) == 1
        assert [*old.said] == ["One.", "Two two two two two two. Three."]
        await played.say(0.6)
        await asyncio.sleep(6)
        assert len(played.events(ReplyFinished)) == 2
        assert new.said == old.said
    assert all(event.rate == 16_000 for event in played.events(ReplyAudio))


@in_virtual_time
async def test_an_utterance_ends_with_the_recogniser_that_it_began_with() -> None:
    old, new = ScriptedStt(texts=["old"]), ScriptedStt(texts=["new"])
    async with scene(stt=old) as played:
        await played.say(0.3)
        played.stages.stt = new
        await played.say(0.3)
        await played.hear(1.5)
        await played.say(0.6)
        await played.hear(1.5)
    assert [event.text for event in played.events(TranscriptReady)] == ["old", "new"]


@in_virtual_time
async def test_a_conversation_goes_on_at_another_model() -> None:
    old, new = words(ScriptedLlm()), ScriptedLlm(deltas=("New.",))
    async with scene(llm=old) as played:
        await played.say(0.6)
        await played.hear(1.2)
        played.stages.llm = new
        await asyncio.sleep(6)
        await played.say(0.6)
        await asyncio.sleep(4)
        assert old.opened == 0
        assert new.opened == 1
        spoken = [message.content for message in new.prompts[-1]]
        assert any("Two two two" in text for text in spoken), "it knows what was said before"
    assert [event.status for event in played.events(ReplyFinished)] == ["completed"] * 2
    assert new.opened == 0


@in_virtual_time
async def test_a_turn_that_comes_while_engines_are_away_is_answered_when_they_are_back() -> None:
    new = ScriptedTts()
    async with scene() as played:
        played.stages.leases.close()
        await played.say(0.6)
        await asyncio.sleep(60)
        assert not played.events(TranscriptReady)
        assert not played.events(ReplyAudio)
        played.stages.tts = new
        played.stages.leases.open()
        await asyncio.sleep(4)
        assert len(played.events(TranscriptReady)) == 1
    assert [event.status for event in played.events(ReplyFinished)] == ["completed"]
    assert new.said


@in_virtual_time
async def test_a_session_listens_through_another_vad() -> None:
    new = LevelVad()
    async with scene() as played:
        await played.hear(0.2)
        played.stages.vad = new
        await played.say(0.6)
        await asyncio.sleep(3)
        assert len(played.events(TranscriptReady)) == 1


@in_virtual_time
async def test_a_notice_is_said_in_silence_and_is_in_no_prompt() -> None:
    llm, tts = ScriptedLlm(), ScriptedTts()
    async with scene(llm=llm, tts=tts) as played:
        assert played.session.notify("One moment.")
        await asyncio.sleep(3)
        (item,) = played.events(ReplyItemFinished)
        assert isinstance(item.item, MessageItem)
        assert item.item.text == "One moment."
        assert [event.status for event in played.events(ReplyFinished)] == ["completed"]
        await played.say(0.6)
        await asyncio.sleep(4)
        assert len(played.events(ReplyFinished)) == 2
    assert all("moment" not in message.content for p in llm.prompts for message in p)
    assert tts.said[0] == "One moment."


@in_virtual_time
async def test_a_notice_is_not_said_over_speech() -> None:
    async with scene() as played:
        assert not played.session.notify("")
        await played.say(0.6)
        assert not played.session.notify("One moment.")
        await played.hear(0.8)
        assert not played.session.notify("One moment.")
        await asyncio.sleep(4)
        assert played.session.notify("One moment.")


@pytest.mark.parametrize("detection", [None, TurnDetection(create_response=False)])
@in_virtual_time
async def test_a_notice_is_not_for_clients_that_ask_for_each_answer(
    detection: TurnDetection | None,
) -> None:
    async with scene(config=SessionConfig(instructions="", turn_detection=detection)) as played:
        assert not played.session.notify("One moment.")
        item = MessageItem("a", "user", (TextPart("Hi"),))
        await played.do(AddItem(item), CreateResponse())
        await asyncio.sleep(3)
        assert len(played.events(ReplyFinished)) == 1


@in_virtual_time
async def test_another_model_reads_the_conversation_before_it_is_asked() -> None:
    new = ScriptedLlm()
    async with scene() as played:
        await played.say(0.6)
        await asyncio.sleep(6)
        played.stages.llm = new
        played.session.model_exchanged()
        await asyncio.sleep(1)
        assert new.warmed
        assert not new.prompts
    played.session.model_exchanged()  # it has ended: nothing happens
    assert not played.session.notify("One moment.")


@in_virtual_time
async def test_a_slower_voice_is_not_judged_by_the_pace_of_the_one_before() -> None:
    old, new = ScriptedTts(seconds_per_word=0.2), ScriptedTts(seconds_per_word=0.7)
    async with scene(tts=old) as played:
        for voice in (old, new):
            played.stages.tts = voice
            await played.say(0.6)
            await asyncio.sleep(12)
        ramp = played.session._replies._ramp
        assert ramp.speech_s(28) > 2.0, "7 words, of which the faster voice said five a second"


@in_virtual_time
async def test_a_prompt_that_was_too_long_is_asked_for_without_a_lease() -> None:
    llm = ScriptedLlm(errors=[PromptTooLong(9000, 8192)])
    async with scene(llm=llm) as played:
        leases = played.stages.leases
        held: list[int] = []

        def forgets() -> bool:
            leases.close()
            loop = asyncio.get_running_loop()
            loop.call_later(1, lambda: held.append(len(leases._held)))
            loop.call_later(2, leases.open)
            return True

        played.session.chat.forget_oldest = forgets  # type: ignore[method-assign]
        await played.do(AddItem(MessageItem("a", "user", (TextPart("Hi"),))), CreateResponse())
        await asyncio.sleep(10)
        assert held == [0]
        assert [event.status for event in played.events(ReplyFinished)] == ["completed"]


@in_virtual_time
async def test_a_running_answer_keeps_its_model_open_until_it_ends() -> None:
    old, new = ScriptedLlm(per_token_s=1.0), ScriptedLlm()
    stages = Stages(*[None] * 3, old, None)  # type: ignore[arg-type]
    conversation = LastingConversation(stages)

    async def reply() -> list[object]:
        stream = conversation.reply(LlmRequest([]), Work())
        return [delta async for delta in stream]

    first = asyncio.create_task(reply())
    await asyncio.sleep(0.5)
    stages.llm = new
    await reply()
    assert (old.opened, new.opened) == (1, 1)
    assert await first
    assert (old.opened, new.opened) == (0, 1)
    conversation.close()
    assert new.opened == 0
    with pytest.raises(Cancelled):
        await reply()
