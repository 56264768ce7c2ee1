"""aiortc calls to a real server over scripted engines."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import aioice.ice
import pytest

from app.webrtc.peer import Peer
from pipeline.items import MessageItem
from tests.clients.engines import NOON, STORY, TALE, TIME, WAIT, WEATHER, WEATHER_ARGUMENTS
from tests.support.caller import SESSION, calling, tone, tone_cast
from tests.support.protocol_client import text_item
from tests.support.scripted_server import Serve, Served, closed_with, refusal, talking
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.machine  # sound in real time

TOOLS = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]


async def test_a_question_is_heard_and_answered_aloud(served: Served) -> None:
    async with calling(served) as caller:
        caller.microphone.say(tone(TIME))
        await caller.until("output_audio_buffer.started")
        said = await caller.until("response.output_audio_transcript.done")
        assert said["transcript"] == NOON
        await caller.until("output_audio_buffer.stopped")
        assert 0.2 < len(caller.audible()) * 0.02 < 0.5
        assert "response.output_audio.delta" not in caller.types


async def test_a_tool_is_called_over_the_channel(served: Served) -> None:
    async with calling(served, session={**SESSION, "tools": TOOLS}) as caller:
        caller.microphone.say(tone(WEATHER))
        call = await caller.until("response.function_call_arguments.done")
        assert json.loads(call["arguments"]) == WEATHER_ARGUMENTS
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        caller.send("conversation.item.create", item=output)
        caller.send("response.create")
        await caller.hears()
        said = await caller.until("response.output_audio_transcript.done")
        assert said["transcript"] == "The tool says sunny."


async def test_speech_into_a_muted_microphone_is_not_answered(
    served: Served,
) -> None:
    async with calling(served) as caller:
        caller.microphone.muted = True
        caller.microphone.say(tone(STORY))
        await caller.microphone.silent.wait()
        caller.microphone.muted = False
        caller.microphone.say(tone(TIME))
        said = await caller.until("response.output_audio_transcript.done")
        assert said["transcript"] == NOON


@pytest.mark.parametrize("complete", [False, True])
async def test_the_client_clears_the_playback(served: Served, complete: bool) -> None:
    """The Agents SDK interrupts like this: a response ends with its speech, or only its speech if
    all was sent, which happens at once if speech does not interrupt."""
    detection = {"type": "server_vad", "interrupt_response": not complete}
    session = {**SESSION, "audio": {"input": {"turn_detection": detection}}}
    async with calling(served, session=session) as caller:
        caller.microphone.say(tone(STORY))
        await caller.hears()
        if complete:
            await caller.until("response.done")
        caller.send("output_audio_buffer.clear")
        await caller.until("output_audio_buffer.cleared")
        if complete:
            caller.send("input_audio_buffer.clear")
            await caller.until("input_audio_buffer.cleared")  # no error comes before it
        else:
            done = await caller.until("response.done")
            assert done["response"]["status_details"]["reason"] == "client_cancelled"


async def test_a_server_that_stops_first_plays_its_answer(serving: Serve) -> None:
    """It has sent all of it, and the track has hardly begun."""
    served = await serving(StagedAssistant(cast=tone_cast()), webrtc=True, drain_s=60)
    detection = {"type": "server_vad", "interrupt_response": False}
    session = {**SESSION, "audio": {"input": {"turn_detection": detection}}}
    async with calling(served, session=session) as caller:
        caller.microphone.say(tone(TIME))
        await caller.until("response.done")
        os.kill(os.getpid(), signal.SIGTERM)
        await caller.closed.wait()
        await served.task
    assert len(caller.audible()) * 0.02 > 0.2


async def test_push_to_talk_commits_the_tracks_audio(served: Served) -> None:
    heard = {"turn_detection": None, "transcription": {"model": "any"}}
    session = {**SESSION, "audio": {"input": heard}}
    async with calling(served, session=session) as caller:
        caller.send("input_audio_buffer.clear")
        await caller.until("input_audio_buffer.cleared")
        caller.microphone.say(tone(TIME))
        await caller.microphone.silent.wait()
        caller.send("input_audio_buffer.commit")
        done = await caller.until("conversation.item.input_audio_transcription.completed")
        assert done["transcript"] == TIME


async def test_a_control_socket_follows_and_steers_the_call(served: Served) -> None:
    async with calling(served) as caller:
        call_id = caller.location.rpartition("/")[2]
        async with talking(served, f"?call_id={call_id}") as control:
            await control.send("session.update", session={**SESSION, "instructions": "Sing."})
            for each in (control, caller):
                updated = await each.until("session.updated")
                assert updated["session"]["instructions"] == "Sing."
            assert (await served.post(f"{caller.location}/hangup")).status_code == 200
            await caller.closed.wait()
            with closed_with(1000):
                await control.until("nothing else")
    assert (await refusal(served, f"?call_id={call_id}")).status_code == 404
    assert (await served.post(f"{caller.location}/hangup")).status_code == 404


@pytest.mark.parametrize("noticed", [False, True])
async def test_a_conversation_is_resumed_after_the_network_was_lost(
    served: Served, monkeypatch: pytest.MonkeyPatch, noticed: bool
) -> None:
    """``noticed``: the server has found out before the client calls again. It has heard no sound
    then, by which it could tell, too."""
    monkeypatch.setattr("app.webrtc.peer.SILENCE_S", 0.1)
    if noticed:
        monkeypatch.setattr(aioice.ice, "CONSENT_INTERVAL", 0.01)
        monkeypatch.setattr(
            "tests.support.caller.Microphone.recv", lambda _: asyncio.Event().wait()
        )
    key = {"Authorization": "Bearer mine"}
    async with calling(served, headers=key) as caller:
        caller.send("conversation.item.create", item=text_item())
        added = await caller.until("conversation.item.done")
        caller.vanish()
        if noticed:
            await served.clients.empty()
        else:
            await asyncio.sleep(0.3)
            assert len(served.clients) == 1
        async with calling(served, headers=key) as again:
            again.send("conversation.item.retrieve", item_id=added["item"]["id"])
            assert (await again.until("conversation.item.retrieved"))["item"] == added["item"]


async def test_loss_and_jitter_lose_no_turn(served: Served) -> None:
    async with calling(served) as caller:
        caller.spoil(loss=0.05, jitter_s=0.05)
        for _ in range(3):
            caller.microphone.say(tone(TIME))
            await caller.until("output_audio_buffer.stopped")
        session = served.assistant.sessions[-1]
        heard = [each.text for each in session.chat.items if each.role == "user"]
        assert heard == [TIME] * 3


async def test_speech_before_the_track_stops_is_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the client is alive: it reports what it hears."""
    async with calling(served) as caller:
        caller.microphone.say(tone(TIME, 1.5))
        await caller.until("input_audio_buffer.speech_started")
        await caller.microphone.silent.wait()
        caller.mute()
        said = await caller.until("response.output_audio_transcript.done")
        assert said["transcript"] == NOON
        await caller.until("output_audio_buffer.stopped")
        monkeypatch.setattr(Peer, "_silent", True)
        (link,) = served.clients.open
        await link.cut_if_dead()
        assert not link.ended.is_set()


