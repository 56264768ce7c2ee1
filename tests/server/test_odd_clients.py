"""Clients that vanish, that do not read, and that interrupt the very first answer."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.room_client import PIECE, RoomClient
from benchmarks.harness.virtual_engines import InlineVad
from pipeline.audio import LISTEN_RATE, Pcm, pcm_from_bytes, pcm_to_bytes, to_float
from pipeline.engines.vad.silero import SileroOptions, build
from reachy_voice.testing import ScriptedTts
from tests.session.test_echo_session import SILENT_SAMPLES, STORY, RecordedTts
from tests.support.echo_sound import hum, room
from tests.support.recordings import recording
from tests.support.scripted_server import Serve, Talk, closed_with, servers, talking
from tests.support.staged_server import StagedAssistant, quick_llm
from tests.support.vanishing import vanishing

pytestmark = pytest.mark.quick

TIMES = 60


async def test_nothing_is_left_of_clients_that_vanish() -> None:
    async with vanishing(seed=1) as clients:
        for number in range(TIMES):
            await clients.vanish(number)
        left = await clients.left()
        assert left.nothing, left
        assert len(clients.moments) > 3, clients.moments


# --- A client that does not read its answers does not delay others, over real sockets ----------


MINUTES = tuple(f"word{number}. " for number in range(90))
"""Each takes 5 s to say: 7 minutes, 30 MB on the wire, more than sockets and the bus hold."""


async def burst(talk: Any) -> None:
    """Ask for an answer that is sent as fast as it is made."""
    session = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
    await talk.send("session.update", session=session)
    await talk.until("session.updated")
    await talk.send("response.create")


async def test_a_client_that_does_not_read_does_not_delay_others(serving: Serve) -> None:
    tts = ScriptedTts(first_s=0.0, seconds_per_word=5.0)
    llm = quick_llm()
    llm.answers = [MINUTES, ("Just this. ",) * 4]
    served = await serving(StagedAssistant(llm, tts))
    async with talking(served, max_queue=1, ping_interval=None) as slow, talking(served) as quick:
        await burst(slow)
        await slow.until("response.created")
        # It reads no further: its queue is full, and so are the sockets.
        await burst(quick)
        done = await quick.until("response.done")
        assert done["response"]["status"] == "completed"
        # Nobody keeps minutes of audio for the other one.
        with closed_with(1008, "client too slow"):
            await slow.until("response.done")


# --- the very first answer of a session is interrupted -----------------------------------------


FORMAT = {"format": {"type": "audio/pcm", "rate": LISTEN_RATE}}
SPEAKS_S = 1.5
"""After the first sound of the answer."""
LATENCY_S = 0.15
"""Of the client's player."""


class Microphone:
    """Sends what it hears, every 20 ms; counts samples from the connection's begin."""

    def __init__(self, talk: Talk, client: RoomClient) -> None:
        self._talk, self._client = talk, client
        self._now = asyncio.get_running_loop().time
        self._began = self._now()
        self.first_audio = asyncio.Event()

    @property
    def now_s(self) -> float:
        return self._now() - self._began

    async def run(self) -> None:
        start = 0
        while True:
            await asyncio.sleep(self._began + (start + PIECE) / LISTEN_RATE - self._now())
            audio = base64.b64encode(pcm_to_bytes(self._client.hear(start))).decode()
            await self._talk.send("input_audio_buffer.append", audio=audio)
            start += PIECE

    async def play(self) -> dict[str, Any]:
        """Play what comes, until the answer is done; the event that says so."""
        while (event := await self._talk.next())["type"] != "response.done":
            if event["type"] == "response.output_audio.delta":
                self._client.play(pcm_from_bytes(base64.b64decode(event["delta"])), self.now_s)
                self.first_audio.set()
            elif event["type"] == "input_audio_buffer.speech_started":
                self._client.flush(self.now_s)
        return event

    async def speak(self, said: Pcm) -> int:
        """Speak over the answer; returns the index of the first sample."""
        await self.first_audio.wait()
        begin = round((self.now_s + SPEAKS_S) * LISTEN_RATE)
        self._client.say(to_float(said), begin)
        return begin


@pytest.fixture
def vad(weights: Callable[[str], Path]) -> InlineVad:
    return InlineVad(build(SileroOptions(), weights("silero-vad")))


@pytest.fixture
def voice() -> RecordedTts:
    return RecordedTts(recording("two_cities").pcm[LISTEN_RATE:])


@pytest.fixture
def said() -> Pcm:
    return recording("beckett").pcm[SILENT_SAMPLES : 3 * LISTEN_RATE]


@pytest.mark.parametrize("echo", [False, True])
async def test_the_first_answer_is_interrupted(
    vad: InlineVad, voice: RecordedTts, said: Pcm, echo: bool
) -> None:
    assistant = StagedAssistant(quick_llm(), tts=voice, vad=vad)
    assistant.llm.deltas, assistant.stt.texts = STORY, ("Stop it, please.",)
    response = room(5, seed=3, level=0.2) if echo else np.zeros(1, np.float32)
    client = RoomClient(response, "tanh 2", hum(10 * LISTEN_RATE, 1), LATENCY_S)
    async with servers() as start, talking(await start(assistant)) as talk:
        audio = {"input": FORMAT, "output": FORMAT}
        await talk.send("session.update", session={"type": "realtime", "audio": audio})
        await talk.until("session.updated")
        microphone = Microphone(talk, client)
        await talk.send("response.create")
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            sending = group.create_task(microphone.run())
            speaking = group.create_task(microphone.speak(said))
            done = (await microphone.play())["response"]
            sending.cancel()
    assert done["status"] == "cancelled"
    assert done["status_details"]["reason"] == "turn_detected"
    started = [e for e in talk.recorder.events if e["type"] == "input_audio_buffer.speech_started"]
    assert len(started) == 1
    onset_ms = speaking.result() * 1000 // LISTEN_RATE
    # Dated back to the onset, less the padding.
    assert onset_ms - 500 < started[0]["audio_start_ms"] < onset_ms + 300
    assert (assistant.sessions[0].echo_delay_ms is not None) == echo
