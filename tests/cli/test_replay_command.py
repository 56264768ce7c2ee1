"""``reachy-voice replay`` as a user meets it, and ``--record`` with the real engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile

from app.settings.load import load_settings
from pipeline.commands import AddItem, CreateResponse
from pipeline.recording.reading import read_file
from pipeline.recording.tape import Tape
from tests.support.commands import run_flat
from tests.support.recorded_scenarios import barge_in, question, speculation, user_text
from tests.support.recorded_scene import record, recorded_scene
from tests.support.recordings import recording


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "220")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A recording of two sessions."""
    path = tmp_path / "r.jsonl"

    async def twice(tape: Tape) -> None:
        await question(tape)
        await barge_in(tape)

    record(path, twice)
    return path


def test_it_prints_each_turn_and_that_all_was_as_recorded(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    code, printed = run_flat(capsys, "replay", str(file))
    assert code == 0, printed
    assert printed.count("As recorded:") == 2
    assert "recorded by test" in printed
    for word in ("hello", "who are you?", "interrupted", "answered", "How are you?"):
        assert word in printed


def test_one_session_by_its_name_and_all_events_in_a_file(
    capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path
) -> None:
    _, second = read_file(file).sessions
    outs = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for out in outs:
        code, printed = run_flat(
            capsys, "replay", str(file), "--session", second, "--out", str(out)
        )
        assert code == 0, printed
        assert printed.count("As recorded:") == 1
    lines = [json.loads(line) for line in outs[0].read_text().splitlines()]
    assert {line["session"] for line in lines} == {second}
    assert [line["event"] for line in lines if line["event"]["is"] == "TurnRecord"]
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_a_difference_is_told_and_is_a_failure(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    text = file.read_text()
    file.write_text(
        text.replace(
            '"is":"TranscriptReady","item_id":"item_1","text":"hello"',
            '"is":"TranscriptReady","item_id":"item_1","text":"hallo"',
        )
    )
    code, printed = run_flat(capsys, "replay", str(file))
    assert code == 1
    assert "Not as recorded." in printed
    assert "text is 'hallo' in the recording, and 'hello' in the replay" in printed
    assert printed.count("As recorded:") == 1


def test_what_was_said_is_for_the_owner_only_and_never_written_over_the_recording(
    capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "o.jsonl"
    out.write_text("old")
    out.chmod(0o644)
    code, printed = run_flat(capsys, "replay", str(file), "--out", str(out))
    assert code == 0, printed
    assert out.stat().st_mode & 0o777 == 0o600
    assert "old" not in out.read_text()
    before = file.read_bytes()
    for same in (str(file), f"{tmp_path}/../{tmp_path.name}/{file.name}"):
        code, printed = run_flat(capsys, "replay", str(file), "--out", same)
        assert code == 7
        assert "it is the recording itself" in printed
    assert file.read_bytes() == before


def test_a_narrow_terminal_shows_the_words_below_the_numbers(
    capsys: pytest.CaptureFixture[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, printed = run_flat(capsys, "replay", str(file))
    assert code == 0, printed
    for words in (
        "answered said hello heard Hello there",
        "interrupted said who are you?",
        "why 0.9",
    ):
        assert words in printed


@pytest.mark.parametrize("columns", ["80", "220"])
def test_recorded_text_cannot_control_the_terminal(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    columns: str,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    path = tmp_path / "r.jsonl"

    async def typed(tape: Tape) -> None:
        async with recorded_scene(tape) as played:
            await played.do(AddItem(user_text("a\x1b]0;b\x07c \ud800 [red]d")), CreateResponse())
            await played.hear(5.0)

    record(path, typed)
    code, printed = run_flat(capsys, "replay", str(path), "--out", str(tmp_path / "o.jsonl"))
    assert code == 0, printed
    assert "a?]0;b?c ? [red]d" in printed
    code, printed = run_flat(capsys, "replay", str(cut_off_before_the_answer(path)))
    assert "Traceback" not in printed
    assert "\x1b" not in printed


def cut_off_before_the_answer(path: Path) -> Path:
    """The recording without what the language model gave, so that a replay stops and says why."""
    lines = [line for line in path.read_bytes().splitlines(True) if b'"llm.reply"' not in line]
    path.write_bytes(b"".join(line for line in lines if b'"kind":"item"' not in line))
    return path


def test_what_if(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    record(path, speculation)
    waits = ("clear_wait_ms", "likely_wait_ms", "unsure_wait_ms")
    longer = [flag for name in waits for flag in ("--set", f"endpointing.{name}=1500")]
    code, printed = run_flat(capsys, "replay", str(path), *longer)
    assert code == 0, printed
    assert "recorded:" not in printed
    shorter = [flag for name in waits for flag in ("--set", f"endpointing.{name}=100")]
    code, printed = run_flat(capsys, "replay", str(path), *shorter)
    assert code == 1
    assert "The replay stops here. After" in printed


def test_a_recording_that_was_cut_off_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "r.jsonl"
    record(path, question)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 3 // 10])
    code, printed = run_flat(capsys, "replay", str(path))
    assert code == 0, printed
    assert "is damaged or cut off" in printed
    assert "and was cut off then" in printed
    assert "unfinished" in printed
    assert "As recorded:" in printed


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere.jsonl"], 7, "No such file"),
        (["FILE", "--session", "monday"], 7, "has no session monday"),
        (["FILE", "--set", "endpointing"], 3, "it is not section.key=value"),
        (["FILE", "--set", "tts.engine=piper"], 3, "a replay does not depend on it"),
        (["FILE", "--set", "endpointing.onset_ms=soon"], 3, "valid integer"),
        (["FILE", "--out", "/nowhere/o.jsonl"], 7, "Cannot write"),
    ],
)
def test_mistakes_have_a_message_and_a_code(
    capsys: pytest.CaptureFixture[str],
    file: Path,
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    got, printed = run_flat(capsys, "replay", *(str(file) if a == "FILE" else a for a in arguments))
    assert got == code, printed
    assert words in printed
    assert "do:" in printed
    assert "Traceback" not in printed


def test_a_server_without_sessions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"kind":"file","format":1,"reachy_voice":"test"}\n')
    code, printed = run_flat(capsys, "replay", str(path))
    assert code == 7
    assert "There is no session in" in printed


# --- recording ---------------------------------------------------------------------------------


def test_what_cannot_be_recorded_into_is_known_before_the_engines(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, weights: Callable[[str], Path]
) -> None:
    for name in load_settings(None).settings.weights():
        weights(name)
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Reachy")
    code, printed = run_flat(capsys, "serve", "--record", str(letter))
    assert code == 7
    assert "there is something else in it already" in printed
    assert "Warming" not in printed


def test_a_remote_server_is_not_recorded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tone = tmp_path / "tone.wav"
    soundfile.write(tone, [0.0] * 1600, 16_000)
    url = "ws://127.0.0.1:9/v1/realtime"
    code, printed = run_flat(
        capsys, "ask", str(tone), "--url", url, "--record", str(tmp_path / "r.jsonl")
    )
    assert code == 2
    assert "without --url" in printed
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.real
def test_a_question_to_the_real_engines_is_recorded_and_replayed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, weights: Callable[[str], Path]
) -> None:
    asked = recording("goforward")
    path, wav = tmp_path / "r.jsonl", tmp_path / "question.wav"
    soundfile.write(wav, asked.pcm, 16_000)
    sets = ["--set", "llm.threads=1", "--set", "conversation.sampling.max_tokens=12"]
    code, printed = run_flat(capsys, "ask", str(wav), "--record", str(path), *sets)
    assert code == 0, printed
    assert f"Everything that is said is kept in {path}" in printed
    assert path.stat().st_mode & 0o777 == 0o600
    outs = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for out in outs:
        code, printed = run_flat(capsys, "replay", str(path), "--out", str(out))
        assert code == 0, printed
        assert "As recorded:" in printed
        assert "forward" in printed
    assert outs[0].read_bytes() == outs[1].read_bytes()
    [session] = read_file(path).sessions.values()
    assert session.whole
    kinds = {call.of for call in session.calls}
    assert kinds >= {"vad.score", "stt.finish", "llm.warm", "llm.reply", "tts.synthesize"}
