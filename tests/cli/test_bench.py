"""What ``bench`` and ``ask`` measure: from the last sample of speech, counting only what was
heard."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import sys
from collections import deque
from typing import Any, cast

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.server import ServerConnection, serve

from app.cli import measuring as bench
from app.cli.ask import _print, as_data
from app.cli.bench import print_report
from app.cli.measuring import BenchRun, TurnTiming, percentile, ready_process, summary
from app.models.gpu import find_gpus
from app.server.process_usage import ProcessUsage
from app.talk.realtime_client import (
    RATE,
    RealtimeClient,
    SpokenTurn,
    TurnFailed,
    connect,
    room_tone,
)
from pipeline.audio import pcm_from_bytes
from pipeline.errors import ReachyVoiceError
from reachy_voice.testing import run_virtual

pytestmark = pytest.mark.quick

SECOND = np.full(RATE, 1000, np.int16)
"""A second of speech, so it ends at 1.0."""

At = tuple[float, dict[str, Any]]


def created(at: float) -> At:
    return at, {"type": "response.created"}


def audio(at: float) -> At:
    return at, {"type": "response.output_audio.delta", "delta": base64.b64encode(b"ab").decode()}


def timeline(at: float, **stages: float | None) -> At:
    return at, {"type": "reachy_voice.timeline", "response_id": "r", **stages}


def done(at: float, status: str = "completed") -> At:
    return at, {"type": "response.done", "response": {"status": status}}


class ScriptedSocket:
    """Sends each event at its time."""

    def __init__(self, *script: At) -> None:
        self.sent: list[dict[str, Any]] = []
        self._script = deque(script)

    async def send(self, text: str) -> None:
        self.sent.append(json.loads(text))

    async def recv(self) -> str:
        loop = asyncio.get_running_loop()
        if not self._script:
            await loop.create_future()
        at, event = self._script[0]
        await asyncio.sleep(at - loop.time())
        self._script.popleft()
        return json.dumps(event)


def spoken(*script: At) -> SpokenTurn:
    """A turn with a second of speech and a scripted server."""
    client = RealtimeClient(cast(ClientConnection, ScriptedSocket(*script)))
    turn: SpokenTurn = run_virtual(client.speak(SECOND, len(SECOND)))
    return turn


def test_the_stages_count_from_the_last_sample_like_the_latency() -> None:
    stages = {"endpoint_ms": 200.0, "transcript_ms": None, "first_audio_ms": 500.0}
    turn = spoken(created(1.3), audio(1.6), timeline(1.6, **stages), done(1.7))
    assert turn.voice_to_voice_ms == pytest.approx(600)
    assert turn.stages_ms == pytest.approx({"endpoint": 300, "first_audio": 600})
    assert as_data(turn)["timeline_ms"] == {"endpoint": 300, "first_audio": 600}
    assert turn.cut_offs == 0


@pytest.mark.parametrize("audio_at", [0.95, 1.1])
@pytest.mark.parametrize("done_at", [0.98, 1.2])
def test_an_answer_during_speech_is_a_cut_off_without_a_latency(
    audio_at: float, done_at: float
) -> None:
    stages = timeline(min(audio_at, done_at), endpoint_ms=1.0, first_audio_ms=2.0)
    turn = spoken(created(0.9), *sorted((audio(audio_at), done(done_at)), key=_moment), stages)
    assert turn.cut_offs == 1
    assert turn.voice_to_voice_ms is None


def _moment(event: At) -> float:
    return event[0]


@pytest.mark.parametrize(("first", "status"), [(0.9, "completed"), (1.05, "cancelled")])
def test_after_a_cut_off_the_answer_to_the_last_words_counts(first: float, status: str) -> None:
    early = (created(first), audio(first), timeline(1.1, first_audio_ms=1.0), done(1.2, status))
    turn = spoken(*early, created(1.5), audio(1.6), done(1.7))
    assert turn.cut_offs == 1
    assert turn.voice_to_voice_ms == pytest.approx(600)
    assert turn.stages_ms == {}


def test_an_answer_without_audio_is_null_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    turn = spoken(created(1.2), timeline(1.3, endpoint_ms=200.0, first_audio_ms=None), done(1.3))
    assert turn.cut_offs == 0
    data = json.loads(json.dumps(as_data(turn), allow_nan=False))
    assert data["voice_to_voice_ms"] is None
    assert data["timeline_ms"] == {}
    _print(turn, None)
    assert "no audio" in capsys.readouterr().out


def test_after_the_recording_the_room_sounds() -> None:
    socket = ScriptedSocket(created(3.0), audio(3.0), done(4.0))
    run_virtual(RealtimeClient(cast(ClientConnection, socket)).speak(SECOND, len(SECOND)))
    chunks = [pcm_from_bytes(base64.b64decode(message["audio"])) for message in socket.sent]
    assert np.array_equal(np.concatenate(chunks[:50]), SECOND)
    for chunk in chunks[50:]:
        rms_dbfs = 20 * math.log10(np.sqrt((chunk.astype(float) ** 2).mean()) / 32768)
        assert -74 < rms_dbfs < -70
    assert np.array_equal(room_tone(480), room_tone(480))


async def test_a_server_that_hangs_up_before_the_session_is_a_failed_turn() -> None:
    async def hang_up(websocket: ServerConnection) -> None:
        await websocket.close(1011, "on fire")

    async with serve(hang_up, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}/v1/realtime") as client:
            with pytest.raises(TurnFailed, match="on fire"):
                await client.configure()


# --- the server's process ----------------------------------------------------------------------


async def test_a_server_that_writes_much_is_not_blocked() -> None:
    program = (
        "import sys; print('Warming', 'Ready. ws://', sep='\\n', file=sys.stderr, flush=True); "
        "sys.stderr.write('x' * 1_000_000); sys.stderr.flush(); sys.exit(7)"
    )
    async with ready_process([sys.executable, "-c", program]) as process:
        assert await process.wait() == 7


async def test_a_server_that_ends_at_once_shows_what_it_wrote() -> None:
    program = "import sys; sys.exit('no such voice')"
    with pytest.raises(ReachyVoiceError) as failed:
        async with ready_process([sys.executable, "-c", program]):
            pytest.fail("it is not ready")
    assert failed.value.why == "no such voice"
    assert "doctor" in failed.value.fix


async def test_a_server_that_takes_too_long_is_ended_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench, "START_TIMEOUT_S", 0.0)
    with pytest.raises(ReachyVoiceError, match="not ready within 0 s") as failed:
        async with ready_process([sys.executable, "-c", "import signal; signal.pause()"]):
            pytest.fail("it is not ready")
    assert failed.value.why
    assert "doctor" in failed.value.fix


# --- statistics --------------------------------------------------------------------------------


def turn(ms: float | None, *, cut_off: bool = False) -> TurnTiming:
    return TurnTiming("clip", {} if ms is None else {"voice_to_voice": ms}, 0.5, cut_off)


def test_percentiles_are_nearest_rank() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, p) for p in (50, 95, 99)] == [50, 95, 99]
    assert percentile([], 50) is None


def test_every_turn_without_a_latency_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    run = BenchRun([turn(100.0), turn(None), turn(None, cut_off=True), turn(300.0, cut_off=True)])
    data = {**summary(run), "synthetic_clips": []}
    assert (data["n"], data["no_latency"], data["cut_off"]) == (2, 2, 2)
    assert data["stages_ms"]["voice_to_voice"] == {"n": 2, "p50": 100.0, "p95": 300.0, "p99": 300.0}
    assert data["stages_ms"]["endpoint"] == {"n": 0, "p50": None, "p95": None, "p99": None}
    print_report(data)
    printed = capsys.readouterr().out
    assert "done: 2 turns" in printed
    assert "no audio): 2 turns" in printed


def test_gpu_voice_and_holes_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    run = BenchRun([TurnTiming("clip", {}, 0.5, cut_off=False, holes_ms=(20.0, 30.0))])
    outputs = [f"NVIDIA L4, 23034, 580.65.06, 8.9, {free}\n" for free in (22_000, 12_000)]
    cards = [find_gpus(lambda _, o=o: (0, o), str).first for o in outputs]  # type: ignore[misc]
    bench.note_gpu(run, *cards)
    run.voice_rtf = bench.voice_rtf("INFO the voice takes 0.15 s for each second of speech\n")
    print_report(summary(run) | {"synthetic_clips": []})
    printed = capsys.readouterr().out
    assert "GPU: NVIDIA L4, driver 580.65.06, 10486 MB" in printed
    assert "voice: 0.15 s for each second" in printed
    assert "holes in answers: 2, 50 ms in all" in printed


def test_late_audio_leaves_a_hole() -> None:
    sound = {"type": "response.output_audio.delta", "delta": base64.b64encode(SECOND).decode()}
    turn = spoken(created(1.2), (1.5, sound), (2.4, sound), (3.7, sound), done(3.8))
    assert turn.holes_ms == pytest.approx([200])


@pytest.mark.parametrize("turns", [[], [turn(None)], [turn(5.0)]])
@pytest.mark.parametrize("usage", [None, ProcessUsage(1.0, 100.0)])
def test_unmeasured_values_are_null_and_print_as_a_dash(
    capsys: pytest.CaptureFixture[str], turns: list[TurnTiming], usage: ProcessUsage | None
) -> None:
    run = BenchRun(turns, 2.0, usage, usage, 5.0) if usage else BenchRun(turns)
    data = json.loads(json.dumps(summary(run), allow_nan=False)) | {"synthetic_clips": []}
    print_report(data)
    printed = capsys.readouterr().out
    assert "-" in printed
    assert "nan" not in printed
    assert "None" not in printed
