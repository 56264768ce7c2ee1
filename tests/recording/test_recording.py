"""A recorded session: the contents of its folder, and its permissions."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import commands
from pipeline.audio import LISTEN_RATE, AudioFormat, Pcm, Recording
from pipeline.commands import (
    AddItem,
    AppendAudio,
    Command,
    CreateResponse,
    DeleteItem,
    NoteDirection,
    SessionConfig,
    TruncateItem,
)
from pipeline.events import ReplyItemFinished
from pipeline.items import AudioPart, FunctionOutputItem, ImagePart, MessageItem, TextPart
from pipeline.messages import Tool, ToolChoice
from pipeline.recording import writing
from pipeline.recording.plain import RecordingError, from_plain, to_plain
from pipeline.recording.reading import read_recording
from pipeline.recording.writing import Recorder
from tests.support.recorded import ABOUT, question, record, recorded
from tests.support.scripted import Scene, ScriptedStt, scene
from tests.support.virtual_time import run_virtual


def lines_of(session: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (session / "session.jsonl").read_text().splitlines()]


def samples(path: Path) -> Pcm:
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16)


def test_it_has_the_events_and_both_sounds_on_one_time_and_only_its_owner_reads_it(
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
    records = [line["event"] for line in lines if line.get("event", {}).get("is") == "TurnRecord"]
    assert [each["text"] for each in records] == ["hello"]
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
            return [(at, to_plain(event, audio=False)) for at, event in played.log]

    recorder = Recorder(tmp_path, ABOUT)
    (_, begun), *taped = run_virtual(events(recorder))
    recorder.close()
    assert begun["is"] == "RecordingBegun"
    assert taped == run_virtual(events(None))


def test_a_folder_holds_many_sessions_the_earliest_first(tmp_path: Path) -> None:
    for text in ("one", "two"):
        record(tmp_path, question, stt=ScriptedStt(texts=(text,)))
    runs = read_recording(tmp_path)
    assert [run.records[0][1].text for run in runs] == ["one", "two"]


def test_what_is_no_folder_cannot_be_recorded_into(tmp_path: Path) -> None:
    letter = tmp_path / "letter"
    letter.write_text("Dear Reachy")
    with pytest.raises(RecordingError, match="Cannot record into"):
        Recorder(letter, ABOUT)
    assert letter.read_text() == "Dear Reachy"


def test_when_the_disk_is_full_the_conversation_goes_on(
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
def test_what_waits_for_a_slow_disk_is_bounded(
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


def test_a_quiet_day_is_a_hole_in_the_file(tmp_path: Path) -> None:
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


# --- reading it --------------------------------------------------------------------------------


def test_a_killed_server_leaves_all_but_its_last_line(tmp_path: Path) -> None:
    session = record(tmp_path, question)
    lines = session / "session.jsonl"
    lines.write_bytes(lines.read_bytes()[:-10])
    [run] = read_recording(session)
    assert not run.whole
    assert run.records


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("old.jsonl", '{"kind":"file","format":1,"reachy_voice":"0.9"}\n', "recorded before"),
        ("letter.txt", "Dear Reachy", "it is a file"),
        ("s/session.jsonl", '{"format":3}\n', "its format is 3, and this version reads 2"),
        ("s/session.jsonl", "", "its format is none"),
        ("s/other.jsonl", "", "no client has talked"),
    ],
)
def test_an_unreadable_recording_is_refused(
    name: str, content: str, why: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    with pytest.raises(RecordingError) as raised:
        read_recording(path if path.parent == tmp_path else path.parent)
    assert why in str(raised.value.why)
    assert raised.value.fix


@pytest.mark.parametrize("line", [{"event": {"is": "TurnRecord"}}, {"at": 1, "audio": 3}])
def test_lines_that_were_changed_are_told(line: dict[str, Any], tmp_path: Path) -> None:
    session = record(tmp_path, question)
    command = {"command": to_plain(commands.CommitAudio())} if "audio" in line else {}
    with (session / "session.jsonl").open("a") as file:
        file.write(json.dumps({**command, **line}) + "\n")
    with pytest.raises(RecordingError, match="is damaged"):
        read_recording(session)


EVERYTHING: list[Any] = [
    commands.Configure(
        SessionConfig(
            "Be brief.",
            turn_detection=commands.TurnDetection(silence_duration_ms=300),
            tools=(Tool("dance", "Dance.", {"type": "object"}),),
            tool_choice=ToolChoice("required"),
        )
    ),
    commands.CommitAudio("event_1"),
    commands.ClearAudio(),
    NoteDirection(commands.Direction(90.0, True)),
    AddItem(MessageItem("item_1", "user", (TextPart("a \ud800"), ImagePart("data:,x")))),
    AddItem(FunctionOutputItem("item_2", "call_1", "{}"), after="root"),
    CreateResponse(
        commands.ResponseOptions(
            output_format=AudioFormat(rate=8000), metadata={"a": "b"}, input=()
        )
    ),
    commands.CancelResponse("resp_1"),
    TruncateItem("item_3", 0, 200),
    DeleteItem("item_1"),
    commands.RetrieveItem("item_2"),
]


@pytest.mark.parametrize("command", EVERYTHING, ids=lambda command: type(command).__name__)
def test_every_command_comes_back_as_it_was(command: Command) -> None:
    assert from_plain(json.loads(json.dumps(to_plain(command)))) == command


def test_audio_in_a_message_comes_back() -> None:
    part = AudioPart(None, 1.0, Recording(np.arange(5, dtype=np.int16), LISTEN_RATE))
    back = from_plain(to_plain(MessageItem("item_1", "user", (part,)))).parts[0]
    assert back.audio.pcm.tolist() == [0, 1, 2, 3, 4]


def test_an_unknown_record_type_is_refused() -> None:
    with pytest.raises(RecordingError, match="has a Fly that cannot be read"):
        from_plain({"is": "Fly"})


def test_audio_comes_back_to_the_sample_also_behind_a_pause_and_at_another_rate(
    tmp_path: Path,
) -> None:
    sent = [(24_000, 1), (16_000, 2), (24_000, 3)]

    async def play(played: Scene) -> None:
        for rate, value in sent:
            await asyncio.sleep(value)
            await played.do(AppendAudio(np.full(480, value, np.int16), rate))

    pieces = [step for _, step in recorded(tmp_path, play).steps if isinstance(step, AppendAudio)]
    assert [(piece.rate, piece.pcm.tolist()) for piece in pieces] == [
        (rate, [value] * 480) for rate, value in sent
    ]
