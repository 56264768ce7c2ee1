"""The file of a recording: whose it is, what is in it, and what happens when it goes wrong."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import commands
from pipeline.bus import Bus
from pipeline.commands import AppendAudio, Command
from pipeline.events import Event, ReplyFinished
from pipeline.messages import Usage
from pipeline.recording.difference import compare
from pipeline.recording.plain import RecordingError, from_plain, key_of, to_plain
from pipeline.recording.reading import HeldFile, read_file
from pipeline.recording.replay import replay
from pipeline.recording.tape import LINE_BYTES, Tape, open_tape
from tests.support.recorded_scenarios import (
    SCENARIOS,
    barge_in,
    broken_engines,
    question,
    speculation,
)
from tests.support.recorded_scene import VOICE, record, recorded_scene
from tests.support.scripted import Scene, scene
from tests.support.virtual_time import run_virtual

HEADER = {"reachy_voice": "test"}


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- whose file it is --------------------------------------------------------------------------


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_tape(tmp_path / "new.jsonl", HEADER).close()
        earlier = tmp_path / "earlier.jsonl"
        earlier.write_text('{"kind":"file","format":1}\n')
        earlier.chmod(0o644)
        open_tape(earlier, HEADER).close()
    finally:
        os.umask(before)
    for name in ("new.jsonl", "earlier.jsonl"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_a_second_server_goes_on_behind_the_first(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    for _ in range(2):
        tape = open_tape(path, HEADER)
        tape.write(lambda: {"kind": "event", "session": "s", "at": 0})
        tape.close()
    kinds = [line["kind"] for line in lines_of(path)]
    assert kinds == ["file", "event", "file", "event"]


def test_behind_a_server_that_was_killed_a_new_line_begins(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"kind":"file","format":1,"reachy_voice":"test"}\n{"kind":"eve')
    open_tape(path, HEADER).close()
    *_, broken, last = path.read_text().splitlines()
    assert broken == '{"kind":"eve'
    assert json.loads(last)["kind"] == "file"
    assert read_file(path).problems == ["line 2 is damaged or cut off"]


def test_what_cannot_be_recorded_into(tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Reachy")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    busy = tmp_path / "busy.jsonl"
    tape = open_tape(busy, HEADER)
    for path, why in (
        (letter, "something else"),
        (tmp_path, "directory"),
        (tmp_path / "no" / "where.jsonl", "No such file"),
        (pipe, "not a regular file"),
        (busy, "another server"),
    ):
        with pytest.raises(RecordingError) as raised:
            open_tape(path, HEADER)
        assert why in raised.value.why
        assert raised.value.fix
    tape.close()
    assert letter.read_text() == "Dear Reachy"


# --- when it goes wrong ------------------------------------------------------------------------


class FullDisk(io.BytesIO):
    """Takes so many writes, and no more."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self._left = writes
        self.full = threading.Event()

    def write(self, data: Any) -> int:
        if not self._left:
            self.full.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        self._left -= 1
        return super().write(data)


def test_when_the_disk_is_full_the_conversation_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outcome: list[str] = []
    disk = FullDisk(writes=20)

    async def play(tape: Tape) -> None:
        async with recorded_scene(tape) as played:
            await played.say(1.0)
            await played.hear(3.0)
            disk.full.wait()
            await played.say(1.0)
            await played.hear(5.0)
        outcome.extend(event.status for event in played.events(ReplyFinished))

    with caplog.at_level(logging.WARNING):
        record(tmp_path / "r.jsonl", play, disk)
    assert outcome == ["completed", "completed"]
    warnings = [line.getMessage() for line in caplog.records]
    assert warnings == ["Recording has stopped: No space left on device. The conversations go on."]