async def test_heard_audio_follows_the_clients_reports(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lag_s(peer: Peer) -> float:
        return 30.0

    monkeypatch.setattr(Peer, "player_lag_s", lag_s)
    async with calling(served) as caller:
        caller.microphone.say(tone(STORY))
        await caller.hears()
        caller.microphone.say(tone(WAIT, 0.8))
        await caller.until("output_audio_buffer.cleared")
        await caller.until("output_audio_buffer.started")
        items = served.assistant.sessions[-1].chat.items
        first = next(item for item in items if item.role == "assistant")
        assert (first.text, first.parts[0].seconds) == ("", 0.0)


async def test_an_interruption_silences_at_once_and_truncates_history(served: Served) -> None:
    async with calling(served) as caller:
        caller.microphone.say(tone(STORY))
        for _ in range(10):  # more than the player holds
            await caller.hears()
        caller.microphone.say(tone(WAIT, 0.8))
        cleared = await caller.until("output_audio_buffer.cleared")
        at = asyncio.get_running_loop().time()
        told = await caller.until("response.done")
        assert told["response"]["id"] == cleared["response_id"]
        assert told["response"]["status"] == "cancelled"
        await caller.until("output_audio_buffer.started")
        early = [when for when in caller.audible(at) if when < at + 0.4]
        assert len(early) <= 3, "60 ms"
        session = served.assistant.sessions[-1]
        (story, *_) = (
            each
            for each in session.chat.items
            if isinstance(each, MessageItem) and each.role == "assistant"
        )
        sent_s = story.parts[0].audio.seconds
        assert 0 < story.parts[0].seconds < sent_s + 0.001  # equal if the buffer drained meanwhile
        assert TALE.startswith(story.text)
        assert len(story.text) < len(TALE) / 4
