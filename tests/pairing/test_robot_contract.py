"""The robot's contract: every row of the server checklist, over a loopback socket.

The client is ``RobotApp``, which behaves as the Reachy Mini conversation app; engines are
scripted, everything else is real. Rows 15 to 27 are in ``test_robot_contract_limits.py``.
"""

from __future__ import annotations

import json

import pytest
from websockets.asyncio.client import connect

from app.settings.model import ServerSettings
from pipeline.engines.contract import Delta, ToolCall
from pipeline.errors import EngineError
from tests.clients.engines import (
    COUGH_LEVEL,
    NOON,
    SAY_STORY,
    SAY_TIME,
    SAY_WAIT,
    TALE,
    TIME,
    WAIT,
    brain_llm,
    calling,
    noise_tts,
    phrase_cast,
    think,
    tone,
    words,
)
from tests.clients.robot_app import (
    CALLED,
    COMPLETED,
    DELTA,
    STARTED,
    STOPPED,
    RobotTool,
    camera_item,
    jpeg,
    robot_app,
    session_of,
)
from tests.clients.serving import Served, Wire, scripted_server
from tests.support.protocol_client import text_item

pytestmark = pytest.mark.machine


def only_wire(served: Served) -> Wire:
    (wire,) = served.wires
    return wire


async def test_row_01_a_plain_socket_at_the_usual_place(served: Served) -> None:
    assert ServerSettings().port == 8765
    async with robot_app(served.url) as robot:
        await robot.event("session.updated")
    wire = only_wire(served)
    assert "model" not in wire.query
    assert wire.headers["authorization"] == "Bearer DUMMY"
    assert "permessage-deflate" in wire.headers["sec-websocket-extensions"]
    assert "sec-websocket-protocol" not in wire.headers
    token = {"Authorization": "Bearer hf_aTokenOfTheUser"}
    async with connect(served.url, additional_headers=token) as socket:
        assert json.loads(await socket.recv())["type"] == "session.created"


async def test_row_02_the_client_speaks_first(served: Served) -> None:
    """``session.update``, the greeting's item and ``response.create`` wait for nothing."""
    async with robot_app(served.url, greeting="Greet the person: what time is it?") as robot:
        await robot.event("response.done")
    wire = only_wire(served)
    assert [event["type"] for event in wire.received[:3]] == [
        "session.update",
        "conversation.item.create",
        "response.create",
    ]
    assert wire.recorder.types[:2] == ["session.created", "session.updated"]
    assert robot.all("response.output_audio_transcript.done")[0]["transcript"] == NOON


@pytest.mark.parametrize(("rate", "hertz"), [(None, 16_000), (24_000, 24_000)])
async def test_row_03_no_rate_means_16_khz_both_ways(
    served: Served, rate: int | None, hertz: int
) -> None:
    asked = session_of([], "Be brief.")
    native = {"type": "audio/pcm", "rate": rate}
    asked["audio"]["output"]["format"] = asked["audio"]["input"]["format"] = native
    async with robot_app(served.url, session=asked) as robot:
        shown = (await robot.event("session.updated"))["session"]["audio"]
        robot.hears(tone(2000, 0.5, hertz))
        stopped = await robot.event(STOPPED)
        await robot.event("response.done")
    for side in ("input", "output"):
        assert shown[side]["format"] == {"type": "audio/pcm", "rate": hertz}
    assert robot.player.pcm_bytes == round(0.1 * hertz) * 3 * 2
    started = robot.all(STARTED)[0]
    assert stopped["audio_end_ms"] - started["audio_start_ms"] < 1000
    assert robot.all(COMPLETED)[0]["transcript"] == TIME


async def test_row_04_a_partial_update_keeps_everything_else(served: Served) -> None:
    tools = [RobotTool("dance"), RobotTool("camera")]
    async with robot_app(served.url, tools=tools) as robot:
        before = (await robot.event("session.updated"))["session"]
        await robot.change_voice("Ryan")
        await robot.event("session.updated", 2)
        voice = {"audio": {"output": {"voice": "Serena"}}}
        await robot.update({"instructions": "You are a pirate.", **voice})
        after = (await robot.event("session.updated", 3))["session"]
    changed = json.loads(json.dumps(before))
    changed["instructions"] = "You are a pirate."
    changed["audio"]["output"]["voice"] = "Serena"
    assert after == changed
    assert [tool["name"] for tool in after["tools"]] == ["dance", "camera"]


async def test_row_05_06_turns_are_found_answered_and_told_even_after_the_response(
    served: Served,
) -> None:
    async with robot_app(served.url) as robot:
        shown = (await robot.event("session.updated"))["session"]
        robot.hears(SAY_TIME)
        await robot.event("response.done")
        robot.hears(SAY_WAIT)
        await robot.event(STARTED, 2)
        first_flush, second_flush = robot.player.flushed_s
        await robot.event("response.done", 2)
    detection = shown["audio"]["input"]["turn_detection"]
    assert detection["type"] == "server_vad"
    assert detection["create_response"]
    assert detection["interrupt_response"]
    assert robot.all(COMPLETED)[0]["transcript"] == TIME
    assert robot.all("response.output_audio_transcript.done")[0]["transcript"] == NOON
    assert [event["type"] for event in only_wire(served).received] == ["session.update"]
    assert first_flush == 0
    assert second_flush < 0.5, "a small lead keeps the client's queue short"


