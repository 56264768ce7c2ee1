"""HTTP beside the WebSocket, and how the server starts, drains and ends."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
from typing import Any

import numpy as np
import pytest

from app.server.listening import ServerError, bind
from app.server.serving import StartInterrupt, local_server
from pipeline import events
from pipeline.audio import Pcm
from pipeline.work import Work
from reachy_voice.testing import Noise
from tests.support.listening import Listening
from tests.support.scripted_server import (
    ScriptedAssistant,
    Serve,
    Served,
    Talk,
    closed_with,
    refusal,
    talking,
)
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.machine


async def test_alive_and_ready(served: Served) -> None:
    assert (await served.get("/health")).status_code == 200
    ready = await served.get("/ready")
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "reasons": {}, "notes": {}})
    models = (await served.get("/v1/models")).json()
    assert [model["id"] for model in models["data"]] == ["reachy-voice"]
    assert (await served.get("/v1/realtime")).status_code == 426
    assert (await served.get("/nowhere")).status_code == 404


async def test_not_ready_names_the_engine_and_refuses_the_upgrade(served: Served) -> None:
    served.assistant.reasons["llm"] = "loading"
    ready = await served.get("/ready")
    assert ready.status_code == 503
    assert ready.json() == {"ready": False, "reasons": {"llm": "loading"}}
    assert (await served.get("/health")).status_code == 200
    assert (await served.get("/v1/models")).json()["data"], "for pickers"
    refused = await refusal(served)
    assert refused.status_code == 503
    assert refused.headers["Retry-After"]
    served.assistant.reasons["llm"] = None
    async with talking(served):
        pass


@pytest.mark.parametrize(
    ("engine", "why", "query"),
    [
        ("llm", "cannot be reached", "?intent=transcription"),
        ("tts", "cannot be reached", "?intent=transcription"),
        ("llm", "asks to wait; HTTP 503", ""),
    ],
)
async def test_a_session_starts_without_optional_or_late_engines(
    served: Served, engine: str, why: str, query: str
) -> None:
    served.assistant.reasons[engine] = why
    assert (await served.get("/ready")).json()["reasons"] == {engine: why}
    async with served.connect(query) as socket:
        assert json.loads(await socket.recv())["type"] == "session.created"


# --- start and end -----------------------------------------------------------------------------


async def test_a_taken_port_says_what_to_do(served: Served) -> None:
    with pytest.raises(ServerError) as taken:
        bind("127.0.0.1", served.port)
    assert str(served.port) in taken.value.what
    assert "another program" in taken.value.why
    assert f"server.port={served.port + 1}" in taken.value.fix
    with pytest.raises(ServerError, match="another program") as home:
        bind("127.0.0.1", served.port, "server.wyoming_port")
    assert f"server.wyoming_port={served.port + 1}" in home.value.fix


@pytest.mark.parametrize(("host", "says"), [("192.0.2.1", "address"), ("no such host", "host")])
def test_an_impossible_address_says_what_to_do(host: str, says: str) -> None:
    with pytest.raises(ServerError, match=says) as refused:
        bind(host, 0)
    assert refused.value.fix


class WarmingAssistant(Listening):
    """An assistant whose engines never become ready."""

    def __init__(self) -> None:
        super().__init__()
        self.warming = asyncio.Event()

    async def run(self, on_engine_ready: object, *, without_servers: bool) -> None:
        self.warming.set()
        await self.closed.wait()


async def _own_server(assistant: Any) -> None:
    async with local_server(assistant):
        pytest.fail("it is not ready")


@pytest.mark.parametrize("ends", [StartInterrupt, asyncio.CancelledError])
async def test_own_server_can_be_stopped_during_warm_up(ends: type[BaseException]) -> None:
    warming = WarmingAssistant()
    starting = asyncio.create_task(_own_server(warming))
    await warming.warming.wait()
    if ends is StartInterrupt:
        os.kill(os.getpid(), signal.SIGINT)
    else:
        starting.cancel()
    with pytest.raises(ends) as ended:
        await starting
    assert getattr(ended.value, "exit_code", 130) == 130
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_sigterm_lets_a_reply_finish(serving: Serve) -> None:
    served = await serving(ScriptedAssistant(hold=True), drain_s=60)
    async with talking(served) as talk:
        await talk.send("response.create")
        await talk.until("response.output_audio.delta")
        os.kill(os.getpid(), signal.SIGTERM)
        await served.assistant.draining.wait()
        bind("127.0.0.1", served.port).close()  # nobody listens there now
        (session,) = served.assistant.sessions
        assert not session.ended.is_set()
        session.end_reply("completed")
        done = await talk.until("response.done")
        assert done["response"]["status"] == "completed"
        with closed_with(1001):
            await talk.until("nothing else")
    await served.task
    assert session.ended.is_set()


@pytest.mark.parametrize("limit", [{"drain_s": 0.01}, {"finish_s": 0.01}], ids=str)
async def test_open_work_is_cut_after_the_drain_time(
    serving: Serve, limit: dict[str, float]
) -> None:
    """A reply and a conversation."""
    served = await serving(ScriptedAssistant(hold=True), **limit)
    async with talking(served) as talk:
        if "drain_s" in limit:
            await talk.send("response.create")
            await talk.until("response.output_audio.delta")
        os.kill(os.getpid(), signal.SIGTERM)
        with closed_with(1001):
            await talk.next()
    await served.task


async def test_conversations_may_end_before_the_server_does(serving: Serve) -> None:
    served = await serving(finish_s=3600)
    async with talking(served) as talk:
        os.kill(os.getpid(), signal.SIGTERM)
        while (ready := await served.get("/ready")).status_code == 200:
            pass
        assert ready.json()["reasons"] == {"server": "draining"}
        assert (await served.get("/health")).status_code == 200
        assert (await refusal(served)).status_code == 503
        await talk.send("response.create")
        await talk.until("response.done")
    await served.task


@pytest.mark.parametrize("cuts_in", [False, True])
async def test_no_client_is_disconnected_during_a_turn(serving: Serve, cuts_in: bool) -> None:
    """Speech that interrupts an answer begins a turn; noise does not."""
    served = await serving(ScriptedAssistant(hold=True))
    async with talking(served) as talk:
        session = await served.session_of(talk)
        (link,) = served.clients.open
        if cuts_in:
            session.begin_reply()
        session.bus.publish(events.SpeechStarted("item_u", 0))
        if cuts_in:
            session.end_reply("cancelled", "turn_detected")
        else:
            session.bus.publish(events.SpeechRejected("item_u"))
        session.bus.publish(events.Refused(None, "none", "All events have been sent."))
        while (await talk.next())["type"] != "error":
            pass
        assert link.resting.is_set() != cuts_in


@pytest.mark.parametrize(
    ("detection", "why", "rests"),
    [
        ({"type": "server_vad"}, "silence", False),
        ({"type": "server_vad"}, "client", True),
        ({"type": "server_vad", "create_response": False}, "silence", True),
        (None, "client", True),
    ],
)
async def test_a_turn_without_an_answer_keeps_nobody_waiting(
    serving: Serve, detection: Any, why: Any, rests: bool
) -> None:
    served = await serving(ScriptedAssistant())
    async with talking(served) as talk:
        session = await served.session_of(talk)
        (link,) = served.clients.open
        session.bus.publish(events.SpeechStarted("item_u", 0))
        await talk.until("input_audio_buffer.speech_started")
        audio = {"input": {"turn_detection": detection}}
        await talk.send("session.update", session={"type": "realtime", "audio": audio})
        await talk.until("session.updated")
        session.bus.publish(events.SpeechStopped("item_u", 900, why=why))
        await talk.until("input_audio_buffer.speech_stopped")
        session.bus.publish(events.Refused(None, "none", "All events have been sent."))
        await talk.until("error")
        assert link.resting.is_set() == rests


async def test_a_conversation_closed_in_mid_answer_does_not_delay_the_drain(serving: Serve) -> None:
    served = await serving(ScriptedAssistant(hold=True))
    async with talking(served) as talk:
        session = await served.session_of(talk)
        (link,) = served.clients.open
        session.begin_reply()
        await talk.until("response.created")
        assert not link.resting.is_set()
    async with asyncio.timeout(5):
        await link.resting.wait()


class HesitantVad:
    """Unsure about soft sound."""

    window_samples = 512
    least_movement_db = 0.0

    def __init__(self) -> None:
        self.hears_sound, self.hears_silence = asyncio.Event(), asyncio.Event()

    async def open(self, work: Work) -> HesitantVad:
        return self

    async def score(self, pcm: Pcm) -> float:
        level = np.abs(pcm.astype(int)).mean()
        (self.hears_silence if level < 50 else self.hears_sound).set()
        return 0.01 if level < 50 else 0.4 if level < 500 else 0.99

    def close(self) -> None:
        pass


async def hear(talk: Talk, level: int, seconds: float) -> None:
    pcm = Noise(1)(level, round(seconds * 24_000))
    await talk.send("input_audio_buffer.append", audio=base64.b64encode(pcm.tobytes()).decode())


@pytest.mark.parametrize("speaks", [True, False])
async def test_no_client_is_disconnected_while_a_first_sound_is_weighed(
    serving: Serve, speaks: bool
) -> None:
    vad = HesitantVad()
    assistant = StagedAssistant(vad=vad)
    served = await serving(assistant, drain_s=60)
    async with talking(served) as talk:
        await hear(talk, 200, 0.1)
        await vad.hears_sound.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await assistant.draining.wait()
        if speaks:
            await hear(talk, 3000, 0.5)
            await hear(talk, 0, 3.0)
            await talk.until("response.done")
        else:
            vad.hears_silence.clear()
            await hear(talk, 0, 0.1)
            await vad.hears_silence.wait()
            await hear(talk, 0, 0.1)
        with closed_with(1001):
            await talk.until("nothing else")
    await served.task


async def test_a_second_signal_ends_it_at_once(serving: Serve) -> None:
    served = await serving(ScriptedAssistant(hold=True), drain_s=3600)
    async with talking(served) as talk:
        await talk.send("response.create")
        await talk.until("response.output_audio.delta")
        os.kill(os.getpid(), signal.SIGINT)
        await served.assistant.draining.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await served.task
        (session,) = served.assistant.sessions
        assert session.ended.is_set()
