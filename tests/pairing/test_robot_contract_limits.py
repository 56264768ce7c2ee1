"""The robot's contract, rows 15 to 27: limits, tools and speech, pacing, reconnecting, capacity.

See ``test_robot_contract.py``.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from pipeline.audio import Pcm
from pipeline.engines.contract import Delta, ToolCall
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.messages import Message, SpeechRequest
from pipeline.settings import Wake
from pipeline.work import CancelToken
from pipeline.workers.placements import worker_for
from pipeline.workers.stages import tts_stage
from reachy_voice.testing import ScriptedStt
from tests.clients.engines import (
    NOON,
    SAY_STORY,
    SAY_TIME,
    SAY_WAIT,
    TIME,
    WAIT,
    brain_llm,
    calling,
    heard_phrase,
    noise_tts,
    phrase_cast,
    silence,
    think,
    tone,
    words,
)
from tests.clients.robot_app import (
    CALLED,
    COMPLETED,
    DELTA,
    HF_VOICES,
    STARTED,
    RobotApp,
    RobotTool,
    camera_item,
    jpeg,
    lose_connection,
    robot_app,
)
from tests.clients.serving import Served, scripted_server
from tests.support.robot_tools import robot_tools
from tests.support.toy_engine import running

pytestmark = pytest.mark.machine

CAMERA = RobotTool("camera", run=lambda arguments: {"image_attached": True})
DANCE = RobotTool("dance", needs_response=False)
PICTURE_BYTES = 900_000
PLAYED_OUT = silence(0.5)
"""Long enough for a sent answer to be heard too."""


async def test_row_15_a_large_picture_comes_in_and_never_goes_out() -> None:
    look = ToolCall("camera", json.dumps({"question": "What is this?"}))
    async with (
        scripted_server(calling([look], words("I see it."))) as served,
        robot_app(served.url, tools=[CAMERA], image=jpeg(PICTURE_BYTES)) as robot,
    ):
        robot.hears(SAY_TIME)
        await robot.event("response.done", 2)
        picture = [event for event in robot.all("conversation.item.added") if has_picture(event)]
        assert len(picture) == 1
        items = robot.count("conversation.item.done")
        await robot.add(camera_item(jpeg(13 * 2**20)))  # 17 MiB as base64
        await robot.until(
            lambda: bool(robot.errors) or robot.count("conversation.item.done") > items
        )
        await robot.say("What time is it?")
        await robot.event("response.done", 3)
    assert served.wires[0].longest_frame_out < 100_000
    served.conformed()


def has_picture(event: dict[str, Any]) -> bool:
    return any(part["type"] == "input_image" for part in event["item"].get("content", ()))


class BlockingTts:
    """Speaks only when released; until then its thread is stuck in native code."""

    rate = 16_000
    voices = ("joe",)
    languages = ()

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let = threading.Event()

    def synthesize(self, request: SpeechRequest, cancel: CancelToken) -> Iterator[Pcm | None]:
        self.entered.set()
        self.let.wait()
        yield tone(1000, 0.1)


async def test_row_16_pings_are_answered_while_engines_work() -> None:
    engine = BlockingTts()
    spec = EngineSpec("blocking", Kind.TTS, EngineOptions, lambda options, weights: engine)
    worker = worker_for(spec, EngineOptions(engine="blocking"), None)
    async with running(worker), scripted_server(phrase_cast(tts=tts_stage(worker))) as served:
        async with robot_app(served.url, greeting="What time is it?") as robot:
            try:
                assert await asyncio.to_thread(engine.entered.wait, 20)
                for _ in range(3):
                    await (await ping(robot))
                assert robot.count("response.done") == 0
            finally:
                engine.let.set()
            await robot.event("response.done")
        served.conformed()


async def ping(robot: RobotApp) -> asyncio.Future[float]:
    socket: Any = robot.connection._connection
    pong: asyncio.Future[float] = await socket.ping()
    return pong


async def test_row_17_no_client_is_admitted_before_the_models_are_warm(served: Served) -> None:
    served.assistant.reasons["llm"] = "loading"
    with pytest.raises(InvalidStatus) as refused:
        await connect(served.url)
    assert refused.value.response.status_code == 503
    served.assistant.reasons["llm"] = None
    async with robot_app(served.url, greeting="What time is it?") as robot:
        await robot.event("response.done")
    assert robot.errors == []


async def test_row_18_every_voice_of_the_app_is_taken(served: Served) -> None:
    async with robot_app(served.url) as robot:
        for number, voice in enumerate((*HF_VOICES, "nobody-has-this-voice"), start=2):
            await robot.change_voice(voice)
            await robot.event("session.updated", number)
        await robot.say("What time is it?")
        await robot.event("response.done")
    assert robot.errors == []
    (spoken,) = (request.voice for request in served.cast.tts.requests)
    assert spoken in served.cast.tts.voices
    shown = [e["session"]["audio"]["output"]["voice"] for e in robot.all("session.updated")]
    assert shown[1:-1] == list(HF_VOICES)


async def test_the_app_knows_nothing_of_a_server_that_sleeps() -> None:
    """A story is told in the room; then the robot is called, and asked in the same breath."""
    cast = phrase_cast()
    cast.stt = ScriptedStt(
        hears=lambda pcm: heard_phrase(pcm).replace(TIME, f"Hey Reachy, {TIME}"), takes_s=0.01
    )
    wake = Wake(mode="word", engine="phrase", follow_up_s=1)
    async with scripted_server(cast, wake=wake) as served, robot_app(served.url) as robot:
        await robot.event("session.updated")
        before = len(robot.events)
        robot.hears(np.concatenate((SAY_STORY, silence(1.0))))
        await asyncio.sleep(2.5)
        assert len(cast.stt.finished) == 1
        assert len(robot.events) == before, "nothing is sent of what is heard asleep"
        robot.hears(np.concatenate((silence(1.5), SAY_TIME)))
        await robot.event("response.done")
        assert robot.all(COMPLETED)[0]["transcript"] == f"Hey Reachy, {TIME}"
        said = robot.all("response.output_audio_transcript.done")
        assert [each["transcript"] for each in said] == [NOON]
        assert robot.errors == []
    served.conformed()


async def test_row_19_it_speaks_and_dances_in_one_response() -> None:
    answer = [*words("Watch me dance."), ToolCall("dance", "{}")]
    async with (
        scripted_server(calling(answer)) as served,
        robot_app(served.url, tools=[DANCE]) as robot,
    ):
        robot.hears(SAY_TIME)
        done = await robot.event("response.done")
        await robot.until(lambda: robot.count("conversation.item.done") >= 4)
        robot.hears(SAY_WAIT)
        await robot.event("response.done", 2)
    message, call = done["response"]["output"]
    assert (message["type"], call["type"]) == ("message", "function_call")
    assert message["content"][0]["transcript"] == "Watch me dance."
    assert robot.player.pcm_bytes >= round(0.3 * 16_000) * 2
    assert [robot.events[robot_at(robot, kind)]["output_index"] for kind in (DELTA, CALLED)] == [
        0,
        1,
    ]
    sent = [event["type"] for event in served.wires[0].received]
    assert "response.create" not in sent, "the app asks for no response to a dance"
    served.conformed()


def robot_at(robot: RobotApp, kind: str) -> int:
    return next(at for at, event in enumerate(robot.events) if event["type"] == kind)


async def test_row_20_the_microphone_never_stops(served: Served) -> None:
    """It streams in bursts while the robot speaks, with a quiet echo."""
    echo = np.random.default_rng(0).normal(0, 200, 12_000).astype(np.int16)
    async with robot_app(served.url) as robot:
        robot.hears(SAY_TIME)
        await robot.event(DELTA)
        robot.hears(echo)
        await robot.event("response.done")
        frames = served.wires[0].frames_in
        for _ in range(200):
            await robot.connection.input_audio_buffer.append(audio="AAAA" * 106 + "AAA=")
        robot.hears(SAY_WAIT)
        await robot.event("response.done", 2)
    assert robot.errors == []
    assert served.wires[0].frames_in >= frames + 200
    assert [e["response"]["status"] for e in robot.all("response.done")] == ["completed"] * 2
    assert robot.count(STARTED) == 2


async def test_row_22_audio_comes_at_the_pace_of_speech() -> None:
    slow = phrase_cast(tts=noise_tts(seconds_per_word=0.5))
    async with scripted_server(slow) as served, robot_app(served.url) as robot:
        robot.hears(SAY_TIME)
        await robot.event("response.done")
        queued_s = robot.player.queued_s
    deltas = [at for at, e in zip(robot.arrived, robot.events, strict=True) if e["type"] == DELTA]
    assert robot.player.pcm_bytes == 3 * round(0.5 * 16_000) * 2
    assert deltas[-1] - deltas[0] > 0.8, "1.5 s of speech, less the lead"
    assert queued_s < 0.5
    served.conformed()


async def test_row_23_a_robot_that_comes_back_goes_on(served: Served) -> None:
    async with robot_app(served.url, tools=[DANCE], greeting="What time is it?") as robot:
        await robot.event("response.done")
        await lose_connection(robot)
    async with robot_app(served.url, tools=[DANCE]) as robot:
        robot.hears(SAY_WAIT)
        await robot.event("response.done")
    contents = [message.content for message in served.cast.llm.prompts[-1]]
    assert contents[-3:] == ["What time is it?", NOON, WAIT]
    async with robot_app(served.url, greeting="And now?") as robot:
        await robot.event("response.done")
    assert NOON not in [message.content for message in served.cast.llm.prompts[-1]]


async def test_row_24_an_error_closes_nothing(served: Served) -> None:
    async with robot_app(served.url) as robot:
        socket: Any = robot.connection._connection
        for bad in (
            "no JSON",
            '{"type": "nonsense"}',
            '{"type": "input_audio_buffer.append", "audio": "%%%"}',
            '{"type": "conversation.item.delete", "item_id": "item_unknown"}',
            '{"type": "response.cancel"}',
        ):
            before = len(robot.errors)
            await socket.send(bad)
            await robot.until(lambda before=before: len(robot.errors) > before)  # type: ignore[misc]
        robot.hears(SAY_TIME)
        await robot.event("response.done")
    assert len(robot.errors) == 5
    assert all(" " in event["error"]["message"] for event in robot.all("error"))


async def test_row_25_a_full_house_is_said_and_a_dead_robot_leaves_at_once() -> None:
    async with scripted_server(max_sessions=1) as served:
        async with robot_app(served.url) as robot:
            await robot.event("session.updated")
            async with connect(served.url) as late:
                said = [json.loads(text) async for text in closing(late)]
            assert [event["error"]["code"] for event in said] == ["session_limit_reached"]
            assert late.close_code == 1008
            await lose_connection(robot)
        assert await any_try_succeeds(served)
        served.conformed()


async def any_try_succeeds(served: Served) -> bool:
    """The app tries three times, a second apart; here the network takes no time."""
    for delay_s in (0.0, 0.05, 0.2):
        await asyncio.sleep(delay_s)
        async with robot_app(served.url, greeting="What time is it?") as robot:
            await robot.until(lambda: bool(robot.errors) or robot.count("response.done") > 0)
            if not robot.errors:
                return True
    return False


async def closing(socket: Any) -> AsyncIterator[str]:
    try:
        while True:
            yield await socket.recv()
    except ConnectionClosed:
        return


async def test_row_26_the_prefix_is_read_before_the_first_question() -> None:
    ahead: list[list[list[Message]]] = []

    def brain(*asked: Any) -> Sequence[Delta]:
        ahead.append(list(llm.warmed))
        return think(*asked)

    llm = brain_llm(brain)
    tools = [RobotTool(tool.name, parameters=tool.parameters) for tool in robot_tools()]
    assert len(tools) == 17
    async with (
        scripted_server(phrase_cast(llm)) as served,
        robot_app(served.url, tools=tools, instructions="Be a robot. " * 160) as robot,
    ):
        await robot.event("session.updated")
        robot.hears(SAY_TIME)
        await robot.event("response.done")
        await robot.update({"instructions": "Be a pirate. " * 160})
        await robot.event("session.updated", 2)
        robot.hears(np.concatenate((PLAYED_OUT, SAY_WAIT)))
        await robot.event("response.done", 2)
    answers = zip(("Be a robot.", "Be a pirate."), ahead, llm.prompts, llm.offered, strict=True)
    for role, warmed, prompt, (offered, _) in answers:
        read = next(messages for messages in warmed if messages[0].content.startswith(role))
        assert prompt[: len(read)] == read, "a prefix of it"
        assert [tool.name for tool in offered] == [tool.name for tool in tools]
    served.conformed()


async def test_row_27_events_that_it_does_not_know_are_ignored(served: Served) -> None:
    timings = {"timings": "true"}
    async with robot_app(served.url, greeting="What time is it?", query=timings) as robot:
        await robot.event("response.done")
        await robot.event("reachy_voice.timeline")
    assert robot.errors == []