class SlowDisk(io.BytesIO):
    """Takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def write(self, data: Any) -> int:
        self.go_on.wait()
        return super().write(data)


def test_what_waits_for_a_slow_disk_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    disk = SlowDisk()
    tape = Tape(disk, HEADER, capacity_bytes=10 * LINE_BYTES)
    made = 0

    def line() -> dict[str, Any]:
        nonlocal made
        made += 1
        return {"kind": "event"}

    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            tape.write(line)
    assert tape.problem == "the disk is too slow"
    disk.go_on.set()
    tape.close()
    assert made <= 12
    assert len(caplog.records) == 1


def test_audio_counts_by_its_size() -> None:
    disk = SlowDisk()
    tape = Tape(disk, HEADER, capacity_bytes=100_000)
    tape.write(lambda: {"kind": "command"}, audio_bytes=60_000)
    assert tape.problem is None
    tape.write(lambda: {"kind": "command"}, audio_bytes=60_000)
    tape.write(lambda: {"kind": "command"})
    assert tape.problem == "the disk is too slow"
    disk.go_on.set()
    tape.close()


def test_a_line_that_cannot_be_made_ends_the_recording_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tape = Tape(io.BytesIO(), HEADER)

    def broken() -> dict[str, Any]:
        raise KeyError("the user's words")

    with caplog.at_level(logging.WARNING):
        tape.write(broken)
        tape.close()
    assert tape.problem == "KeyError"


# --- what is in it -----------------------------------------------------------------------------


@pytest.mark.parametrize("play", SCENARIOS)
def test_each_line_has_its_time_and_its_session(play: Any, tmp_path: Path) -> None:
    record(tmp_path / "r.jsonl", play)
    first, *rest = lines_of(tmp_path / "r.jsonl")
    assert first == {"kind": "file", "format": 1, **HEADER}
    assert rest[0]["kind"] == "session"
    assert rest[-1]["kind"] == "end"
    assert len({line["session"] for line in rest}) == 1
    assert all(line["at"] >= 0 for line in rest)
    times = [line["at"] for line in rest]
    assert times == sorted(times)


def test_an_engines_own_errors_are_there_and_no_words_of_others(tmp_path: Path) -> None:
    record(tmp_path / "r.jsonl", broken_engines)
    text = (tmp_path / "r.jsonl").read_text()
    assert "The llm broke" in text
    assert '"error":{"error":"RuntimeError"}' in text
    assert "a secret" not in text


def test_a_recorded_session_does_what_one_that_is_not_recorded_does(tmp_path: Path) -> None:
    async def talk(played: Scene) -> None:
        await played.say(1.003)
        await played.hear(1.713)
        await played.say(0.7)
        await played.hear(4.0)

    plain: list[tuple[float, Any]] = []
    taped: list[tuple[float, Any]] = []

    async def without() -> None:
        async with scene(config=VOICE) as played:
            await talk(played)
        plain.extend((at, to_plain(event, audio=False)) for at, event in played.log)

    async def with_tape(tape: Tape) -> None:
        async with recorded_scene(tape) as played:
            await talk(played)
        taped.extend((at, to_plain(event, audio=False)) for at, event in played.log)

    run_virtual(without())
    record(tmp_path / "r.jsonl", with_tape)
    assert taped == plain


# --- damaged files -----------------------------------------------------------------------------


def cut(path: Path, size: int) -> HeldFile:
    path.write_bytes(path.read_bytes()[:size])
    return read_file(path)


@pytest.mark.parametrize("play", [question, barge_in, speculation])
def test_a_killed_server_leaves_a_recording_up_to_its_last_whole_line(
    play: Any, tmp_path: Path
) -> None:
    path = tmp_path / "r.jsonl"
    record(path, play)
    whole = path.read_bytes()
    first_lines = len(b"\n".join(whole.split(b"\n")[:3]))
    sizes = np.linspace(first_lines + 1, len(whole) - 30, 12).astype(int)
    for size in sizes:
        path.write_bytes(whole)
        held = cut(path, int(size))
        on_a_border = whole[int(size) - 1 : int(size)] == b"\n"
        assert len(held.problems) == (not on_a_border)
        [session] = held.sessions.values()
        assert not session.whole
        replayed = replay(session)
        assert replayed.stopped is None
        assert compare(session.events, replayed.events, session.end_s).difference is None


def test_damage_in_the_middle_ends_what_was_going_on_there(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"

    async def twice(tape: Tape) -> None:
        await question(tape)
        await question(tape)

    record(path, twice)
    lines = path.read_bytes().split(b"\n")
    second_at = next(n for n, line in enumerate(lines) if n > 1 and b'"kind":"session"' in line)
    names = list(read_file(path).sessions)
    lines[second_at // 2] = b'{"kind":"event","session":' + b"\xff\xfe"
    path.write_bytes(b"\n".join(lines))
    held = read_file(path)
    assert held.problems == [f"line {second_at // 2 + 1} is damaged or cut off; it ends {names[0]}"]
    first, second = held.sessions.values()
    assert (first.whole, second.whole) == (False, True)
    for session in (first, second):
        assert compare(session.events, replay(session).events, session.end_s).difference is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "first line"),
        (b"RIFF....WAVE", "first line"),
        (b'{"kind":"session","session":"s","at":0}\n', "first line"),
        (b'{"kind":"file","format":2,"reachy_voice":"9.9"}\n', "it has format 2"),
    ],
)
def test_what_is_no_recording(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordingError) as raised:
        read_file(path)
    assert why in raised.value.why


# --- plain data --------------------------------------------------------------------------------


def test_every_command_comes_back_as_it_was(tmp_path: Path) -> None:
    given: list[Command] = []

    async def play(tape: Tape) -> None:
        for scenario in SCENARIOS:
            await scenario(tape)

    original = AppendAudio(np.arange(-5, 5, dtype=np.int16), 24_000, "event_1", False)
    back = from_plain(json.loads(json.dumps(to_plain(original))))
    assert np.array_equal(back.pcm, original.pcm)
    assert (back.rate, back.event_id, back.begins) == (24_000, "event_1", False)
    record(tmp_path / "r.jsonl", play)
    for session in read_file(tmp_path / "r.jsonl").sessions.values():
        given += [command for _, command in session.commands]
    kinds = {type(command) for command in given}
    assert kinds == set(commands.Command.__args__)
    for command in given:
        again = from_plain(json.loads(json.dumps(to_plain(command))))
        if not isinstance(command, AppendAudio):
            assert again == command


def test_keys_are_equal_for_equal_questions_only() -> None:
    pcm = np.arange(10, dtype=np.int16)
    assert key_of(pcm, "a") == key_of(pcm.copy(), "a")
    assert key_of(pcm, "a") != key_of(pcm, "b")
    assert key_of(pcm, "a") != key_of(pcm[:9], "a")
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})


def test_what_this_version_does_not_know_names_the_version() -> None:
    for data in ({"is": "Teleport"}, {"is": "CommitAudio", "where": "here"}, {"what": 1}):
        with pytest.raises(RecordingError) as raised:
            from_plain(data)
        assert "version of reachy-voice that recorded it" in raised.value.fix


async def test_a_tap_is_told_at_once() -> None:
    bus, seen = Bus(), list[Event]()
    bus.tap(lambda published: seen.append(published.event))
    event = ReplyFinished("resp_1", "completed", (), usage=Usage())
    bus.publish(event)
    assert seen == [event]
