"""A recorded session: its folder's contents and permissions."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import wave
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio import LISTEN_RATE, Pcm, Recording
from pipeline.commands import AddItem, AppendAudio, Direction, NoteDirection, TurnDetection
from pipeline.events import ReplyItemFinished
from pipeline.items import AudioPart, ImagePart, MessageItem, TextPart
from pipeline.messages import Tool
from pipeline.recording import writing
from pipeline.recording.plain import RecordingError, to_plain
from pipeline.recording.writing import Recorder
from reachy_voice.testing import Scene, ScriptedStt, run_virtual, scene

pytestmark = pytest.mark.quick

ABOUT = {"reachy_voice": "test"}


async def question(played: Scene) -> None:
    await played.say(1.0)
    await played.hear(6.0)


def record(folder: Path, play: Callable[[Scene], Awaitable[None]], **engines: Any) -> Path:
    """The folder of the one session in which ``play`` runs."""
    known = set(folder.iterdir()) if folder.exists() else set()
    recorder = Recorder(folder, ABOUT)

    async def main() -> None:
        async with scene(recorder=recorder, **engines) as played:
            await play(played)

    run_virtual(main())
    recorder.close()
    [session] = set(folder.iterdir()) - known
    return session


def lines_of(session: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (session / "session.jsonl").read_text().splitlines()]


def records_of(session: Path) -> list[dict[str, Any]]:
    events = [line.get("event", {}) for line in lines_of(session)]
    return [event for event in events if event.get("is") == "TurnRecord"]


def samples(path: Path) -> Pcm:
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16)


def test_it_has_events_and_sound_on_one_clock_for_its_owner_only(
    tmp_path: Path,
) -> None:
    before = os.umask(0)
    try:
        session = record(tmp_path / "r", question)
    finally:
        os.umask(before)
    names = {path.name for path in session.iterdir()}
    assert names == {"session.jsonl", "heard-16000.wav", "sent-16000.wav"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in session.iterdir())
    assert session.stat().st_mode & 0o777 == (tmp_path / "r").stat().st_mode & 0o777 == 0o700
    head, *lines = lines_of(session)
    assert (head["reachy_voice"], head["format"]) == ("test", writing.FORMAT)
    assert [each["text"] for each in records_of(session)] == ["hello"]
    assert lines[-1]["end"]
    heard, sent = samples(session / "heard-16000.wav"), samples(session / "sent-16000.wav")
    assert len(heard) == 7 * LISTEN_RATE
    assert np.abs(heard[:LISTEN_RATE]).max() > 2000
    first = next(line for line in lines if line.get("event", {}).get("is") == "ReplyAudio")
    assert not sent[: round((first["at"] - 0.3) * LISTEN_RATE)].any()
    assert sent.any()


def test_recording_changes_nothing_in_a_session(tmp_path: Path) -> None:
    async def events(recorder: Recorder | None) -> list[tuple[float, Any]]:
        async with scene(recorder=recorder) as played:
            await question(played)
            return [(at, to_plain(event)) for at, event in played.log]

    recorder = Recorder(tmp_path, ABOUT)
    (_, begun), *taped = run_virtual(events(recorder))
    recorder.close()
    assert begun["is"] == "RecordingBegun"
    assert taped == run_virtual(events(None))


def test_a_folder_holds_many_sessions(tmp_path: Path) -> None:
    for text in ("one", "two"):
        session = record(tmp_path, question, stt=ScriptedStt(texts=(text,)))
        assert [each["text"] for each in records_of(session)] == [text]


def test_recording_needs_a_folder(tmp_path: Path) -> None:
    letter = tmp_path / "letter"
    letter.write_text("Dear Reachy")
    with pytest.raises(RecordingError, match="Cannot record into"):
        Recorder(letter, ABOUT)
    assert letter.read_text() == "Dear Reachy"


def test_the_conversation_continues_on_a_full_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing._Sound, "write", full)
    answered: list[int] = []

    async def play(played: Scene) -> None:
        await question(played)
        answered.append(len(played.events(ReplyItemFinished)))

    with caplog.at_level(logging.WARNING):
        record(tmp_path, play)
    assert answered == [1]
    [warning] = [entry.message for entry in caplog.records]
    assert warning == "Recording has stopped: No space left on device. The conversations go on."


@pytest.mark.parametrize(("limit", "size_bytes"), [("MOST_WAITING", 0), ("MOST_WAITING_BYTES", 1)])
def test_the_queue_for_a_slow_disk_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, size_bytes: int
) -> None:
    monkeypatch.setattr(writing, limit, 10)
    gate = threading.Event()
    recorder = Recorder(tmp_path, ABOUT)
    for _ in range(20):
        recorder.write(lambda: [gate.wait()].clear(), size_bytes)
    assert recorder.problem == "the disk is too slow"
    gate.set()
    recorder.close()


def test_long_silence_is_a_hole_in_the_file(tmp_path: Path) -> None:
    sound = writing._Sound(writing._create(tmp_path / "heard-24000.wav"), 24_000)
    half = np.ones(12_000, np.int16)
    assert sound.write(half, 0.5) == 0
    assert sound.write(half, 20 * 3_600.0) == 20 * 3_600 * 24_000 - 12_000
    with pytest.raises(OSError, match="4 GB"):
        sound.write(half, 26 * 3_600.0)
    sound.close()
    with wave.open(str(tmp_path / "heard-24000.wav")) as file:
        assert (file.getframerate(), file.getnframes()) == (24_000, 20 * 3_600 * 24_000)
    assert (tmp_path / "heard-24000.wav").stat().st_blocks * 512 < 1_000_000


def test_audio_is_sample_exact_after_a_pause_and_at_another_rate(
    tmp_path: Path,
) -> None:
    sent = [(24_000, 1), (16_000, 2), (24_000, 3)]

    async def play(played: Scene) -> None:
        for rate, value in sent:
            await asyncio.sleep(value)
            await played.do(AppendAudio(np.full(480, value, np.int16), rate))

    session = record(tmp_path, play)
    places = [line["audio"] for line in lines_of(session) if "audio" in line]
    assert [place["file"] for place in places] == [f"heard-{rate}.wav" for rate, _ in sent]
    for place, (_, value) in zip(places, sent, strict=True):
        end = place["start"] + place["count"]
        assert samples(session / place["file"])[place["start"] : end].tolist() == [value] * 480


def test_lines_are_on_the_disk_when_a_server_is_killed(tmp_path: Path) -> None:
    files = writing.SessionFiles(tmp_path / "s")
    files.open({"format": writing.FORMAT})
    files.line({"at": 1.0})
    assert lines_of(tmp_path / "s") == [{"format": writing.FORMAT}, {"at": 1.0}]
    files.close()


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (
            Tool("dance", "Dance.", {"type": "object"}),
            {
                "is": "Tool",
                "name": "dance",
                "description": "Dance.",
                "parameters": {"json": {"type": "object"}},
            },
        ),
        (
            TurnDetection(silence_duration_ms=300),
            {"is": "TurnDetection", "silence_duration_ms": 300},
        ),
        (
            NoteDirection(Direction(90.0, True)),
            {
                "is": "NoteDirection",
                "direction": {"is": "Direction", "azimuth_deg": 90.0, "speech": True},
            },
        ),
        (
            AddItem(MessageItem("item_1", "user", (TextPart("a \ud800"), ImagePart("data:,x")))),
            {
                "is": "AddItem",
                "item": {
                    "is": "MessageItem",
                    "id": "item_1",
                    "role": "user",
                    "parts": [
                        {"is": "TextPart", "text": "a \ud800"},
                        {"is": "ImagePart", "url": "data:,x"},
                    ],
                },
            },
        ),
        (
            AudioPart(None, 1.0, Recording(np.arange(3, dtype=np.int16), LISTEN_RATE)),
            {
                "is": "AudioPart",
                "transcript": None,
                "seconds": 1.0,
                "audio": {"is": "Recording", "pcm": {"samples": 3}, "rate": LISTEN_RATE},
            },
        ),
    ],
)
def test_recorded_values_become_plain_data(value: Any, plain: dict[str, Any]) -> None:
    assert json.loads(json.dumps(to_plain(value))) == plain