async def test_row_07_21_nothing_stale_follows_a_barge_in_and_what_was_heard_is_remembered(
    served: Served,
) -> None:
    async with robot_app(served.url) as robot:
        robot.hears(SAY_STORY)
        await robot.event(DELTA)
        robot.hears(SAY_WAIT)
        await robot.event(STARTED, 2)
        story = robot.all("response.created")[0]["response"]["id"]
        await robot.event("response.done", 2)
    types = [event["type"] for event in robot.events]
    second = len(types) - 1 - types[::-1].index(STARTED)
    later = [event for event in robot.events[second:] if "delta" in event["type"]]
    assert later
    assert all(event.get("response_id") != story for event in later)
    prompt = next(p for p in served.cast.llm.prompts[::-1] if p[-1].content.endswith(WAIT))
    told = " ".join(message.content for message in prompt if message.role == "assistant")
    assert TALE.startswith(told)
    # 0.1 s a word; words sent ahead of the player do not count as heard.
    heard_s = robot.arrived[second] - robot.arrived[types.index(DELTA)]
    assert len(told.split()) <= heard_s / 0.1 + 2
    assert [event["type"] for event in only_wire(served).received] == ["session.update"]


async def test_row_08_every_start_has_its_stop_noise_too(served: Served) -> None:
    async with robot_app(served.url) as robot:
        robot.hears(tone(COUGH_LEVEL, 0.3))
        started = await robot.event(STARTED)
        assert robot.listening
        stopped = await robot.event(STOPPED)
        assert not robot.listening
        robot.hears(SAY_TIME)
        await robot.event("response.done")
    assert started["item_id"] == stopped["item_id"]
    pairs = list(zip(robot.all(STARTED), robot.all(STOPPED), strict=True))
    assert [first["item_id"] == last["item_id"] for first, last in pairs] == [True, True]
    assert robot.count("response.created") == 1, "a cough is not answered"
    assert [event["transcript"] for event in robot.all(COMPLETED) if event["transcript"]] == [TIME]


async def test_row_09_12_a_call_names_its_function_after_the_transcript() -> None:
    arguments = {"direction": "left"}
    answer: list[Delta] = [ToolCall("move_head", json.dumps(arguments))]
    head = RobotTool("move_head", needs_response=False)
    async with (
        scripted_server(calling(answer)) as served,
        robot_app(served.url, tools=[head]) as robot,
    ):
        robot.hears(SAY_TIME)
        call = await robot.event(CALLED)
        done = await robot.event("response.done")
    types = [event["type"] for event in robot.events]
    assert types.index(COMPLETED) < types.index(CALLED)
    assert robot.count(COMPLETED) == 1
    assert call["name"] == "move_head"
    assert json.loads(call["arguments"]) == arguments
    assert call["call_id"]
    (item,) = done["response"]["output"]
    assert item["call_id"] == call["call_id"]
    served.conformed()


async def test_row_10_every_response_is_done_once() -> None:
    """Completed, interrupted and failed in the model: each is created once and done once."""
    failing = [True]

    def brain(*asked: object) -> list[Delta]:
        if failing.pop():
            raise EngineError("The model has failed", why="the test says so", fix="none")
        return list(think(*asked))  # type: ignore[arg-type]

    async with (
        scripted_server(phrase_cast(brain_llm(brain))) as served,
        robot_app(served.url, greeting="Hello.") as robot,
    ):
        await robot.event("response.done")
        failing.extend([False] * 3)
        robot.hears(SAY_STORY)
        await robot.event(DELTA)
        robot.hears(SAY_WAIT)
        await robot.event("response.done", 3)
    statuses = [event["response"]["status"] for event in robot.all("response.done")]
    assert statuses == ["failed", "cancelled", "completed"]
    created = [event["response"]["id"] for event in robot.all("response.created")]
    assert created == [event["response"]["id"] for event in robot.all("response.done")]
    served.conformed()


async def test_row_11_audio_is_whole_samples_under_the_ga_names() -> None:
    """The player refuses odd sizes, and ``conformed`` all other names."""
    odd = noise_tts(seconds_per_word=0.0813, rate=22_050)
    async with scripted_server(phrase_cast(tts=odd)) as served, robot_app(served.url) as robot:
        robot.hears(SAY_TIME)
        await robot.event("response.done")
    assert robot.player.pcm_bytes
    served.conformed()


async def test_row_13_no_item_starts_a_response_by_itself() -> None:
    head = RobotTool("move_head", needs_response=False)
    async with (
        scripted_server(calling([ToolCall("move_head", "{}")])) as served,
        robot_app(served.url, tools=[head], greeting="Look at me.") as robot,
    ):
        await robot.event("response.done")
        await robot.until(lambda: any(is_output(e) for e in robot.all("conversation.item.done")))
        await robot.add(text_item("Just so that you know: I wait."))
        await robot.add(camera_item(jpeg(50_000)))
        await robot.change_voice("Ryan")
        await robot.event("session.updated", 2)
        assert robot.errors == []
        assert robot.count("response.created") == 1
        await robot.respond()
        await robot.event("response.done", 2)
    served.conformed()


def is_output(event: dict[str, object]) -> bool:
    item = event["item"]
    return isinstance(item, dict) and item["type"] == "function_call_output"


async def test_row_14_a_second_response_is_refused_and_tried_again() -> None:
    count = "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve."
    async with (
        scripted_server(calling(words(count))) as served,
        robot_app(served.url, greeting="Count to twelve.") as robot,
    ):
        await robot.event("response.created")
        await robot.respond()
        await robot.until(lambda: robot.refusals == 1)
        await robot.respond_after_done()
        await robot.event("response.done", 2)
    (error,) = robot.all("error")
    assert error["error"]["code"] == "conversation_already_has_active_response"
    statuses = [event["response"]["status"] for event in robot.all("response.done")]
    assert statuses == ["completed", "completed"]
    served.conformed()
