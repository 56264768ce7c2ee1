"""Engines replaced under running sessions, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pipeline.commands import CreateResponse, SessionConfig, TurnDetection
from pipeline.conversation.memory import LastingConversation
from pipeline.engines.leases import Leases
from pipeline.engines.stages import Stages
from pipeline.errors import PromptTooLong
from pipeline.events import ReplyAudio, ReplyItemFinished
from pipeline.messages import LlmRequest
from pipeline.work import Cancelled, Work
from reachy_voice.testing import (
    Act,
    LevelVad,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    in_virtual_time,
    play,
    say,
    silence,
    wait,
    write,
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
async def test_later_leases_are_not_waited_for() -> None:
    leases = Leases()
    first = await leases.take()
    ended = asyncio.create_task(leases.ended())
    await asyncio.sleep(0)
    later = await leases.take()
    first()
    await ended
    later()


def put(**engines: Any) -> Act:
    """Replace these engines of the scene."""

    def put(played: Scene) -> None:
        for kind, engine in engines.items():
            setattr(played.stages, kind, engine)

    return put


def in_the_middle(played: Scene) -> None:
    assert played.audio_s
    assert not played.statuses


def words() -> ScriptedLlm:
    return ScriptedLlm(("One. ", "Two two two two two two. ", "Three."))


def test_an_answer_keeps_its_voice_to_the_end() -> None:
    old, new = ScriptedTts(), ScriptedTts(rate=24_000)
    begun = (say(0.6), silence(1.2), in_the_middle)
    played = play(*begun, put(tts=new), wait(6), say(0.6), wait(6), tts=old, llm=words())
    assert len(played.statuses) == 2
    assert [*old.said] == new.said == ["One.", "Two two two two two two. Three."]
    assert all(event.rate == 16_000 for event in played.events(ReplyAudio))


def test_an_utterance_keeps_its_recogniser_to_the_end() -> None:
    old, new = ScriptedStt(texts=["old"]), ScriptedStt(texts=["new"])
    both = (say(0.3), put(stt=new), say(0.3), silence(1.5), say(0.6), silence(1.5))
    assert play(*both, stt=old).transcripts == ["old", "new"]


def test_a_conversation_continues_with_another_model() -> None:
    old, new, opened = words(), ScriptedLlm(deltas=("New.",)), list[int]()
    begun = (say(0.6), silence(1.2), put(llm=new), wait(6), say(0.6), wait(4))
    played = play(*begun, lambda _: opened.extend((old.opened, new.opened)), llm=old)
    assert opened == [0, 1]
    spoken = [message.content for message in new.prompts[-1]]
    assert any("Two two two" in text for text in spoken), "it knows what was said before"
    assert played.statuses == ["completed"] * 2
    assert new.opened == 0


def test_a_turn_without_engines_is_answered_when_they_return() -> None:
    new = ScriptedTts()

    def nothing_yet(played: Scene) -> None:
        assert not played.transcripts
        assert not played.audio_s

    away = (lambda played: played.stages.leases.close(), say(0.6), wait(60), nothing_yet)
    back = (put(tts=new), lambda played: played.stages.leases.open(), wait(4))
    played = play(*away, *back)
    assert len(played.transcripts) == 1
    assert played.statuses == ["completed"]
    assert new.said


def test_a_session_listens_through_another_vad() -> None:
    played = play(silence(0.2), put(vad=LevelVad()), say(0.6), wait(3))
    assert len(played.transcripts) == 1


def notify(said: bool, text: str = "One moment.") -> Act:
    """Give a notice; asserts whether it is accepted."""

    def ask(played: Scene) -> None:
        assert played.session.notify(text) == said

    return ask


def test_a_notice_is_said_in_silence_and_is_in_no_prompt() -> None:
    llm, tts = ScriptedLlm(), ScriptedTts()
    played = play(notify(True), wait(3), say(0.6), wait(4), llm=llm, tts=tts)
    assert played.chat[0] == ("assistant", "One moment.")
    assert len(played.events(ReplyItemFinished)) == 2
    assert played.statuses == ["completed"] * 2
    assert all("moment" not in text for prompt in played.prompts for _, text in prompt)
    assert tts.said[0] == "One moment."


def test_a_notice_is_not_said_over_speech() -> None:
    over = (say(0.6), notify(False), silence(0.8), notify(False), wait(4))
    play(notify(False, ""), *over, notify(True))


@pytest.mark.parametrize("detection", [None, TurnDetection(create_response=False)])
def test_clients_that_request_answers_get_no_notice(
    detection: TurnDetection | None,
) -> None:
    config = SessionConfig(instructions="", turn_detection=detection)
    played = play(notify(False), write("Hi"), CreateResponse(), wait(3), config=config)
    assert len(played.statuses) == 1


def test_another_model_reads_the_conversation_before_it_is_asked() -> None:
    new = ScriptedLlm()
    exchange = (put(llm=new), lambda played: played.session.model_exchanged())
    played = play(say(0.6), wait(6), *exchange, wait(1))
    assert new.warmed
    assert not new.prompts
    played.session.model_exchanged()  # it has ended: nothing happens
    assert not played.session.notify("One moment.")


def test_a_new_voice_is_not_judged_by_the_old_ones_pace() -> None:
    old, new = ScriptedTts(seconds_per_word=0.2), ScriptedTts(seconds_per_word=0.7)
    played = play(say(0.6), wait(12), put(tts=new), say(0.6), wait(12), tts=old)
    ramp = played.session._replies._ramp
    assert ramp.speech_s(28) > 2.0, "7 words, of which the faster voice said five a second"


def test_a_too_long_prompt_holds_no_lease_until_asked_again() -> None:
    held: list[int] = []

    def takes_leases_away(played: Scene) -> None:
        leases = played.stages.leases

        def forgets() -> bool:
            leases.close()
            played.loop.call_later(1, lambda: held.append(len(leases._leases)))
            played.loop.call_later(2, leases.open)
            return True

        played.session.chat.forget_oldest = forgets  # type: ignore[method-assign]

    llm = ScriptedLlm(errors=[PromptTooLong(9000, 8192)])
    played = play(takes_leases_away, write("Hi"), CreateResponse(), wait(10), llm=llm)
    assert held == [0]
    assert played.statuses == ["completed"]


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
